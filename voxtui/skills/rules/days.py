"""Read days: `the day after tomorrow`, `3 March`, `Friday`, `Easter`."""

from __future__ import annotations

import calendar
import re
from datetime import date, timedelta

from voxtui.skills.rules.forms import PARTS, pattern
from voxtui.skills.rules.spoken import MONTHS, WEEKDAYS, say_day

FIRST_GREGORIAN_YEAR = 1583
FURTHEST = 40_000
"""Most days, weeks, months or years of `in 3 weeks`."""

_FEAST, _SHIFT, _WEEKDAY = (
    pattern(PARTS["feast"]),
    pattern(PARTS["shift"]),
    pattern(PARTS["weekday"]),
)
_DATES = pattern(PARTS["day_first"]), pattern(PARTS["month_first"])
_AWAY = pattern(PARTS["days_away"])

_NEAR = {
    "today": 0, "tomorrow": 1, "yesterday": -1, "the day after tomorrow": 2,
    "day after tomorrow": 2, "the day before yesterday": -2,
}  # fmt: skip

_FEASTS = {
    "christmas": (12, 25), "christmas eve": (12, 24), "boxing": (12, 26), "new year": (1, 1),
    "new years": (1, 1), "new years eve": (12, 31), "valentines": (2, 14), "halloween": (10, 31),
}  # fmt: skip
"""Month and day of the feasts, without apostrophes and `day`."""


class Ambiguous(Exception):
    """The words mean more than one day or time. The message is a question."""


def read_day(text: str, today: date, backwards: bool = False) -> date | None:
    """Return the day of a text that is a `day` of the forms; None if there is no such day.

    A weekday or a date without a year is the next one after today; with `backwards` the last one.
    Raises Ambiguous for `next Friday`.
    """
    low = text.lower()
    try:
        if low in _NEAR:
            return today + timedelta(_NEAR[low])
        if _SHIFT.fullmatch(low):
            return _shifted(low, today)
        if named := _WEEKDAY.fullmatch(low):
            return _weekday(
                named["which"] or "", WEEKDAYS.index(named["weekday"]), today, backwards
            )
        if named := _FEAST.fullmatch(low):
            return _feast(named, today, backwards)
        dates = (form.fullmatch(low) for form in _DATES)
        return next((_date(named, today, backwards) for named in dates if named), None)
    except (OverflowError, ValueError):
        return None


def _shifted(text: str, today: date) -> date | None:
    away = _AWAY.search(text)
    assert away is not None
    count = int(away["count"]) if away["count"].isdigit() else 1
    if count > FURTHEST:
        return None
    if text.endswith("ago"):
        count = -count
    if away["unit"] in ("day", "week"):
        return today + timedelta(count * (7 if away["unit"] == "week" else 1))
    months = today.year * 12 + today.month - 1 + count * (12 if away["unit"] == "year" else 1)
    year, month = divmod(months, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return date(year, month + 1, min(today.day, last))


def _weekday(which: str, weekday: int, today: date, backwards: bool) -> date:
    ahead = (weekday - today.weekday()) % 7 or 7
    if which == "next":
        days = (say_day(today + timedelta(ahead + more), today, weekday=False) for more in (0, 7))
        raise Ambiguous(f"Do you mean {' or '.join(days)}?")
    if which == "last" or (backwards and not which):
        return today - timedelta((today.weekday() - weekday) % 7 or 7)
    return today + timedelta(ahead)


def _feast(named: re.Match[str], today: date, backwards: bool) -> date | None:
    name = named["feast"].replace("'", "").removesuffix(" day")
    if named["year"] or named["which"]:
        year = _year(named["year"]) if named["year"] else today.year
        return _feast_of(name, year + (named["which"] == "next year"))
    this = _feast_of(name, today.year)
    if this and (this > today if backwards else this < today):
        return _feast_of(name, today.year + (-1 if backwards else 1))
    return this


def _feast_of(name: str, year: int) -> date | None:
    return _easter(year) if name.startswith("easter") else date(year, *_FEASTS[name])


def _easter(year: int) -> date | None:
    """Return the Western Easter Sunday, by the rule of Meeus, Jones and Butcher."""
    if year < FIRST_GREGORIAN_YEAR:
        return None
    a, (b, c) = year % 19, divmod(year, 100)
    d, e = divmod(b, 4)
    g = (8 * b + 13) // 25
    h = (19 * a + b - d - g + 15) % 30
    i, k = divmod(c, 4)
    m = (32 + 2 * e + 2 * i - h - k) % 7
    n = (a + 11 * h + 22 * m) // 451
    month, day = divmod(h + m - 7 * n + 114, 31)
    return date(year, month, day + 1)


def _date(named: re.Match[str], today: date, backwards: bool) -> date:
    """Return the day of a date. Raises ValueError if there is none, such as 31 February."""
    month = next(i for i, name in enumerate(MONTHS, 1) if name.startswith(named["month"][:3]))
    number = re.sub(r"\D", "", named["nth"])
    day = int(number or 0) + 2 * named["nth"].endswith("second")
    if named["year"]:
        return date(_year(named["year"]), month, day)
    this = date(today.year, month, day)
    if backwards:
        return this.replace(year=today.year - 1) if this > today else this
    return this if this >= today else this.replace(year=today.year + 1)


def _year(text: str) -> int:
    return int(text.replace(" ", ""))
