"""Torch's operations on the simulated device: the CPU computes them, on the same memory.

Torch loads this module in each process of the environment, by its entry point for backends. A
capture notes operations without running them, so their results hold no numbers before a replay.
"""

# Torch has no public name for what this module needs.
# ruff: noqa: SLF001

from __future__ import annotations

import ctypes
import itertools
import os
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch import library as registry

RUNTIME = ctypes.PyDLL("libcudart.so.13")

NATIVE = {
    "_local_scalar_dense", "_pin_memory", "empty", "empty_strided", "is_pinned", "is_set_to",
    "record_stream", "resize_", "set_",
}  # fmt: skip
"""Operations that need no kernel: torch's own code runs."""

WHOLE = ("convolution", "copy_", "lstm.data", "lstm.input")
"""Operations that torch would give to a kernel without asking for another operation."""

COMPOSITE = torch._C.DispatchKey.CompositeExplicitAutograd

_numbers = itertools.count(1)
_noted: dict[int, Callable[[], object]] = {}
_kept: list[Any] = []


# What tests ask for.


def lose(after: int = 0) -> None:
    """Make the device unusable after so many more operations, as an error in a kernel does."""
    RUNTIME.simulated_lose_after(after)


def take(size: int) -> None:
    """Let another program use `size` bytes of the device's memory."""
    RUNTIME.simulated_take(ctypes.c_size_t(size))


def refuse_captures(count: int) -> None:
    """Let the next `count` captures fail as they begin."""
    RUNTIME.simulated_refuse_captures(count)


def replays() -> int:
    """Return how many graphs have been launched."""
    return RUNTIME.simulated_replays()


# What torch asks for.


def load() -> None:
    """Take over the operations of CUDA."""
    RUNTIME.simulated_call_back(_call_back)
    kernels = registry.Library("aten", "IMPL", "CUDA")
    _kept.append(kernels)
    warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
    names = set(torch._C._dispatch_get_registrations_for_dispatch_key("CUDA"))
    names |= {f"aten::{name}" for name in WHOLE}
    for name in sorted(names):
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        if namespace != "aten" or base in NATIVE:
            continue
        op = getattr(getattr(torch.ops.aten, base), overload or "default")
        operation = Operation(op)
        if not operation.is_view:
            found = partial(_copy, operation) if base == "copy_" else operation
            kernels.impl(rest, found, "CUDA", allow_override=True)
    torch.backends.cudnn.enabled = False  # it is not there
    # Attention by single operations, because the others are kernels.
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    if find_spec("triton") is not None:
        _interpret_kernels()


def submit(work: Callable[[], object]) -> bool:
    """Run `work`, or note it for the capture under way. Return True if it ran."""
    if _is_noted(number := next(_numbers)):
        _noted[number] = work
        return False
    work()
    return True


def _is_noted(number: int) -> bool:
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    found = RUNTIME.simulated_launch(stream, ctypes.c_long(number))
    if found < 0:
        raise torch.AcceleratorError("CUDA error: unspecified launch failure")
    return bool(found)


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_long, ctypes.c_int)
def _call_back(number: int, forget: int) -> int:
    """Run what a graph noted, or forget it. Return 0 after an error."""
    try:
        if forget:
            _noted.pop(number, None)
        else:
            with torch.inference_mode():
                _noted[number]()
    except Exception:  # noqa: BLE001 - the caller is C
        traceback.print_exc()
        return 0
    return 1


def host(tensor: Tensor) -> Tensor:
    """Return a CPU tensor with the memory of a tensor on the device. It does not own it."""
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    if not size:
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    memory = (ctypes.c_ubyte * size).from_address(storage.data_ptr())
    whole = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    found = torch.empty(0, dtype=tensor.dtype)
    return found.set_(whole, tensor.storage_offset(), tensor.size(), tensor.stride())


