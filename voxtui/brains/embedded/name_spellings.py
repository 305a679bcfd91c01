"""How the recogniser spells the name to call voxtui by, which it does not know as a word."""

from __future__ import annotations

import re

SPELLINGS = {
    "hey vox": ("hey vox", "hey box", "hayvox", "avox", "hey fox", "haybox", "hay box"),
}
"""By name, what stood in its place when 29 voices said it, without the judging ones, and is no
usual beginning of a sentence. `python -m benchmarks.name spellings` prints them. Another name is
recognised as it is written."""

ALONE = {
    "hey vox": ("he walks", "a box", "hey marks", "he likes"),
}
"""Spellings that also begin sentences. They are the name if nothing follows them."""


def with_name(words: str, name: str) -> str:
    """Return `words` with `name` for a spelling of it at their beginning."""
    known = name.lower()
    for spelling in SPELLINGS.get(known, ()):
        pattern = r"\W+".join(map(re.escape, spelling.split()))
        if match := re.match(rf"\W*{pattern}(?!\w|')", words, re.IGNORECASE):
            return name + words[match.end() :]
    alone = " ".join(re.findall(r"[\w']+", words.lower()))
    return name if alone in ALONE.get(known, ()) else words
