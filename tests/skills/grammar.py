"""Sentences that the rules' own patterns describe: none of them may raise anything."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from re import _constants, _parser  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any

import voxtui.skills.rules
from voxtui.skills.rules import languages

WORDS = [
    "the",
    "pasta",
    "to",
    "call",
    "Anna",
    "5",
    "0",
    "99",
    "half an hour",
    "tomorrow",
    "9999",
    "for",
]
LONGEST_REPEAT = 4


def patterns() -> list[re.Pattern[str]]:
    """Return every pattern of every skill, also those in tuples and dictionaries."""
    found: list[re.Pattern[str]] = []

    def collect(value: object) -> None:
        if isinstance(value, re.Pattern):
            found.append(value)
        elif isinstance(value, tuple | list):
            for one in value:
                collect(one)
        elif isinstance(value, dict):
            collect(list(value.values()))

    for module in iter_modules(voxtui.skills.rules.__path__):
        collect(list(vars(import_module(f"voxtui.skills.rules.{module.name}")).values()))
    for language in languages.LANGUAGES:
        collect(language.forms)
    return found


def sentences(seed: int) -> Iterator[str]:
    """Yield sentences without end, each from a pattern that is drawn at random."""
    draw = random.Random(seed)
    parsed = [_parser.parse(one.pattern, one.flags) for one in patterns()]
    while True:
        text = _text(draw.choice(parsed), draw)
        yield " ".join(text.replace("_", " ").split())


def _text(parsed: Any, draw: random.Random) -> str:
    return "".join(_part(operation, value, draw) for operation, value in parsed)


def _part(operation: Any, value: Any, draw: random.Random) -> str:
    match operation:
        case _constants.LITERAL:
            return chr(value)
        case _constants.BRANCH:
            return _text(draw.choice(value[1]), draw)
        case _constants.SUBPATTERN:
            return _text(value[-1], draw)
        case _constants.MAX_REPEAT | _constants.MIN_REPEAT:
            least, most, inner = value
            if inner[0][0] in (_constants.ANY, _constants.NOT_LITERAL):
                return " ".join(draw.choices(WORDS, k=draw.randint(1, 3)))
            if inner[0] == (_constants.IN, [(_constants.CATEGORY, _constants.CATEGORY_DIGIT)]):
                most = draw.choice([1, 2, 4, 12])
            count = draw.randint(least, max(least, min(most, LONGEST_REPEAT)))
            if most == 12:
                count = 12
            return "".join(_text(inner, draw) for _ in range(count))
        case _constants.IN:
            return _one_of(value, draw)
        case _constants.ANY | _constants.NOT_LITERAL:
            return draw.choice("aeiost ")
        case _:
            return ""  # an assertion or a reference


def _one_of(choices: Any, draw: random.Random) -> str:
    operation, value = draw.choice(choices)
    match operation:
        case _constants.LITERAL:
            return chr(value)
        case _constants.RANGE:
            return chr(draw.randint(*value))
        case _constants.CATEGORY if value is _constants.CATEGORY_DIGIT:
            return draw.choice("0123456789")
        case _constants.CATEGORY if value is _constants.CATEGORY_SPACE:
            return " "
        case _:
            return draw.choice("aeimnorst")
