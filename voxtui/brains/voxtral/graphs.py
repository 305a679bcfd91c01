"""CUDA graphs: operations of fixed shapes, launched as one."""

# torch is typed in part only.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable

import torch

Work = Callable[..., None]
"""Operations on fixed tensors. Its numeric arguments are part of its shape."""

Record = Callable[[Callable[[], None]], Callable[[], None]]
"""Records a callable, and returns a function that replays it without running Python."""


class Graphs:
    """Captured operations by name and shape. Others are run directly."""

    def __init__(self) -> None:
        self.replays: dict[tuple[str | int, ...], Callable[[], None]] = {}

    def capture(self, record: Record, name: str, work: Work, *shape: int) -> None:
        self.replays[name, *shape] = record(lambda: work(*shape))

    def run(self, name: str, work: Work, *shape: int) -> None:
        replay = self.replays.get((name, *shape))
        if replay is None:
            work(*shape)
        else:
            replay()


class CudaRecorder:
    """Records CUDA graphs. Raises RuntimeError if that fails.

    The graphs share one memory pool, because only one runs at a time and they exchange data in
    tensors outside of the pool.

    All graphs of a recorder must go at the same time. When one does, torch frees the workspaces of
    cuBLAS that all graphs of its stream write to (https://github.com/pytorch/pytorch/issues/193402,
    in torch 2.13).
    """

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise RuntimeError("there is no CUDA device")
        self._pool = torch.cuda.graph_pool_handle()
        # A graph keeps the priority of its stream: it runs before the voice's work.
        self._stream = torch.cuda.Stream(priority=-1)

    def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
        before = torch.cuda.current_stream()
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream):
            work()  # CUDA's libraries initialise at first use, which a capture forbids
        graph = torch.cuda.CUDAGraph()
        try:
            # thread_local: other threads, such as the voice's, may allocate meanwhile.
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                work()
        except RuntimeError as error:
            # The first error says more than the failed end of the capture that follows it.
            why = error.__context__
            raise (why if isinstance(why, RuntimeError) else error) from None
        finally:
            torch.cuda.set_stream(before)  # torch leaves it changed when a capture fails
        graph.replay()  # the first launch of a graph is slower, because it uploads the graph
        return graph.replay
