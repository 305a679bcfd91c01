"""Keeps what native libraries write to fd 2 from tearing the screen."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Terminal(FileIO):
    """Takes what is written even after its window has been closed.

    Textual's writer would die of the error, and the app would wait for it for ever.
    """

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return memoryview(data).nbytes


@contextmanager
def native_stderr_in(log: Path) -> Generator[None, None, None]:
    """Fd 2 goes to `log`, which starts empty; `sys.stderr` and Textual keep the terminal.

    ALSA, PortAudio and inference runtimes write to fd 2 from C, where Textual draws.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    for stream in (sys.stderr, sys.__stderr__):
        if stream is not None:
            stream.flush()
    python_stderr, first_stderr = sys.stderr, sys.__stderr__
    terminal_fd = os.dup(2)
    log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(log_fd, 2)
    os.close(log_fd)
    buffered = BufferedWriter(Terminal(terminal_fd, "w"))
    terminal = TextIOWrapper(buffered, encoding="utf-8", errors="replace", line_buffering=True)
    sys.stderr = sys.__stderr__ = terminal  # type: ignore[misc]  # Textual's driver takes the latter
    try:
        yield
    finally:
        terminal.flush()
        os.dup2(terminal_fd, 2)
        sys.stderr, sys.__stderr__ = python_stderr, first_stderr  # type: ignore[misc]
        terminal.close()
