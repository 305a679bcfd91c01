"""Patterns of whole sentences, and the form of the words that they match."""

from __future__ import annotations

import re

_OPENING = r"(?:(?:so|and|but|well|ok|okay|hey|hi|hello|vox|please|tell me|then|now|by the way) )*"
_CLOSING = r"(?: (?:vox|then|now|right now|exactly|actually|anyway|please|too))*"


def plain_words(text: str) -> str:
    """Return `text` in lower case, without punctuation, and with `is` for `'s` in a question."""
    text = re.sub(r"\b(what|who|how|where)'s\b", r"\1 is", text.lower().replace("’", "'"))
    return " ".join(re.sub(r"[^\w'\- ]+", " ", text).split())


def sentence(*patterns: str) -> re.Pattern[str]:
    """Compile a pattern of whole sentences, with the words of politeness around them."""
    return re.compile(f"{_OPENING}(?:{'|'.join(patterns)}){_CLOSING}")
