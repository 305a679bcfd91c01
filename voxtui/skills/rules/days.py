"""Read days: `the day after tomorrow`, `3 March`, `Friday`, `Easter`."""

from __future__ import annotations

import calendar
import re
from datetime import date, timedelta

from voxtui.skills.rules.forms import PARTS, pattern
from voxtui.skills.rules.spoken import MONTHS, WEEKDAYS, say_day

FIRST_GREGORIAN_YEAR = 1583
FURTHEST = 40_000
"""Maximum number of days, weeks, months or years in `in 3 weeks`."""

_FEAST, _SHIFT, _AWAY, _WEEKDAY, *_DATES = (
    pattern(PARTS[part])
    for part in ("feast", "shift", "days_away", "weekday", "day_first", "month_first")
)

_NEAR = {
    "today": 0, "tomorrow": 1, "yesterday": -1, "day after tomorrow": 2, "day before yesterday": -2,
}  # fmt: skip

_EASTER = (0, 0)

_FEASTS = {
    "christmas": (12, 25), "christmas eve": (12, 24), "boxing": (12, 26), "new year": (1, 1),
    "new years": (1, 1), "new years eve": (12, 31), "valentines": (2, 14), "halloween": (10, 31),
}  # fmt: skip
"""Month and day of the holidays except Easter, without apostrophes and `day`."""


class Ambiguous(Exception):
    """The words mean several days or times, or none. The message is a question."""


def read_day(text: str, today: date, backwards: bool = False) -> date | None:
    """Return the next day that a `day` of the forms means, or the last one if `backwards`.

    None if there is no such day. Raises Ambiguous for `next Friday`.
    """
    low = text.lower()
    try:
        if (near := low.removeprefix("the ")) in _NEAR:
            return today + timedelta(_NEAR[near])
        if _SHIFT.fullmatch(low):
            return _shifted(low, today)
        if named := _WEEKDAY.fullmatch(low):
            return _weekday(named, today, backwards)
        if named := _FEAST.fullmatch(low):
            name = named["feast"].replace("'", "").removesuffix(" day")
            year = today.year + (named["which"] == "next year") if named["which"] else None
            return _of_year(_FEASTS.get(name, _EASTER), named["year"] or year, today, backwards)
        if named := next(filter(None, (form.fullmatch(low) for form in _DATES)), None):
            month = next(i for i, name in enumerate(MONTHS, 1) if name[:3] == named["month"][:3])
            number = int(re.sub(r"\D", "", named["nth"]) or 0)
            nth = number + 2 * named["nth"].endswith("second")
            return _of_year((month, nth), named["year"], today, backwards)
        return None
    except (OverflowError, ValueError):
        return None


def _shifted(text: str, today: date) -> date | None:
    away = _AWAY.search(text)
    assert away is not None
    count = int(away["count"]) if away["count"].isdigit() else 1
    if count > FURTHEST:
        return None
    count *= -1 if text.endswith("ago") else 1
    if away["unit"] in ("day", "week"):
        return today + timedelta(**{f"{away['unit']}s": count})
    months = today.year * 12 + today.month - 1 + count * (12 if away["unit"] == "year" else 1)
    year, month = divmod(months, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return date(year, month + 1, min(today.day, last))


def _weekday(named: re.Match[str], today: date, backwards: bool) -> date:
    which, weekday = named["which"], WEEKDAYS.index(named["weekday"])
    ahead = (weekday - today.weekday()) % 7 or 7
    if which == "next":
        days = (say_day(today + timedelta(ahead + more), today, weekday=False) for more in (0, 7))
        raise Ambiguous(f"Do you mean {' or '.join(days)}?")
    if which == "last" or (backwards and not which):
        return today - timedelta((today.weekday() - weekday) % 7 or 7)
    return today + timedelta(ahead + 7 * ("week" in (which or "")))


def _of_year(
    feast: tuple[int, int], year: str | int | None, today: date, backwards: bool
) -> date | None:
    """Return a month and day in `year`, or the next one after today. Raises ValueError."""
    chosen = today.year if year is None else int(str(year).replace(" ", ""))
    if chosen < FIRST_GREGORIAN_YEAR:
        return None
    day = _easter(chosen) if feast is _EASTER else date(chosen, *feast)
    if year is not None or not (day > today if backwards else day < today):
        return day
    return _of_year(feast, today.year + (-1 if backwards else 1), today, backwards)


def _easter(year: int) -> date:
    """Return Western Easter Sunday by the algorithm of Meeus, Jones and Butcher."""
    a, (b, c) = year % 19, divmod(year, 100)
    d, e = divmod(b, 4)
    g = (8 * b + 13) // 25
    h = (19 * a + b - d - g + 15) % 30
    i, k = divmod(c, 4)
    m = (32 + 2 * e + 2 * i - h - k) % 7
    n = (a + 11 * h + 22 * m) // 451
    month, day = divmod(h + m - 7 * n + 114, 31)
    return date(year, month, day + 1)
