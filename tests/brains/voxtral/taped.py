"""CUDA graphs for machines without CUDA: the operations of one run, done again without Python.

What holds of a CUDA graph holds here: the tensors and numbers of the capture are those of every
replay, results land where they landed first, and nothing may ask for a number on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from voxtui.brains.voxtral import fast_path, graphs, weights

CAPACITY = 1600
"""Tokens of the cache of the captured path: three windows of sound and their text."""

ASKS = {
    getattr(torch.Tensor, name)
    for name in (
        "__bool__", "__float__", "__index__", "__int__", "cpu", "equal", "item", "nonzero", "numpy",
        "tolist",
    )
} | {torch.equal, torch.nonzero, torch.tensor, torch.as_tensor, torch.from_numpy}  # fmt: skip
"""Operations that wait for the device, or copy data of the host to it."""

MAKES = {torch.arange, torch.empty, torch.full, torch.linspace, torch.ones, torch.zeros}
"""Operations that make a tensor on the host, unless a device or a target is named."""


class Unasked(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if (
            func in ASKS
            or (func in MAKES and not {"device", "out"} & set(kwargs or ()))
            or (func is torch.Tensor.__setitem__ and _brings(*args))
        ):
            raise RuntimeError(f"{func.__name__} is not permitted when a stream is capturing")
        return func(*args, **(kwargs or {}))


def _brings(into: torch.Tensor, at: object, what: object) -> bool:
    """Refuse a single-position write: it copies its number from the host, a range does not."""
    return not isinstance(what, torch.Tensor) and not into[at].dim()  # type: ignore[index]


class Tape(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self._operations: list[tuple] = []
        self.replays = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self._operations.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        self.replays += 1
        with torch.inference_mode():
            for func, args, kwargs, result in self._operations:
                again = func(*args, **kwargs)
                for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                    if isinstance(old, torch.Tensor) and not _is_same_memory(old, new):
                        old.copy_(new)

    @property
    def launches(self) -> int:
        """Operations that are no mere views: at least so many launches without a graph."""
        return sum(not func.is_view for func, *_ in self._operations)


def _is_same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


class TapeRecorder:
    """Stands in for CudaRecorder."""

    def __init__(self) -> None:
        self.tapes: list[Tape] = []

    def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
        tape = Tape()
        with Unasked(), tape:
            work()
        self.tapes.append(tape)
        return tape.replay


def tape_instead_of_gpu(
    patch: pytest.MonkeyPatch, cache: Path, recorder: Callable[[], object] = TapeRecorder
) -> None:
    """Let a brain on a CPU try the fast path: with tapes, without kernels, and faster by decree.

    `cache`: the user's folder in which the marker stands.
    """
    load = weights.load_model
    patch.setattr(weights, "load_model", lambda *given: replace(load(*given), on_gpu=True))
    patch.setattr(graphs, "CudaRecorder", recorder)
    patch.setattr(fast_path, "use_kernels", lambda decoder: None)
    patch.setattr(fast_path, "CAPTURED_CAPACITY", CAPACITY)
    patch.setattr(fast_path, "step_seconds", lambda loop, prompt: 0.5 if loop.kv_buckets else 1.0)
    patch.setenv("XDG_CACHE_HOME", str(cache))


class FakeCuda:
    """Stands in for `torch.cuda`, as far as capturing goes; notes what it is asked for.

    Like torch's, a capture that fails leaves its stream the current one.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self.current: object = "default"

    def is_available(self) -> bool:
        return True

    def graph_pool_handle(self) -> str:
        return "pool"

    def current_device(self) -> int:
        return 0

    def current_stream(self) -> object:
        return self.current

    def set_stream(self, stream: object) -> None:
        self.current = stream

    def Stream(self, priority: int) -> FakeStream:  # noqa: N802
        assert priority < 0
        return FakeStream(self.log)

    def CUDAGraph(self) -> FakeGraph:  # noqa: N802
        return FakeGraph(self.log)

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    @contextmanager
    def graph(
        self, graph: FakeGraph, *, pool: str, stream: FakeStream, capture_error_mode: str
    ) -> Iterator[None]:
        before, self.current = self.current, stream
        self.log.append(f"begin in {pool}, {capture_error_mode}")
        try:
            yield
        except RuntimeError:
            said = "operation failed due to a previous error during capture"
            raise RuntimeError(said)  # noqa: B904 - as an exit of torch raises it
        self.log.append("end")
        self.current = before


class FakeStream:
    def __init__(self, log: list[str]) -> None:
        self._log = log

    def wait_stream(self, other: object) -> None:
        self._log.append(f"wait for {other}")


class FakeGraph:
    def __init__(self, log: list[str]) -> None:
        self._log = log

    def replay(self) -> None:
        self._log.append("replay")
