"""Sentence forms as data: tables of regular expressions that match a whole sentence.

`{name}` in a form stands for a part of its file, whose groups lose their names there.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from voxtui.skills.rules.spoken import MONTHS, WEEKDAYS

Forms = dict[str, tuple[re.Pattern[str], ...]]
"""The forms of each request, in the order in which they are tried."""

_PART = re.compile(r"\{([a-z_]+)\}")
_GROUP = re.compile(r"\?P<\w+>")


def read_tables(file: str) -> dict[str, Any]:
    """Return the tables of a TOML file of this folder."""
    return tomllib.loads((Path(__file__).parent / file).read_text(encoding="utf-8"))


def expand(form: str, parts: Mapping[str, str]) -> str:
    """Return `form` with the text of each part that it names."""
    return _PART.sub(lambda name: f"(?:{_GROUP.sub('?:', expand(parts[name[1]], parts))})", form)


def compile_forms(
    table: Mapping[str, list[str]], parts: Mapping[str, str], flags: int = re.IGNORECASE
) -> Forms:
    return {
        kind: tuple(re.compile(expand(line, parts), flags) for line in lines)
        for kind, lines in table.items()
    }


def matches(forms: Forms, text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each request whose form is the whole of `text`, and the words of its groups."""
    for kind, patterns in forms.items():
        for pattern in patterns:
            if found := pattern.fullmatch(text):
                yield kind, found.groupdict("")


ENGLISH = read_tables("english.toml")
PARTS: dict[str, str] = ENGLISH["parts"] | {
    "weekdays": "|".join(WEEKDAYS),
    "months": "|".join(MONTHS),
}


def pattern(form: str) -> re.Pattern[str]:
    """Compile a pattern of the English parts, in any case of letters."""
    return re.compile(expand(form, PARTS), re.IGNORECASE)


def english(table: str, **parts: str) -> Forms:
    """Compile one table of english.toml."""
    return compile_forms(ENGLISH[table], PARTS | parts)


def replacements(table: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Compile the table of pairs of a pattern and its replacement."""
    return tuple((pattern(form), text) for form, text in ENGLISH[table]["pairs"])
