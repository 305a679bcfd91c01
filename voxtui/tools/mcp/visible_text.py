"""Remove from other people's text what a person cannot see."""

from __future__ import annotations

import re
import unicodedata

_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))

_VARIATIONS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Matches variation selectors: 256 of them can spell any text."""


def visible(text: str) -> str:
    """Return `text` without control, format and tag characters, which may hide orders."""
    return "".join(
        letter for letter in _VARIATIONS.sub("", text)
        if letter in "\n\t" or unicodedata.category(letter) not in _INVISIBLE
    )  # fmt: skip


def visible_line(text: str) -> str:
    """Return the visible part of `text` on one line, so that it cannot fake another line."""
    return " ".join(visible(text).split())
