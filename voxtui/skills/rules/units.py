"""Convert units, exactly. A library takes longer to import than voxtui takes to answer
(docs/decisions), and a voice needs only the units that people say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from voxtui.skills.rules.forms import PARTS, english, expand, matches, pattern
from voxtui.skills.rules.intents import Fact, Question
from voxtui.skills.rules.spoken import figure


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of one dimension. A value in it is `value * factor + offset` in the base unit."""

    symbol: str
    dimension: str
    factor: Fraction
    one: str
    many: str
    offset: Fraction = Fraction(0)


def _table() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    file = Path(__file__).with_suffix(".txt")
    for row in file.read_text(encoding="utf-8").splitlines()[1:]:
        dimension, symbol, factor, *names = (part.replace("_", " ") for part in row.split())
        scale, _, offset = factor.partition("+")
        unit = Unit(symbol, dimension, Fraction(scale), names[0], names[1], Fraction(offset or 0))
        units.update({name.lower(): unit for name in names})
    return units


_UNITS = _table()
_NAMES = "|".join(re.escape(name) for name in sorted(_UNITS, key=len, reverse=True))

_FORMS = english("units", name=_NAMES)
_PART = re.compile(
    expand(r"(?P<n>{amount}) (?P<unit>{name})(?! ?(?:per|/))", PARTS | {"name": _NAMES})
)
_DIGITS = pattern("{number}")


def understand(text: str) -> Fact | Question | None:
    """Return a converted quantity; None if the text does not ask for one."""
    low = text.lower()
    for kind, words in matches(_FORMS, low):
        target, quantity = _UNITS[words["to"]], words["from"]
        if kind == "rate":
            quantity = f"1 {quantity}"
        parts = [(_number(one["n"]), _UNITS[one["unit"]]) for one in _PART.finditer(quantity)]
        if kind == "rate" and (parts[0][1].offset or parts[0][1] == target):
            return None
        if len(parts) == 2:
            (value, first), (_, second) = parts
            if value < 0 or first.offset or second.factor >= first.factor:
                return None  # `minus 5 feet 3 inches`, and `5 inches 3 feet`
        return _converted(parts, target) if parts else None
    return None


def _converted(parts: list[tuple[Fraction, Unit]], target: Unit) -> Fact | Question | None:
    source = parts[0][1]
    if {source.dimension, target.dimension} == {"volume", "mass"}:
        ounce = _UNITS["fluid ounce"]  # an ounce of a cup is one of volume
        if target.symbol == "oz":
            target = ounce
        elif source.symbol == "oz" and len(parts) == 1:
            parts, source = [(parts[0][0], ounce)], ounce
    if any(unit.dimension != source.dimension for _, unit in parts):
        return None
    if source.dimension != target.dimension:
        a, b = source.many, target.many
        return Question(f"{a[0].upper()}{a[1:]} cannot be converted to {b}.")
    base = sum((value * unit.factor + unit.offset for value, unit in parts), Fraction(0))
    if source.offset and base < 0:
        return Question("Nothing is colder than minus 273.15 degrees Celsius.")
    value = (base - target.offset) / target.factor
    given = " ".join(f"{figure(n)[0]} {_named(n, unit)}" for n, unit in parts)
    said, exact = figure(value)
    verb = "is" if len(parts) == 1 and parts[0][0] == 1 else "are"
    about = "" if exact else "about "
    sentence = f"{given} {verb} {about}{said} {_named(value, target)}."
    return Fact("unit", (float(value), target.symbol), sentence)


def _named(value: Fraction, unit: Unit) -> str:
    return unit.one if value == 1 else unit.many


def _number(text: str) -> Fraction:
    if text.startswith(("half", "a half")):
        return Fraction(1, 2)
    digits = _DIGITS.search(text)
    if digits is None:
        return Fraction(1)
    value = Fraction(digits[0]) + (Fraction(1, 2) if text.endswith("and a half") else 0)
    return -value if text.startswith(("minus ", "negative ", "- ")) else value
