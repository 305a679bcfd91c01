"""Cut streamed text into clauses, and make them speakable."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


SHORTEST_FIRST_CLAUSE = 10
"""Characters after which the first clause may end at a comma: its length is latency."""

LONGEST_CLAUSE = 240
"""Characters after which any clause ends at a space: no voice waits for a missing full stop."""

SHORTEST_SPOKEN = 2
"""Characters of the shortest reply that is spoken."""

_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Prof|Jr|Sr|vs|etc|approx|No|e\.g|i\.e|a\.m|p\.m|U\.S)|\b[A-Z]|(?:^|\s)\d{1,2})\.$"
)
"""A full stop after these ends no sentence; `1.` alone is a list marker."""

_PHRASE_START = re.compile(
    r"\s(?=(?:because|but|which|where|while|although|since|and|or|so"
    r"|is|are|was|were|in|on|at|to|by|for|from|with)\s)"
)
"""Where a speaker may breathe without a comma: before a conjunction, a preposition, a verb."""

SHORTEST_PHRASE = 4
"""Words the first clause has at least if it ends without punctuation."""

_SENTENCE_END = re.compile(r"[.!?…]+[\"')\]*_]*(?=\s)|\n+")
_FULL_STOP = re.compile(r"(?:^|\s)(?!www\.)[^\s\d./:@]*[^\W\d]{3}[.!?…]$")
"""Of a word: in `100.5`, or an address, more follows."""

_CLAUSE_END = re.compile(r"[,;:–—]+[\"')\]*_]*(?=\s)|(?<!\d)\s[–—-]+(?=\s)")
_FENCE = re.compile(r"^[ \t]*(?:```(?!.*`)|~~~)", re.MULTILINE)
"""Begins a block of code, or ends it."""

NOT_A_LIST = re.compile(r"^(\s*(?!1[.)])\d+)(?=[.)]\s)")
"""A number that is the answer: a list would begin with 1."""

_SIGNS = {
    "-": "minus", "−": "minus", "*": "times", "/": "divided by", "≈": "about", "≤": "at most",
    "≥": "at least", "√": "the square root of", "→": "to", "#": "sharp",
}  # fmt: skip
_SIGN = re.compile(r"[−≈≤≥√→]|(?<=\d )[-*/](?= \d)|(?<=\b[A-G])#")
"""What voices leave out, and so say something else."""


def clauses(texts: Iterator[str]) -> Generator[str, None, None]:
    """Cut streamed text into speakable clauses; joined, they are the text.

    The first may end at a comma or a phrase, for speed; later ones are whole
    sentences, for prosody. The first is let go at its full stop, later ones once the space after
    it shows that it was one. A block of code is one clause.
    """
    buffer, first = "", True
    for text in texts:
        buffer += text
        while (end := _clause_end(buffer, first)) is not None:
            yield buffer[:end]
            buffer, first = buffer[end:], False
    if buffer.strip():
        yield buffer


def _clause_end(text: str, first: bool) -> int | None:
    for found in _SENTENCE_END.finditer(text):
        head = text[: found.end()]
        in_code = len(_FENCE.findall(head)) % 2
        ended = not in_code and not _ABBREVIATION.search(head.rstrip("\n"))
        if len(head.strip()) >= SHORTEST_SPOKEN and ended:
            return found.end()
    if _FENCE.search(text):
        return None
    if first:
        for found in _CLAUSE_END.finditer(text):
            if len(text[: found.end()].strip()) >= SHORTEST_FIRST_CLAUSE:
                return found.end()
        for found in _PHRASE_START.finditer(text):
            if len(text[: found.start()].split()) >= SHORTEST_PHRASE:
                return found.start()
        if _FULL_STOP.search(text) and not _ABBREVIATION.search(text):
            return len(text)
    if len(text) > LONGEST_CLAUSE and (space := text.rfind(" ", 1, LONGEST_CLAUSE)) > 0:
        return space
    return None


def speakable(text: str) -> str:
    """`text` as it should be read aloud: no Markdown, no code, no bare URLs, no list markers."""
    plain: list[str] = []
    blocks = _markdown().parse(text.strip())
    for block, after in zip_longest(blocks, blocks[1:]):
        plain.append("code" if block.type in ("fence", "code_block") else " ")
        if block.type == "list_item_open" and after is not None and after.nesting < 0:
            plain.append(f"{block.info}{block.markup}")  # an answer such as `42.` marks no list
        for piece in block.children or ():
            if piece.type in ("text", "code_inline"):
                plain.append(piece.content)
            elif piece.type in ("softbreak", "hardbreak"):
                plain.append(" ")
    spoken = re.sub(r"https?://\S+", "link", "".join(plain))
    spoken = _SIGN.sub(lambda sign: f" {_SIGNS[sign[0]]} ", spoken)
    return " ".join(spoken.split()) if any(c.isalnum() for c in spoken) else ""


def unfinished(text: str) -> str:
    """`text` with a comma where it breaks off, so that the voice does not sound as if it ended."""
    return f"{text}," if text and (text[-1].isalnum() or text[-1] == "'") else text


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).disable("reference")  # `[Vox]: Yes` is none
