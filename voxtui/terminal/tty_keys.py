"""Read single keys from the terminal while stdin and stdout belong to a pipe."""

from __future__ import annotations

import os
import select
import termios
import tty
from collections.abc import Callable, Generator
from contextlib import contextmanager

Pressed = Callable[[], bytes]
"""Returns the bytes typed since the last call, without waiting."""


@contextmanager
def terminal_keys() -> Generator[Pressed | None]:
    """Read the keys of the controlling terminal, with its echo off.

    Yields None without a terminal, or in the background, where a process may not read keys. Drops
    unread keys at the end, so that the shell does not get them.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        if os.tcgetpgrp(terminal) != os.getpgrp():
            yield None
            return
        settings = termios.tcgetattr(terminal)
        try:
            tty.setcbreak(terminal)
            yield lambda: _typed(terminal)
        finally:
            termios.tcsetattr(terminal, termios.TCSAFLUSH, settings)
    finally:
        os.close(terminal)


def _typed(terminal: int) -> bytes:
    return os.read(terminal, 1024) if select.select([terminal], [], [], 0)[0] else b""
