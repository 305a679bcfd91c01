"""Recognise the name by which the user calls the program, at the beginning of the words."""

from __future__ import annotations

import re

ATTENTIVE_SECONDS = 8.0
"""Time after the name alone in which an utterance needs no name."""


def after_name(words: str, name: str, anywhere: bool = False) -> str | None:
    """Return the words after `name`, which may be empty; None if `words` begin otherwise.

    With `anywhere`, words may stand before the name.
    """
    parts = map(re.escape, re.findall(r"[\w']+", name))
    find = re.search if anywhere else re.match
    match = find(r"\W*" + r"\W+".join(parts) + r"\b\W*", words, re.IGNORECASE)
    return words[match.end() :] if match else None
