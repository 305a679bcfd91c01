"""Read and say days: `the day after tomorrow`, `3 March`, `Friday`, `Easter`."""

from __future__ import annotations

import calendar
import re
from datetime import date, timedelta

from voxtui.skills.normalise import ordinal

FIRST_GREGORIANYEAR = 1583

WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]

WEEKDAY = "|".join(WEEKDAYS)
_MONTH = "|".join((*MONTHS, *(name[:3] for name in MONTHS), "sept"))
_NTH = r"(?:\d{1,2}(?:st|nd|rd|th)?|(?:20 |30 )?second)"
YEAR = r"(?:\d{4}|\d\d \d\d)"

_FIXED = {
    "christmas": (12, 25), "christmas day": (12, 25), "christmas eve": (12, 24),
    "boxing day": (12, 26), "new year": (1, 1), "new year's": (1, 1), "new year's day": (1, 1),
    "new years": (1, 1), "new years day": (1, 1), "new year's eve": (12, 31),
    "new years eve": (12, 31), "valentine's day": (2, 14), "valentines day": (2, 14),
    "halloween": (10, 31),
}  # fmt: skip
_FEASTS = "|".join(sorted((*_FIXED, "easter", "easter sunday"), key=len, reverse=True))

FEAST = rf"(?:the )?(?:{_FEASTS})(?: day)?(?: this year| next year| {YEAR}| in {YEAR})?"

DATE = rf"(?:(?:the )?{_NTH} (?:of )?(?:{_MONTH})|(?:{_MONTH}) (?:the )?{_NTH})(?: (?:in )?{YEAR})?"

_AMOUNT = r"(?:\d+|an?) (?:days?|weeks?|months?|years?)"

SHIFT = rf"(?:in {_AMOUNT}|{_AMOUNT} (?:from (?:now|today)|ago))"

DAY = (
    rf"(?:today|tomorrow|yesterday|the day after tomorrow|the day before yesterday|day after "
    rf"tomorrow|{SHIFT}|(?:this |this coming |coming |next |last )?(?:{WEEKDAY})|{DATE}|{FEAST})"
)
"""A pattern without groups: one day, in the words of `normalise`."""

_NEAR = {
    "today": 0, "tomorrow": 1, "yesterday": -1, "the day after tomorrow": 2,
    "day after tomorrow": 2, "the day before yesterday": -2,
}  # fmt: skip


class Ambiguous(Exception):
    """The words mean more than one day or time. The message is a question."""


def read_day(text: str, today: date, backwards: bool = False) -> date | None:
    """Return the day of a text that matches DAY; None if there is no such day.

    A weekday or a date without a year is the next one after today; with `backwards` the last one.
    Raises Ambiguous for `next Friday`.
    """
    low = text.lower()
    if low in _NEAR:
        return today + timedelta(_NEAR[low])
    if re.fullmatch(SHIFT, low):
        return _shifted(low, today)
    if weekday := re.fullmatch(rf"(?:(this|this coming|coming|next|last) )?({WEEKDAY})", low):
        return _weekday(weekday[1] or "", WEEKDAYS.index(weekday[2]), today, backwards)
    if re.fullmatch(FEAST, low):
        return _feast(low, today, backwards)
    return _date(low, today, backwards)


def _shifted(text: str, today: date) -> date | None:
    found = re.search(r"(\d+|an?) (day|week|month|year)", text)
    assert found is not None
    count = int(found[1]) if found[1].isdigit() else 1
    count = -count if text.endswith("ago") else count
    if count and abs(count) > 40_000:
        return None
    try:
        match found[2]:
            case "day":
                return today + timedelta(count)
            case "week":
                return today + timedelta(weeks=count)
            case unit:
                return _months_later(today, count * (12 if unit == "year" else 1))
    except (OverflowError, ValueError):
        return None


def _months_later(day: date, months: int) -> date:
    """Return the same day of another month, or its last day if that is earlier."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return date(year, month + 1, min(day.day, last))


def _weekday(which: str, weekday: int, today: date, backwards: bool) -> date:
    ahead = (weekday - today.weekday()) % 7 or 7
    if which == "next":
        this, later = today + timedelta(ahead), today + timedelta(ahead + 7)
        raise Ambiguous(
            f"Do you mean {say_day(this, today, weekday=False)} "
            f"or {say_day(later, today, weekday=False)}?"
        )
    if which == "last" or (backwards and not which):
        return today - timedelta((today.weekday() - weekday) % 7 or 7)
    return today + timedelta(ahead)


def _feast(text: str, today: date, backwards: bool) -> date | None:
    found = re.fullmatch(
        rf"(?:the )?({_FEASTS})(?: day)?(?: (this year|next year)| (?:in )?({YEAR}))?", text
    )
    if found is None:
        return None
    if found[3] or found[2]:
        year = _year(found[3]) if found[3] else today.year + (found[2] == "next year")
        return _feast_of(found[1], year)
    this, step = _feast_of(found[1], today.year), -1 if backwards else 1
    if this is None:
        return None
    passed = this > today if backwards else this < today
    return _feast_of(found[1], today.year + step) if passed else this


def _feast_of(name: str, year: int) -> date | None:
    if name.startswith("easter"):
        return _easter(year)
    month, day = _FIXED[name]
    return date(year, month, day)


def _easter(year: int) -> date | None:
    """Return the Western Easter Sunday, by the rule of Meeus, Jones and Butcher."""
    if year < FIRST_GREGORIANYEAR:
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


def _date(text: str, today: date, backwards: bool) -> date | None:
    found = re.search(rf"\b({_MONTH})\b", text)
    if found is None:
        return None
    month = next(i for i, name in enumerate(MONTHS, 1) if name.startswith(found[1][:3]))
    around = f"{text[: found.start()]} {text[found.end() :]}"
    year = re.search(rf"\b({YEAR})$", around)
    if year and year.start() > 2:  # `12 14 May` names no year
        around = around[: year.start()]
    else:
        year = None
    nth = re.search(r"(?:(\d+) )?second|(\d{1,2})(?:st|nd|rd|th)?", around)
    if nth is None:
        return None
    day = int(nth[2]) if nth[2] else int(nth[1] or 0) + 2
    try:
        if year:
            return date(_year(year[1]), month, day)
        this = date(today.year, month, day)
        if backwards and this > today:
            return this.replace(year=today.year - 1)
        return this if backwards or this >= today else this.replace(year=today.year + 1)
    except ValueError:
        return None


def _year(text: str) -> int:
    return int(text.replace(" ", ""))


def say_day(day: date, today: date, weekday: bool = True) -> str:
    """Return `Friday, December 25th`, with the year if it is not this one."""
    said = f"{MONTHS[day.month - 1].capitalize()} {ordinal(day.day)}"
    if weekday:
        said = f"{WEEKDAYS[day.weekday()].capitalize()}, {said}"
    return said if day.year == today.year else f"{said}, {day.year}"
