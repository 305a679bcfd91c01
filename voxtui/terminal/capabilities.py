"""Query the capabilities of this terminal."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty

EVENT_TYPES = 0b10
"""Flag of the kitty keyboard protocol: report whether a key was pressed, repeated or released.

https://sw.kovidgoyal.net/kitty/keyboard-protocol/"""

QUERY = f"\x1b[>{EVENT_TYPES}u\x1b[?u\x1b[<u\x1b[5n"
"""Control sequences that set the flag, query the flags, reset the flag, and query the status.

Every terminal answers the status query, and answers it last."""

STATUS = b"\x1b[0n"

ANSWER_SECONDS = 1.0


def can_show_screen() -> bool:
    return os.environ.get("TERM", "") not in ("", "dumb")


def reports_key_release() -> bool | None:
    """Ask the terminal of stdin and stdout; return None if there is none, or no answer."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    answer = _query(sys.stdin.fileno(), sys.stdout.fileno(), QUERY.encode())
    return grants_release(answer) if answer.endswith(STATUS) else None


def grants_release(answer: bytes) -> bool:
    flags = re.search(rb"\x1b\[\?(\d+)u", answer)
    return flags is not None and bool(int(flags[1]) & EVENT_TYPES)


def _query(read_fd: int, write_fd: int, query: bytes) -> bytes:
    """Return the answer up to the status. The terminal does not echo it."""
    settings = termios.tcgetattr(read_fd)
    answer = b""
    deadline = time.monotonic() + ANSWER_SECONDS
    try:
        tty.setcbreak(read_fd)
        os.write(write_fd, query)
        while not answer.endswith(STATUS) and (left := deadline - time.monotonic()) > 0:
            if select.select([read_fd], [], [], left)[0]:
                answer += os.read(read_fd, 1024)
    finally:
        termios.tcsetattr(read_fd, termios.TCSAFLUSH, settings)
    return answer
