"""Recognise the name by which the user calls the program, in the words that were heard."""

from __future__ import annotations

import re

ATTENTIVE_SECONDS = 8.0
"""After the name alone, an utterance that begins within this time is answered without it."""


def after_name(words: str, name: str) -> str | None:
    """Return what follows `name` in `words`; empty: nothing does. None: they begin otherwise."""
    parts = map(re.escape, re.findall(r"[\w']+", name))
    match = re.match(r"\W*" + r"\W+".join(parts) + r"\b\W*", words, re.IGNORECASE)
    return words[match.end() :] if match else None
