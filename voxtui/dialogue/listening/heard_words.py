"""Compare recognised words with the name of the program, and with its own latest words."""

from __future__ import annotations

import re

ATTENTIVE_SECONDS = 8.0
"""Time after the name alone in which an utterance needs no name."""

SURE_WORDS = 3
"""Minimum number of words of an echo. Fewer may be the user's choice of what was offered
("London"). An echo that cuts off an answer is the beginning of it."""

CUT_WORDS = 4
"""Minimum number of words of an echo whose first and last word may be incomplete."""


def after_name(words: str, name: str, anywhere: bool = False) -> str | None:
    """Return the words after `name`, which may be empty; None if `words` begin otherwise.

    With `anywhere`, words may stand before the name.
    """
    parts = map(re.escape, re.findall(r"[\w']+", name))
    find = re.search if anywhere else re.match
    match = find(r"\W*" + r"\W+".join(parts) + r"\b\W*", words, re.IGNORECASE)
    return words[match.end() :] if match else None


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
