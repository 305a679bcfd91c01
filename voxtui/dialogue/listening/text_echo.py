"""Recognise words that are an echo of our own speech."""

from __future__ import annotations

import re

SURE_WORDS = 3
"""Minimum number of words of an echo. Fewer may be the user's choice of what was offered
("London"). An echo that cuts off an answer is the beginning of it."""

CUT_WORDS = 4
"""Minimum number of words of an echo whose first and last word may be incomplete."""


def is_echo(words: str, spoken: str) -> bool:
    """Return True if `spoken` contains `words` in this order and without a gap."""
    heard, ours = _words(words), _words(spoken)
    if len(heard) < SURE_WORDS:
        return bool(heard) and ours[: len(heard)] == heard
    if len(heard) >= CUT_WORDS:
        heard = heard[1:-1]
    starts = range(len(ours) - len(heard) + 1)
    return any(ours[at : at + len(heard)] == heard for at in starts)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower().replace("'", "").replace("’", ""))
