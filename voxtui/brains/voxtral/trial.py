"""Try the fast paths of Voxtral in processes of their own, before the conversation uses them.

A path that crashes, hangs or ruins the device ends only its process. `trial_process` is the other
side of the pipe.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event as Flag
from typing import TypeAlias

from voxtui.brains.voxtral.verdict import FastPath, Result
from voxtui.errors import ModelError
from voxtui.models.cuda import first_gpu

SECONDS = 60.0
"""GPU time of all paths together, without compilation and loading."""

FREE_MEMORY = 3e9
"""Bytes of GPU memory that must be free: 2 GB for the tensors of a process, 0.6 GB for CUDA's own
needs and its graphs, and a reserve, so that no turn beside the trial finds the memory full."""

POLL_SECONDS = 0.05
"""Time after which a process pauses because the user began to talk."""

HANG_SECONDS = 120.0
"""A process that reports nothing for so long hangs, or a busy machine starves it. Compiling the
kernels takes less."""

FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU)
"""Signals that a system or a user sends, and that no fault of a path raises."""

SERVE = (
    "import sys; from multiprocessing.connection import Connection; "
    "from voxtui.brains.voxtral.trial_process import serve; serve(Connection(int(sys.argv[1])))"
)


@dataclass(frozen=True, slots=True)
class Setup:
    """What a process is to try."""

    path: FastPath
    fp8: bool = False
    seconds: float = SECONDS
    """of GPU time"""
    tiny: bool = False
    """a shape for a CPU, which says nothing about a GPU"""


class Signal(Enum):
    PAUSE = auto()
    RESUME = auto()
    ALIVE = auto()
    """the process is at work"""


@dataclass(frozen=True, slots=True)
class Found:
    """The end of a process: its result, and the GPU seconds that it used."""

    result: Result
    seconds: float


@dataclass(frozen=True, slots=True)
class Child:
    """A process that tries one path."""

    pipe: Connection
    kill: Callable[[], object]
    wait: Callable[[], int]
    """end it, and return its exit code"""

    def send(self, message: object) -> None:
        """Send `message`, unless the process has ended. Its last message can still be received."""
        with suppress(OSError):
            self.pipe.send(message)


Start: TypeAlias = "Callable[[], Child]"


def start(serve: str = SERVE) -> Child:
    """Start a process that runs `serve`, with a pipe as its argument. Raises OSError."""
    pipe, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", serve, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            process_group=0,  # so that it gets no Ctrl-C
            env={**os.environ, "PYTHONPATH": _search_path()},
        )
    return Child(pipe, process.kill, process.wait)


def _search_path() -> str:
    """Return where the process finds this package, and what its user put on the path beside it."""
    ours, theirs = str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")
    return os.pathsep.join((ours, theirs)) if theirs else ours


def run_trial(
    paths: Sequence[FastPath],
    *,
    fp8: bool = False,
    busy: Callable[[], bool] = lambda: False,
    stopped: Flag | None = None,
    seconds: float = SECONDS,
    tiny: bool = False,
    start: Start = start,
) -> Iterator[Result]:
    """Try each of `paths` and yield its result; end early, without the rest, once `stopped`.

    While `busy()` is true the processes pause. Paths that do not fit into `seconds` of GPU time are
    yielded as not tried, and so are those for which too little memory is free, and those whose
    process hung, was killed, or never came to its path (see Result.inconclusive). `tiny`: see
    Setup. Blocks; beside a conversation it needs a thread.
    """
    stopped = stopped or Flag()
    for path in paths:
        if seconds <= 0:
            yield Result(path, "not tried", "The GPU time was used up by the other paths.")
            continue
        if not tiny and (free := _free_memory()) < FREE_MEMORY:
            needed = f"It needs {FREE_MEMORY / 1e9:g} GB of GPU memory"
            yield Result(path, "not tried", f"{needed}, and {free / 1e9:.1f} GB are free.")
            continue
        found = _try(Setup(path, fp8, seconds, tiny), busy, stopped, start)
        if found is None:
            return
        seconds -= found.seconds
        yield found.result


def _free_memory() -> float:
    """Return the free bytes of the GPU; infinity if there is no GPU to ask."""
    try:
        return first_gpu().free
    except ModelError:
        return math.inf


def _try(setup: Setup, busy: Callable[[], bool], stopped: Flag, start: Start) -> Found | None:
    """Return what a process found about `setup.path`; None once `stopped`."""
    try:
        child = start()
    except OSError as error:
        why = f"Its process did not start: {error.strerror}."
        return Found(Result(setup.path, "not tried", why), 0.0)
    with _ended(child):
        silent, paused, begun = 0.0, False, False
        try:
            child.send(setup)
            while not stopped.is_set():
                if busy() != paused:
                    paused = not paused
                    child.send(Signal.PAUSE if paused else Signal.RESUME)
                if child.pipe.poll(POLL_SECONDS):
                    message = child.pipe.recv()
                    silent, begun = 0.0, True
                    if isinstance(message, Found):
                        return message
                elif not paused:
                    silent += POLL_SECONDS
                    if silent > HANG_SECONDS:
                        why = f"It reported nothing for {HANG_SECONDS:.0f} s."
                        return _inconclusive(setup.path, why)
        except (EOFError, OSError):
            code = child.wait()
            if not begun or -code in FROM_OUTSIDE:
                return _inconclusive(setup.path, _end(code))
            return Found(Result(setup.path, "failed", _end(code)), 0.0)
    return None


def _inconclusive(path: FastPath, why: str) -> Found:
    return Found(Result(path, "not tried", why, inconclusive=1), 0.0)


def _end(code: int) -> str:
    """Return a sentence for the exit code of a process."""
    if code >= 0:
        return f"Its process ended with code {code}."
    what = "was killed" if -code in FROM_OUTSIDE else "crashed"
    with suppress(ValueError):
        return f"Its process {what} ({signal.Signals(-code).name})."
    return f"Its process {what} (signal {-code})."


@contextmanager
def _ended(child: Child) -> Generator[None]:
    """End the process at the end of the block, whatever it is doing."""
    try:
        yield
    finally:
        child.kill()
        child.wait()
        child.pipe.close()
