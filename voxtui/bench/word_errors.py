"""Count the words that a recogniser got wrong."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence


def word_errors(texts: Iterable[tuple[str, str]]) -> float | None:
    """Return the word error rate over all pairs of (what was said, what was heard).

    It is the number of inserted, missing and wrong words for each word that was said, so it may
    exceed 1. Case and punctuation do not count. None: nothing was said.
    """
    errors = said = 0
    for reference, heard in texts:
        words = plain_words(reference)
        said += len(words)
        errors += _distance(words, plain_words(heard))
    return errors / said if said else None


def plain_words(text: str) -> list[str]:
    """Return the words of `text` in lower case, without punctuation."""
    kept = (c for c in text.lower() if not unicodedata.category(c).startswith("P"))
    return "".join(kept).split()


def _distance(reference: Sequence[str], heard: Sequence[str]) -> int:
    """Return the edit distance in words (Levenshtein, row by row)."""
    row = list(range(len(heard) + 1))
    for word in reference:
        diagonal, row[0] = row[0], row[0] + 1
        for n, other in enumerate(heard, 1):
            best = min(row[n] + 1, row[n - 1] + 1, diagonal + (word != other))
            diagonal, row[n] = row[n], best
    return row[-1]
