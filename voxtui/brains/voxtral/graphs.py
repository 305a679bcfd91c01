"""Work whose shapes never change, launched as one: CUDA graphs."""

# torch is typed in part only.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

Work = Callable[..., None]
"""Operations on tensors that stay where they are; its numbers are part of its shape."""

Record = Callable[[Callable[[], None]], Callable[[], None]]
"""Notes the operations of what it is given; what it returns does them again, and no Python."""


class Graphs:
    """What was captured, by name and shape. Whatever was not is run as it is."""

    def __init__(self) -> None:
        self._replays: dict[tuple[str | int, ...], Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._replays)

    def capture(self, record: Record, name: str, work: Work, *shape: int) -> None:
        self._replays[name, *shape] = record(lambda: work(*shape))

    def run(self, name: str, work: Work, *shape: int) -> None:
        replay = self._replays.get((name, *shape))
        if replay is None:
            work(*shape)
        else:
            replay()

    def clear(self) -> None:
        self._replays.clear()


class CudaRecorder:
    """Records CUDA graphs. Raises RuntimeError where it cannot.

    They share one pool of memory: no two of them run at a time, and what one leaves for another
    is in tensors from outside the pool.
    """

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise RuntimeError("there is no CUDA device")
        self._pool = torch.cuda.graph_pool_handle()
        # What is captured keeps the priority of its stream: it goes before the voice's work.
        self._stream = torch.cuda.Stream(priority=-1)

    def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
        before = torch.cuda.current_stream()
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream):
            work()  # CUDA's libraries set themselves up at first use, which a capture forbids
        graph = torch.cuda.CUDAGraph()
        try:
            # Allocations of other threads, such as the voice's, are none of a capture's business.
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                work()
        except RuntimeError as error:
            self._abandon()
            # What was not permitted tells more than that the capture could not be ended after it.
            why = error.__context__
            raise (why if isinstance(why, RuntimeError) else error) from None
        finally:
            torch.cuda.set_stream(before)  # torch leaves it changed when a capture fails
        graph.replay()  # the first launch of a graph is slower: it brings it to the device
        return graph.replay

    def _abandon(self) -> None:
        """Close the pool after a capture that failed, which torch leaves open where it could not
        end the capture: `empty_cache` would fail from then on, and with it every other capture.

        As torch itself closes it in torch/_inductor/cudagraph_trees.py; refused if it is closed.
        """
        closing: Any = torch._C  # pyright: ignore[reportPrivateUsage]
        device = torch.cuda.current_device()
        with contextlib.suppress(RuntimeError, AttributeError):
            closing._cuda_endAllocateToPool(device, self._pool)
            closing._cuda_releasePool(device, self._pool)
