"""The line that tells the brain when the user speaks."""

from __future__ import annotations

from datetime import datetime

from voxtui.dialogue.protocols import Past


def clock_line(now: datetime, past: Past) -> str:
    """Return the line that stands before the user's words, and stays with them.

    It has the date only if no past turn of this day has it, because each digit is a token.
    """
    date = f"{now:%A}, {now.day} {now:%B} {now.year}"
    if any(date in turn.clock for turn in past):
        return f"({now:%H:%M})"
    return f"(It is {date}, {now:%H:%M}.)"
