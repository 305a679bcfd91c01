"""Keep what native libraries write to fd 2 away from the screen."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from voxtui.settings.files import open_regular

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class LenientFile(FileIO):
    """Drops what cannot be written, for example to a closed window (EIO) or a full disk (ENOSPC).

    An OSError would end Textual's writer thread, and the app would wait for it forever. It would
    also change the exit code of a command that succeeded.
    """

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def lenient_writer(fd: int, encoding: str = "utf-8", closefd: bool = True) -> TextIOWrapper:
    """Return a text stream on `fd` that never raises and is flushed at each line end."""
    buffered = BufferedWriter(LenientFile(fd, "w", closefd=closefd))
    return TextIOWrapper(buffered, encoding=encoding, errors="replace", line_buffering=True)


def native_log() -> Path:
    from voxtui.settings.paths import user_folders

    return user_folders().user_state_path / "native.log"


@contextmanager
def native_stderr_in(log: Path) -> Generator[None]:
    """Redirect fd 2 to `log`, emptied first; `sys.stderr` and Textual keep the terminal.

    ALSA, PortAudio and inference runtimes write to fd 2 from C, onto Textual's screen. Their output
    is dropped if `log` cannot be opened as our own file.
    """
    for stream in (sys.stderr, sys.__stderr__):
        if stream is not None:
            stream.flush()
    python_stderr, first_stderr = sys.stderr, sys.__stderr__
    terminal_fd = os.dup(2)
    log_fd = _open_log(log)
    os.dup2(log_fd, 2)
    os.close(log_fd)
    terminal = lenient_writer(terminal_fd)
    sys.stderr = sys.__stderr__ = terminal  # type: ignore[misc]  # Textual's driver uses the latter
    try:
        yield
    finally:
        terminal.flush()
        os.dup2(terminal_fd, 2)
        sys.stderr, sys.__stderr__ = python_stderr, first_stderr  # type: ignore[misc]
        terminal.close()


def _open_log(log: Path) -> int:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        found = open_regular(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.fchmod(found, 0o600)  # an older voxtui created it with the umask's mode
        os.truncate(found, 0)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
    return found
