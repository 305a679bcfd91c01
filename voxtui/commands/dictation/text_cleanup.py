"""Turn text and the output of programs into passages that a voice can read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from voxtui.errors import strip_control_characters

LONGEST_LINE = 4096
"""Characters of a line. A longer line is read in parts."""

WRAPPED = 40
"""Characters of the shortest line that may go on in the next one. A shorter one ends by itself."""

HYPHEN = "\u2010"
"""Man writes it where it divides a word. Other hyphens belong to the word."""

_FORMATTING = re.compile(
    r"[^\n]\x08"  # overstrike: man writes bold and underlined letters so
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles and links
    r"|\x1b[ -/]*[0-~]"
)
_LINE_END = re.compile(r"\r?\n|\r(?!\Z)|[\f\v]")
_FENCE = re.compile(r"(?:`{3,}|~{3,})[\w+-]*\Z")
_BULLET = re.compile(r"[-*+•·]\s+")
_NEW_ITEM = re.compile(r"[-*+•·#>|]|\d{1,2}[.)]\s")
_ENDED = re.compile(r"[.!?:;…][\"')\]]*\Z")

_RULER = re.compile(r"([^\w\s])\1{3,}|_{3,}")
_COLUMN = re.compile(r"\s*[|│]\s+")
_LONG_NUMBER = re.compile(r"\d{16,}")
_OPTION = re.compile(r"(?<![\w-])(--?)(?=[^\W\d])")
_DASHES = {"-": "dash ", "--": "dash dash "}


def passages(pieces: Iterable[str], unwrap: bool = True) -> Iterator[str]:
    """Yield the text of `pieces` without formatting. Joined, each of its lines is a passage.

    `unwrap`: a line that breaks off goes on in the next one, if that is indented alike. A line is
    yielded as soon as it is complete, the joint to the next one later. The work is proportional to
    the text, and at most one line is kept.
    """
    indent: int | None = None
    """the indent of the passage that may go on"""
    joint = ""
    for line in _lines(pieces):
        text = line.strip()
        spoken = readable(text)
        column = len(line) - len(line.lstrip())
        if indent is not None:
            goes_on = spoken and column == indent and not _NEW_ITEM.match(text)
            yield joint if goes_on else ".\n"
            indent = None
        if not spoken:
            continue
        if _ENDED.search(spoken):
            yield f"{spoken}\n"
        elif not unwrap or len(line.rstrip()) < WRAPPED:
            yield f"{spoken}.\n"
        else:
            bullet = _BULLET.match(text)
            indent = column + (bullet.end() if bullet else 0)
            joint = "" if text.endswith((HYPHEN, "-")) else " "
            yield spoken.removesuffix(HYPHEN)
    if indent is not None:
        yield ".\n"


def readable(line: str) -> str:
    """Return `line` with signs as words; empty if nothing in it can be spoken."""
    if _FENCE.match(line):
        return ""
    line = _COLUMN.sub(", ", _RULER.sub(" ", line))
    line = _LONG_NUMBER.sub(lambda number: " ".join(number[0]), line)
    line = _OPTION.sub(lambda dashes: _DASHES[dashes[0]], line).strip()
    return line if any(c.isalnum() for c in line) else ""


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    rest = ""
    for piece in pieces:
        *lines, rest = _LINE_END.split(rest + piece)
        for line in lines:
            yield from _plain(line)
        *parts, rest = _parts(rest)
        for part in parts:
            yield from _plain(part)
    if rest:
        yield from _plain(rest)


def _plain(line: str) -> Iterator[str]:
    yield from _parts(strip_control_characters(_FORMATTING.sub("", line)).expandtabs())


def _parts(line: str) -> Iterator[str]:
    start = 0
    while len(line) - start > LONGEST_LINE:
        space = line.rfind(" ", start + 1, start + LONGEST_LINE)
        end = space if space > start else start + LONGEST_LINE
        yield line[start:end]
        start = end + (space > start)
    yield line[start:]
