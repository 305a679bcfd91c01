"""Interpret errors of torch and CUDA, and mark an attempt that may crash."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path

from voxtui.errors import ModelError, first_line
from voxtui.models.cuda import VOXTRAL_MEMORY
from voxtui.settings.paths import user_folders

CPU_ALLOCATOR = "DefaultCPUAllocator"
"""A word of torch's error when memory runs out: the words after it differ between systems."""

TRY_AGAIN = "To try it again: voxtui doctor gpu"


def sentence_of(error: Exception) -> str | None:
    from voxtui.brains.voxtral.generate import NotNumbers, PromptTooLong

    match error:
        case NotNumbers():
            return "Voxtral failed: its output is not a number."
        case PromptTooLong():
            return "The utterance is too long for Voxtral."
        case RuntimeError() if CPU_ALLOCATOR in str(error):
            return "Too little memory for this turn."
        case RuntimeError() if is_full(error):
            return "Too little GPU memory for this turn."
        case RuntimeError() if any(name in str(error) for name in ("CUDA", "CUDNN", "CUFFT")):
            return f"The GPU failed: {first_line(error)}."
        case _:
            return None


def is_failure(error: Exception) -> bool:
    """Return False if the model is intact: only the utterance was too long."""
    from voxtui.brains.voxtral.generate import PromptTooLong

    return not isinstance(error, PromptTooLong)


def is_full(error: Exception) -> bool:
    """Return True if the device ran out of memory. CUDA's libraries use different messages."""
    import torch

    words = ("out of memory", "ALLOC_FAILED", CPU_ALLOCATOR)
    return isinstance(error, torch.OutOfMemoryError) or any(word in str(error) for word in words)


def is_sticky(error: Exception) -> bool:
    """Return True after an error of the device, which the process can then no longer use.

    Torch and Triton use different messages. A failed allocation is not such an error.
    """
    words = ("CUDA error", "Triton Error [CUDA]")
    return any(word in str(error) for word in words) and not is_full(error)


def never_free(owners: object) -> None:
    """Keep tensors and graphs of a lost device until the process ends.

    Torch frees pinned memory with an event of CUDA, whose failure would end the process.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owners))


def weights_unusable(directory: Path, error: Exception) -> ModelError:
    return ModelError(
        f"Voxtral in {directory} cannot be loaded: {first_line(error)}.",
        "Download it again, or set brain.voxtral.model to another one.",
    )


def too_little_memory(device: str, memory: float) -> ModelError:
    """Return the error for a model that does not fit on `device`, a GPU with `memory` bytes.

    `memory` is infinite for the CPU.
    """
    if memory < VOXTRAL_MEMORY:
        return ModelError(
            f"Voxtral needs {VOXTRAL_MEMORY / 1e9:g} GB of GPU memory; {device} has "
            f"{memory / 1e9:.1f} GB.",
            'Set brain.name = "embedded", or a server that has it.',
        )
    what_uses_it = "`nvidia-smi` shows what uses it." if memory < math.inf else ""
    return ModelError(f"Too little free memory on {device} for Voxtral.", what_uses_it)


def marker() -> Path:
    """Return the path of the file that exists while the fast path is tried, and after a crash."""
    return user_folders().user_cache_path / "voxtral-fast-path-attempt"


def write_marker() -> None:
    """Create the marker. Raises ModelError if that fails, as crashes would repeat without it."""
    path = marker()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise ModelError(f"{path} cannot be written: {error.strerror}.") from error
