"""Put numbers, lists, durations, days and moments into words."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
MOST_DIGITS = 15
"""Maximum digits of a whole number; a larger one is spoken as a power of 10."""

SNOOZE_SECONDS = 300.0


def ordinal(number: int) -> str:
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def figure(value: Fraction) -> tuple[str, bool]:
    """Return a number with three decimals or significant digits, and True if that is exact."""
    if value < 0:
        said, exact = figure(-value)
        return f"minus {said}", exact
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
    return f"{count} {name}" + ("" if count == 1 else "s")


def spoken_list(parts: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def say_span(seconds: float, parts: int = 2) -> str:
    """Return `1 hour and 5 minutes`: at most `parts` of the largest units, rounded down."""
    rest, said = int(seconds), list[str]()
    for name, size in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, rest = divmod(rest, size)
        if count:
            said.append(counted(count, name))
    return spoken_list(said[:parts]) or "0 seconds"


def say_day(day: date, today: date, weekday: bool = True) -> str:
    """Return `Friday, December 25th`, with the year unless it is the present one."""
    said = f"{MONTHS[day.month - 1].capitalize()} {ordinal(day.day)}"
    if weekday:
        said = f"{WEEKDAYS[day.weekday()].capitalize()}, {said}"
    return said if day.year == today.year else f"{said}, {day.year}"


def say_time(moment: datetime | time) -> str:
    if moment.minute == 0 and moment.hour in (0, 12):
        return "noon" if moment.hour else "midnight"
    hour, half = moment.hour % 12 or 12, "am" if moment.hour < 12 else "pm"
    return f"{hour}:{moment.minute:02} {half}"


def say_moment(moment: datetime, now: datetime) -> str:
    """Return `tomorrow at 9:00 am`, `today at 1:24 pm` or `on Friday, December 25th at noon`."""
    days = (moment.date() - now.date()).days
    near = {0: "today", 1: "tomorrow", -1: "yesterday"}
    day = near.get(days, f"on {say_day(moment.date(), now.date())}")
    return f"{day} at {say_time(moment)}"


def say_date(day: date) -> str:
    return f"{say_day(day, day)}, {day.year}"


def say_days(days: int) -> str:
    said, (weeks, rest) = f"It is {counted(days, 'day')}", divmod(days, 7)
    if not weeks or days > 100:
        return said
    parts = [counted(weeks, "week"), *([counted(rest, "day")] if rest else [])]
    return f"{said}, or {spoken_list(parts)},"
