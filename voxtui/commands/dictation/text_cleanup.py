"""Turn text and programs' output into passages that a voice can read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from voxtui.errors import strip_control_characters

LONGEST_LINE = 4096
"""Maximum characters of a line. A longer line is read in parts."""

WRAPPED = 40
"""Minimum characters of a line that may continue in the next one."""

HYPHEN = "\u2010"
"""The hyphen that man prints where it divides a word. Other hyphens belong to the word."""

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
    """Yield the text of `pieces` without formatting. Each line of the result is a passage.

    With `unwrap`, a line that breaks off continues in the next one of equal indentation. A line is
    yielded as soon as it is complete, and the joint to the next one later. The work is proportional
    to the text, and at most one line is held in memory.
    """
    indent: int | None = None
    """the indentation of a passage that may continue"""
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
    """Return `line` with signs as words; empty if it has nothing to speak."""
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
