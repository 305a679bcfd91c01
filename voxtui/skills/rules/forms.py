"""Sentence forms as data: tables of regular expressions that match a whole sentence."""

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


def read_tables(file: str | Path) -> dict[str, Any]:
    """Read a TOML file, by default of this folder."""
    return tomllib.loads((Path(__file__).parent / file).read_text(encoding="utf-8"))


def expand(form: str, parts: Mapping[str, str]) -> str:
    """Return `form` with each `{part}` replaced by its pattern, whose groups lose their names."""
    return _PART.sub(lambda name: f"(?:{_GROUP.sub('?:', expand(parts[name[1]], parts))})", form)


def compile_forms(
    table: Mapping[str, list[str]], parts: Mapping[str, str], flags: int = re.IGNORECASE
) -> Forms:
    forms = {kind: [expand(line, parts) for line in lines] for kind, lines in table.items()}
    return {kind: tuple(re.compile(line, flags) for line in of) for kind, of in forms.items()}


def matches(forms: Forms, text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each request with a form that matches all of `text`, and the words of its groups."""
    for kind, patterns in forms.items():
        for pattern in patterns:
            if found := pattern.fullmatch(text):
                yield kind, found.groupdict("")


ENGLISH = read_tables("english.toml")
PARTS: dict[str, str] = ENGLISH["parts"]
PARTS.update(weekdays="|".join(WEEKDAYS), months="|".join(MONTHS))


def pattern(form: str, **parts: str) -> re.Pattern[str]:
    """Compile a pattern of the English parts, in any case of letters."""
    return re.compile(expand(form, PARTS | parts), re.IGNORECASE)


def english(table: str, **parts: str) -> Forms:
    return compile_forms(ENGLISH[table], PARTS | parts)


def replacements(table: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((pattern(form), text) for form, text in ENGLISH[table]["pairs"])