class Operation:
    """One overload of one operation."""

    def __init__(self, op: Any) -> None:
        self.op = op
        schema = op._schema
        self.is_view = any(
            found.alias_info is not None and not found.alias_info.is_write
            for found in schema.returns
        )
        written = [
            (at, found) for at, found in enumerate(schema.arguments)
            if found.alias_info is not None and found.alias_info.is_write
        ]  # fmt: skip
        self._outs = [found.name for _, found in written if found.kwarg_only]
        self._changed = [at for at, found in written if not found.kwarg_only]
        self._draws = any(found.name == "generator" for found in schema.arguments)
        self._counts = torch.Tag.dynamic_output_shape in op.tags
        self._answers = any(str(found.type) in ("bool", "int", "float") for found in schema.returns)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Compute the operation, or note it during a capture."""
        if self._answers or (self._counts and self._depends_on_numbers(args)):
            torch.cuda.current_stream().synchronize()  # which a capture forbids
        outs = [named.pop(name) for name in self._outs]
        if self._draws:
            named["generator"] = _cpu_generator(named.get("generator"))
        if "device" in named:
            named["device"] = torch.device("cpu")
        noted = _is_noted(number := next(_numbers))
        values = [_mapped(value, host) for value in self._as_tensors(args)]
        given = {name: _mapped(value, host) for name, value in named.items()}
        # A capture needs the shapes of the results only. Zeros are right for indices too.
        made = self._compute(_mapped(values, torch.zeros_like) if noted else values, given, outs)
        if outs:
            for out, found in zip(outs, made, strict=True):
                if out.size() != found.size():
                    out.resize_(found.size())
            results, answer = outs, outs
        elif self._changed and self.op._schema.returns:
            results, answer = [], [args[at] for at in self._changed]
        else:
            answer = _mapped(made, _on_device)
            results = _tensors(answer)
        into = [host(result) for result in results]
        if noted:
            _noted[number] = lambda: _fill(into, self._compute(values, given, outs))
        else:
            _fill(into, made)
        return answer[0] if len(self.op._schema.returns) == 1 else tuple(answer)

    def _as_tensors(self, args: tuple[Any, ...]) -> list[Any]:
        """Undo that torch hands a number to Python where the operation takes a tensor."""
        wanted = [str(found.type) == "Tensor" for found in self.op._schema.arguments]
        return [
            torch.tensor(value) if tensor and isinstance(value, int | float) else value
            for value, tensor in zip(args, wanted, strict=False)
        ]

    def _compute(self, values: list[Any], given: dict[str, Any], outs: list[Tensor]) -> list[Any]:
        fresh = {
            name: torch.empty(0, dtype=out.dtype)
            for name, out in zip(self._outs, outs, strict=True)
        }
        found = self.op(*values, **given, **fresh)
        return list(found) if len(self.op._schema.returns) != 1 else [found]

    def _depends_on_numbers(self, args: tuple[Any, ...]) -> bool:
        if "index" not in self.op._schema.name:
            return True
        return any(found.dtype in (torch.bool, torch.uint8) for found in _tensors(args[1:]))


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Apply `change` to each tensor on the other side, also in lists."""
    if isinstance(value, Tensor):
        return change(value) if value.is_cuda or change is not host else value
    if isinstance(value, list | tuple):
        return type(value)(_mapped(one, change) for one in value)
    return value


def _on_device(found: Tensor) -> Tensor:
    return torch.empty_strided(found.size(), found.stride(), dtype=found.dtype, device="cuda")


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [found for one in value for found in _tensors(one)]
    return []


def _fill(into: list[Tensor], made: list[Any]) -> None:
    if into:
        for there, found in zip(into, _tensors(made), strict=True):
            there.copy_(found)


def _cpu_generator(theirs: torch.Generator | None) -> torch.Generator:
    """Return a generator whose numbers follow from the state of one on the device."""
    theirs = theirs or torch.cuda.default_generators[0]
    at = theirs.get_offset()
    theirs.set_offset(at + 4)
    return torch.Generator().manual_seed(hash((theirs.initial_seed(), at)) % 2**63)


def _copy(operation: Operation, into: Tensor, source: Tensor, blocking: bool = False) -> Tensor:
    """Let torch copy between host and device, and equal layouts: it decides who waits."""
    same = into.dtype == source.dtype and into.size() == source.size()
    contiguous = into.is_contiguous() and source.is_contiguous()
    if into.device != source.device or (same and contiguous):
        return operation.op._op_dk(COMPOSITE, into, source, blocking)
    return operation(into, source)


# Kernels in Triton.


def _interpret_kernels() -> None:
    """Let Triton's interpreter run kernels, in place and within captures."""
    os.environ["TRITON_INTERPRET"] = "1"
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    run = interpreter.GridExecutor.__call__

    def launch(executor: Any, *args: Any, **named: Any) -> None:
        hosted = [_mapped(value, host) for value in args]
        submit(lambda: run(executor, *hosted, **named))

    def single(handle: Any) -> Any:
        """Return a bfloat16 as float32. The interpreter would multiply its bits."""
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        wide = (handle.data.astype(np.uint32) << 16).view(np.float32)
        return interpreter.TensorHandle(wide, tl.float32)

    multiply = interpreter.InterpreterBuilder.create_dot

    def dot(builder: Any, a: Any, b: Any, *rest: Any) -> Any:
        return multiply(builder, single(a), single(b), *rest)

    interpreter.GridExecutor.__call__ = launch
    interpreter.InterpreterBuilder.create_dot = dot
    # Launches do not overlap here.
    tl.extra.cuda.gdc_wait = tl.extra.cuda.gdc_launch_dependents = _nothing


def _nothing(_semantic: Any = None, _builder: Any = None) -> None:
    pass
