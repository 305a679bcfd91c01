"""Convert units. The table is our own, because a library takes longer to import than voxtui takes
to answer. A voice needs only the units that people say."""

from __future__ import annotations

import re
from dataclasses import dataclass

from voxtui.skills.meaning import Fact, Question
from voxtui.skills.words import figure


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of one dimension. A value in it is `value * factor + offset` in the base unit."""

    symbol: str
    dimension: str
    factor: float
    one: str
    many: str
    offset: float = 0.0


def _table() -> dict[str, Unit]:
    rows = (
        """
length    mm     0.001        millimetre  millimetres  millimeter millimeters mm
length    cm     0.01         centimetre  centimetres  centimeter centimeters cm
length    m      1            metre       metres       meter meters m
length    km     1000         kilometre   kilometres   kilometer kilometers km
length    in     0.0254       inch        inches
length    ft     0.3048       foot        feet         ft
length    yd     0.9144       yard        yards
length    mi     1609.344     mile        miles        mi
mass      g      1            gram        grams        gramme grammes g
mass      kg     1000         kilogram    kilograms    kilo kilos kg
mass      oz     28.349523125 ounce       ounces       oz
mass      lb     453.59237    pound       pounds       lb lbs
mass      st     6350.29318   stone       stone        stones
mass      t      1000000      tonne       tonnes
volume    ml     0.001        millilitre  millilitres  milliliter milliliters ml
volume    cl     0.01         centilitre  centilitres  centiliter centiliters cl
volume    dl     0.1          decilitre   decilitres   deciliter deciliters dl
volume    l      1            litre       litres       liter liters l
volume    teaspoon   0.00492892159375 US_teaspoon US_teaspoons teaspoon teaspoons
volume    tablespoon 0.01478676478125 US_tablespoon US_tablespoons tablespoon tablespoons
volume    cup    0.2365882365 US_cup      US_cups      cup cups
volume    floz   0.0295735295625 US_fluid_ounce US_fluid_ounces fluid_ounce fluid_ounces
volume    pint   0.473176473  US_pint     US_pints     pint pints
volume    gallon 3.785411784  US_gallon   US_gallons   gallon gallons
speed     km/h   0.2777777777777778 kilometre_per_hour kilometres_per_hour """
        """kilometer_per_hour kilometers_per_hour km_/_h kph kmh
speed     mph    0.44704      mile_per_hour miles_per_hour mph
speed     m/s    1            metre_per_second metres_per_second meter_per_second meters_per_second
speed     knot   0.5144444444444445 knot  knots
area      m2     1            square_metre square_metres square_meter square_meters
area      ft2    0.09290304   square_foot square_feet
area      km2    1000000      square_kilometre square_kilometres square_kilometer square_kilometers
area      acre   4046.8564224 acre        acres
area      hectare 10000       hectare     hectares
time      second 1            second      seconds
time      minute 60           minute      minutes
time      hour   3600         hour        hours
time      day    86400        day         days
time      week   604800       week        weeks
"""
    )
    units: dict[str, Unit] = {}
    for row in rows.strip().splitlines():
        dimension, symbol, factor, one, many, *others = row.split()
        unit = Unit(symbol, dimension, float(factor), one.replace("_", " "), many.replace("_", " "))
        for name in (one, many, *others):
            units[name.replace("_", " ").lower()] = unit
    for symbol, kelvin, offset, *names in (
        ("C", 1.0, 273.15, "Celsius", "centigrade", "c"),
        ("F", 5 / 9, 459.67 * 5 / 9, "Fahrenheit", "f"),
    ):
        one, many = f"degree {names[0]}", f"degrees {names[0]}"
        unit = Unit(symbol, "temperature", kelvin, one, many, offset)
        for name in map(str.lower, names):
            units.update({name: unit, f"degrees {name}": unit, f"degree {name}": unit})
    return units


_UNITS = _table()
_NAMES = "|".join(re.escape(name) for name in sorted(_UNITS, key=len, reverse=True))

_N = r"(?:(?:minus |negative |- )?\d+(?:\.\d+)?(?: and a half)?|half an?|an?)"
_QUANTITY = rf"{_N} (?:{_NAMES})(?:(?: and)? \d+(?:\.\d+)? (?:{_NAMES}))?"

_CONVERT = re.compile(
    rf"(?:(?:what is|what are|how much is|how much are|convert|change|turn) )?(?P<from>{_QUANTITY})"
    rf" (?:in|to|into|as) (?P<to>{_NAMES})"
)
_HOW_MANY = re.compile(
    rf"how many (?P<to>{_NAMES})(?: (?:is|are|there|in|make|makes|equal|does|fit|into))+"
    rf" (?P<from>{_QUANTITY})(?: (?:have|contain))?"
)
_PART = re.compile(rf"(?P<n>{_N}) (?P<unit>{_NAMES})(?! ?(?:per|/))")


def understand(text: str) -> Fact | Question | None:
    """Return a converted quantity; None if the text does not ask for one."""
    low = text.lower()
    found = _CONVERT.fullmatch(low) or _HOW_MANY.fullmatch(low)
    if found is None:
        return None
    target = _UNITS[found["to"]]
    parts = [(_number(part["n"]), _UNITS[part["unit"]]) for part in _PART.finditer(found["from"])]
    if not parts or any(unit.dimension != parts[0][1].dimension for _, unit in parts):
        return None
    source = parts[0][1]
    if source.dimension != target.dimension:
        a, b = source.many.capitalize(), target.many
        return Question(f"{a} cannot be converted to {b}.")
    if len(parts) > 1 and source.dimension == "temperature":
        return None
    base = sum(value * unit.factor + unit.offset for value, unit in parts)
    value = round((base - target.offset) / target.factor, 9)
    given = " ".join(f"{figure(n)} {_named(n, unit)}" for n, unit in parts)
    said = figure(value)
    about = "" if abs(float(said) - value) < 1e-9 * max(1.0, abs(value)) else "about "
    verb = "is" if len(parts) == 1 and parts[0][0] == 1 else "are"
    sentence = f"{given} {verb} {about}{said} {_named(value, target)}."
    return Fact("unit", (value, target.symbol), sentence)


def _named(value: float, unit: Unit) -> str:
    return unit.one if value == 1 else unit.many


def _number(text: str) -> float:
    if text.startswith("half"):
        return 0.5
    if text in ("a", "an"):
        return 1.0
    negative = text.startswith(("minus ", "negative ", "- "))
    digits = re.search(r"\d+(?:\.\d+)?", text)
    assert digits is not None
    value = float(digits[0]) + (0.5 if text.endswith("and a half") else 0.0)
    return -value if negative else value
