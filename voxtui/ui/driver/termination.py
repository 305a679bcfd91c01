"""End the program on SIGINT, SIGTERM and SIGHUP, even while the event loop is busy."""

from __future__ import annotations

import _thread
import asyncio
import errno
import os
import signal
import termios
import time
from collections.abc import Callable
from contextlib import suppress

from voxtui.storage.temporary_folders import remove_temporary_folders

EXIT_CODE = 130
"""The exit code after a signal, as without the screen."""

PATIENCE_SECONDS = 1.0
"""Maximum time for an orderly end. Then the process ends, and the guard restores the terminal."""


def exit_on_signals(leave: Callable[[], object]) -> None:
    """From now on, call `leave` on the running loop after a signal. Main thread.

    Calls it at once if the terminal is already closed, because that signal may have been ignored.
    The signals end the program even if it was started to ignore them, as by `nohup`: without its
    terminal nothing else could end it, and its microphone is open. Uses `signal.signal`, because
    the handlers of asyncio wait for the loop.
    """
    loop = asyncio.get_running_loop()

    def obey(*_: object) -> None:
        # Not a threading.Thread: starting one takes a lock that this thread may hold already.
        _thread.start_new_thread(_end_after_patience, ())
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(leave)

    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, obey)
    if _terminal_is_closed():
        obey()


def _terminal_is_closed() -> bool:
    """Return True if standard input is a terminal whose window was closed."""
    try:
        termios.tcgetattr(0)
    except termios.error as error:
        return error.args[0] == errno.EIO
    return False


def _end_after_patience() -> None:
    time.sleep(PATIENCE_SECONDS)  # an Event takes a lock that the interrupted code may hold
    remove_temporary_folders()
    os._exit(EXIT_CODE)
