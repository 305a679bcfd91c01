"""Convert everyday units exactly (docs/decisions says why without a library)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from voxtui.skills.rules.forms import english, matches, pattern
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

    def of(self, value: Fraction) -> tuple[str, bool]:
        said, exact = figure(value)
        return f"{said} {self.one if value == 1 else self.many}", exact


def _table() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for row in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()[1:]:
        dimension, symbol, factor, *names = (part.replace("_", " ") for part in row.split())
        scale, _, offset = factor.partition("+")
        unit = Unit(symbol, dimension, Fraction(scale), names[0], names[1], Fraction(offset or 0))
        units.update({name.lower(): unit for name in names})
    return units


_UNITS = _table()
_NAMES = "|".join(re.escape(name) for name in sorted(_UNITS, key=len, reverse=True))

_FORMS, _DIGITS = english("units", name=_NAMES), pattern("{number}")
_PART = pattern(r"(?P<n>{amount}) (?P<unit>{name})(?! ?(?:per|/))", name=_NAMES)


def understand(text: str) -> Fact | Question | None:
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
    quantity = " ".join(unit.of(n)[0] for n, unit in parts)
    said, exact = target.of(value)
    verb = "is" if len(parts) == 1 and parts[0][0] == 1 else "are"
    sentence = f"{quantity[0].upper()}{quantity[1:]} {verb} {'' if exact else 'about '}{said}."
    return Fact("unit", (float(value), target.symbol), sentence)


def _number(text: str) -> Fraction:
    if text.startswith(("half", "a half")):
        return Fraction(1, 2)
    digits = _DIGITS.search(text)
    value = Fraction(digits[0] if digits else 1) + Fraction(text.endswith("and a half"), 2)
    return -value if text.startswith(("minus ", "negative ", "- ")) else value
