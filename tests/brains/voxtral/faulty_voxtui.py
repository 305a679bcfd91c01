"""voxtui on a machine whose GPU fails when the fast path is tried.

    python -m tests.brains.voxtral.faulty_voxtui FAULT CACHE_FOLDER [ARGUMENTS OF VOXTUI]

`lost`: a kernel writes where it must not, and each later use of the device fails. `hangs`: a kernel
never ends. The fault is at the seam that records graphs; the rest of the program is as it is.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brains.voxtral.taped import TapeRecorder, tape_instead_of_gpu
from voxtui.brains.voxtral import brain, fast_path
from voxtui.brains.voxtral.generate import ReplyGenerator
from voxtui.cli import main

ILLEGAL = "CUDA error: an illegal memory access was encountered"


class Lost(TapeRecorder):
    def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
        ReplyGenerator.forget = failing  # type: ignore[method-assign]
        raise RuntimeError(ILLEGAL)


class Hangs(TapeRecorder):
    def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
        threading.Event().wait()
        raise AssertionError


def failing(self: ReplyGenerator) -> None:
    raise RuntimeError(ILLEGAL)


if __name__ == "__main__":
    fault, cache = sys.argv[1:3]
    del sys.argv[1:3]
    patch = pytest.MonkeyPatch()
    tape_instead_of_gpu(patch, Path(cache), {"lost": Lost, "hangs": Hangs}[fault])
    patch.setattr(fast_path, "HANG_SECONDS", 1.0)
    patch.setattr(brain, "REHEARSAL_SECONDS", 0.0)
    main()
