"""Count the words that a recogniser got wrong."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import jiwer


def word_errors(texts: Iterable[tuple[str, str]]) -> float | None:
    """Return the word error rate over all pairs of (what was said, what was heard).

    It is the number of inserted, missing and wrong words for each word that was said, so it may
    exceed 1. Case and punctuation do not count. None: nothing was said.
    """
    pairs = [(plain_words(said), plain_words(heard)) for said, heard in texts]
    if not any(said for said, _ in pairs):
        return None
    return jiwer.wer([said for said, _ in pairs], [heard for _, heard in pairs])


def plain_words(text: str) -> str:
    """Return the words of `text` in lower case, with one space between them."""
    kept = (c for c in text.lower() if not unicodedata.category(c).startswith("P"))
    return " ".join("".join(kept).split())
