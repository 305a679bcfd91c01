"""What this terminal can do, as it says itself."""

from __future__ import annotations

import curses
import os
import re
import select
import shutil
import subprocess
import sys
import termios
import time
import tty
from dataclasses import dataclass

EVENT_TYPES = 0b10
"""The kitty keyboard protocol's flag for "say whether a key went down, repeats or came up"."""

MOUSE_MODE = 1006

QUESTIONS = f"\x1b[>{EVENT_TYPES}u\x1b[?u\x1b[<u\x1b[?{MOUSE_MODE}$p\x1b[5n"
"""Take the flag, ask what was granted, give it back; ask for the mouse; and ask for the status,
which every terminal answers, and answers last."""

STATUS = b"\x1b[0n"

ANSWER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Answers:
    """None where the terminal does not say."""

    releases: bool
    """whether it reports when a key comes up"""
    mouse: bool | None


def shows_screens() -> bool:
    """Whether TERM names a terminal in which a program can draw."""
    return os.environ.get("TERM", "") not in ("", "dumb")


def ask_terminal() -> Answers | None:
    """Ask the terminal that is read from and written to; None where there is none that answers."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    said = _converse(sys.stdin.fileno(), sys.stdout.fileno(), QUESTIONS.encode())
    return understand(said) if said.endswith(STATUS) else None


def understand(said: bytes) -> Answers:
    """What the answers to QUESTIONS mean (kitty keyboard protocol, and DECRQM for the mouse)."""
    granted = re.search(rb"\x1b\[\?(\d+)u", said)
    mouse = re.search(rb"\x1b\[\?%d;(\d)\$y" % MOUSE_MODE, said)
    return Answers(
        releases=granted is not None and bool(int(granted[1]) & EVENT_TYPES),
        mouse=mouse[1] in b"12" if mouse else None,
    )


def _converse(reading: int, writing: int, questions: bytes) -> bytes:
    """What comes back, up to the status; nothing of it is echoed or left for the shell."""
    before = termios.tcgetattr(reading)
    said = b""
    deadline = time.monotonic() + ANSWER_SECONDS
    try:
        tty.setcbreak(reading)
        os.write(writing, questions)
        while not said.endswith(STATUS) and (left := deadline - time.monotonic()) > 0:
            if select.select([reading], [], [], left)[0]:
                said += os.read(reading, 1024)
    finally:
        termios.tcsetattr(reading, termios.TCSAFLUSH, before)
    return said


def colours() -> int:
    """How many this terminal shows."""
    if os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        return 1 << 24
    return max(2, _capability_number("colors"))


def repeat_rate() -> tuple[float, float] | None:
    """(seconds until a held key repeats, repeats a second), where an X display of ours says so."""
    if not os.environ.get("DISPLAY") or os.environ.get("SSH_CONNECTION"):
        return None
    if (xset := shutil.which("xset")) is None:
        return None
    try:
        said = subprocess.run(
            [xset, "q"], capture_output=True, text=True, timeout=2, check=False
        ).stdout
    except subprocess.TimeoutExpired:
        return None
    found = re.search(r"auto repeat delay:\s+(\d+)\s+repeat rate:\s+(\d+)", said)
    return (int(found[1]) / 1000, float(found[2])) if found else None


def _capability_number(name: str) -> int:
    try:
        curses.setupterm(fd=1)
        return curses.tigetnum(name)
    except curses.error:  # TERM names nothing that is known
        return 0
