"""Convert units, exactly. A library takes longer to import than voxtui takes to answer
(docs/decisions), and a voice needs only the units that people say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from voxtui.skills.intents import Fact, Question
from voxtui.skills.normalise import figure


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of one dimension. A value in it is `value * factor + offset` in the base unit."""

    symbol: str
    dimension: str
    factor: Fraction
    one: str
    many: str
    offset: Fraction = Fraction(0)


ABSOLUTE_ZERO = Fraction("-273.15")


def _table() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    file = Path(__file__).with_suffix(".txt")
    for row in file.read_text(encoding="utf-8").splitlines()[1:]:
        dimension, symbol, factor, *names = (part.replace("_", " ") for part in row.split())
        unit = Unit(symbol, dimension, Fraction(factor), names[0], names[1])
        units.update({name.lower(): unit for name in names})
    for symbol, factor, offset, *names in (
        ("C", Fraction(1), -ABSOLUTE_ZERO, "Celsius", "centigrade", "c"),
        ("F", Fraction(5, 9), Fraction("459.67") * 5 / 9, "Fahrenheit", "f"),
    ):
        one, many = f"degree {names[0]}", f"degrees {names[0]}"
        unit = Unit(symbol, "temperature", factor, one, many, offset)
        for name in map(str.lower, names):
            units.update({name: unit, f"degrees {name}": unit, f"degree {name}": unit})
    return units


_UNITS = _table()
_NAMES = "|".join(re.escape(name) for name in sorted(_UNITS, key=len, reverse=True))

_DIGITS = r"\d+(?:\.\d+)?"
_N = rf"(?:(?:minus |negative |- )?{_DIGITS}(?: and a half)?|half an?|a half an?|an?)"
_QUANTITY = rf"{_N} (?:{_NAMES})(?:(?: and)? {_DIGITS} (?:{_NAMES}))?"

_CONVERT = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:(?:what is|what are|what would|how much is|how much are|convert|change|turn|what) )?"
        rf"(?P<from>{_QUANTITY}) (?:be )?(?:in|to|into|as) (?P<to>{_NAMES})(?: is| are)?",
        rf"how many (?P<to>{_NAMES})(?: (?:is|are|there|in|make|makes|equal|does|fit|into))+"
        rf" (?P<from>{_QUANTITY})(?: (?:have|contain))?",
        rf"(?P<from>{_QUANTITY}) (?:is|are) (?:equal to )?how many (?P<to>{_NAMES})",
    )
)
_RATE = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:how (?:do|can|would|could) (?:you|i|we) )?(?:convert|change) (?P<from>{_NAMES})"
        rf" (?:to|into) (?P<to>{_NAMES})",
        rf"what is the conversion (?:of|for|from|between) (?P<from>{_NAMES}) (?:to|and|into)"
        rf" (?P<to>{_NAMES})",
        rf"how (?:are|is) (?P<from>{_NAMES}) converted (?:to|into) (?P<to>{_NAMES})",
    )
)
_PART = re.compile(rf"(?P<n>{_N}) (?P<unit>{_NAMES})(?! ?(?:per|/))")


def understand(text: str) -> Fact | Question | None:
    """Return a converted quantity; None if the text does not ask for one."""
    low = text.lower()
    if rate := next(filter(None, (one.fullmatch(low) for one in _RATE)), None):
        unit = _UNITS[rate["from"]]
        if unit.offset or unit == _UNITS[rate["to"]]:
            return None
        return _converted([(Fraction(1), unit)], _UNITS[rate["to"]])
    found = next(filter(None, (one.fullmatch(low) for one in _CONVERT)), None)
    if found is None:
        return None
    parts = [(_number(part["n"]), _UNITS[part["unit"]]) for part in _PART.finditer(found["from"])]
    if len(parts) == 2:
        (value, first), (_, second) = parts
        if value < 0 or first.offset or second.factor >= first.factor:
            return None  # `minus 5 feet 3 inches`, and `5 inches 3 feet`
    return _converted(parts, _UNITS[found["to"]]) if parts else None


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
    given = " ".join(f"{_said(n)[0]} {_named(n, unit)}" for n, unit in parts)
    said, exact = _said(value)
    verb = "is" if len(parts) == 1 and parts[0][0] == 1 else "are"
    about = "" if exact else "about "
    sentence = f"{given} {verb} {about}{said} {_named(value, target)}."
    return Fact("unit", (float(value), target.symbol), sentence)


def _said(value: Fraction) -> tuple[str, bool]:
    said, exact = figure(abs(value))
    return f"minus {said}" if value < 0 else said, exact


def _named(value: Fraction, unit: Unit) -> str:
    return unit.one if value == 1 else unit.many


def _number(text: str) -> Fraction:
    if text.startswith(("half", "a half")):
        return Fraction(1, 2)
    digits = re.search(_DIGITS, text)
    if digits is None:
        return Fraction(1)
    value = Fraction(digits[0]) + (Fraction(1, 2) if text.endswith("and a half") else 0)
    return -value if text.startswith(("minus ", "negative ", "- ")) else value
