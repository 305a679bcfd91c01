"""Say numbers, spans of time and lists."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction

MOST_DIGITS = 15
"""Most digits of a whole number that is said digit by digit."""


def ordinal(number: int) -> str:
    """Return `22nd` for 22."""
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def figure(value: Fraction) -> tuple[str, bool]:
    """Return a number as it is said, and True if that is exact.

    At most three decimals, or three significant digits below 1.
    """
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(value.numerator) / Decimal(value.denominator)
        size = exact.adjusted() if exact else 0
        if size >= MOST_DIGITS or size < -6:
            text = f"{exact:.2e}"
            digits, _, power = text.partition("e")
            said = f"{digits.rstrip('0').rstrip('.')} times 10 to the power of {int(power)}"
            return said.replace("of -", "of minus "), Fraction(Decimal(text)) == value
        short = exact.quantize(Decimal("0.001"), ROUND_HALF_UP)
        if Fraction(short) != value:
            places = Decimal("0.01") if size >= 0 else Decimal(1).scaleb(size - 2)
            short = exact.quantize(places, ROUND_HALF_UP)
        said = f"{short:f}"
        return said.rstrip("0").rstrip(".") if "." in said else said, Fraction(short) == value


def counted(count: int, name: str) -> str:
    """Return `1 day` or `2 days`."""
    return f"{count} {name}" + ("" if count == 1 else "s")


def spoken_list(parts: list[str]) -> str:
    """Join parts as a sentence does: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def say_span(seconds: float, parts: int = 2) -> str:
    """Return `1 hour and 5 minutes`: the largest units, `parts` at most, rounded down.

    Less than a second is `0 seconds`.
    """
    rest, said = int(seconds), list[str]()
    for name, size in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, rest = divmod(rest, size)
        if count:
            said.append(counted(count, name))
    return spoken_list(said[:parts]) or "0 seconds"
