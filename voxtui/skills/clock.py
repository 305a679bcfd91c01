"""Questions about the time and the date, here and in other places.

The zone data of this machine knows the times in other places.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from functools import cache
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, ZoneInfoNotFoundError, available_timezones

from voxtui.skills.days import (
    DATE,
    DAY,
    FEAST,
    MONTHS,
    SHIFT,
    WEEKDAY,
    WEEKDAYS,
    YEAR,
    Ambiguous,
    read_day,
    say_day,
)
from voxtui.skills.hours import CLOCK, read_moment, say_time, utc
from voxtui.skills.intents import Fact, Question
from voxtui.skills.normalise import ordinal, say_span

_NOW = r"(?: (?:now|right now|currently|at the moment|here|today))*"
_WEEKDAY_OF = r"(?:day of the week|weekday|day|date)"
_DAYS_ASKED = r"(?:days|weeks|sleeps|nights)"
_FILLER = r"(?: (?:more|is|are|it|there|left|remain|remaining|to go|do we have|will it be))*"

_EXACT = r"(?:(?:current|exact|local|full) )*"

_TIME = re.compile(
    rf"(?:(?:what (?:is )?)?(?:the )?{_EXACT}time(?: is it| it is| do we have| is"
    rf"| have we got| do you have)?(?: exactly)?|(?:have you(?: got)?|do you have|you have|got)"
    rf" the time|what (?:does )?(?:is |it )?(?:the clock says?|say on the clock)){_NOW}(?<!^time)",
    re.IGNORECASE,
)
_TIME_IN = re.compile(
    rf"(?:what is |what )?(?:the )?{_EXACT}time(?: is it| it is| would it be)?"
    rf"(?: (?:exactly|currently|now|right now))*(?: in)? (?P<a>[^\d]+?)(?: (?:now|right now))?"
    rf"|in (?P<b>[^\d]+?) what (?:is the {_EXACT}time|time is it)(?: (?:now|right now))?",
    re.IGNORECASE,
)
_TODAY = re.compile(
    rf"(?:(?:what|which) {_WEEKDAY_OF}(?: of the month)?(?: (?:is it|it is|is today|today is|do we"
    rf" have|have we got))"
    rf"|(?:what is |what )?(?:the|today's) {_EXACT}(?:date|day of the week)(?: is)?"
    rf"|what is today|today's date is what(?: exactly)?|current date)(?: of today)?{_NOW}",
    re.IGNORECASE,
)
_YEAR = re.compile(
    rf"(?:what|which) year (?:is it|it is|is this|do we have|are we in){_NOW}", re.IGNORECASE
)
_MONTH = re.compile(
    rf"(?:what|which) month (?:is it|it is|is this|do we have|are we in){_NOW}", re.IGNORECASE
)
_THAT_DAY = re.compile(
    rf"(?:(?:on )?(?:what|which) {_WEEKDAY_OF} (?:(?P<was>was)(?: it)?|(?:is|will be|will it be"
    rf"|is it|will)(?: on)?) (?:on )?(?P<day>{DAY})(?: be)?(?: this year)?"
    rf"|what (?:(?P<was2>was)|is|will be) the (?:date|day) (?:(?:on|of|for) )?(?P<day2>{DAY})"
    rf"|what (?:(?P<was3>was)|is|would) (?P<day3>tomorrow|yesterday)(?:'s date)?(?: be)?"
    rf"|(?P<day6>tomorrow|yesterday)'s date"
    rf"|what (?:the )?(?:date|day)(?: it)? is (?P<day7>tomorrow)"
    rf"|(?P<day8>{SHIFT}) what (?:{_WEEKDAY_OF} will it be|will (?:be )?the date(?: be)?)"
    rf"|what will (?:be )?the date(?: be)? (?P<day9>{SHIFT})"
    rf"|(?:on )?(?:what|which) {_WEEKDAY_OF} (?:does|did|will) (?P<day4>{FEAST}|{DATE})"
    rf"(?: fall(?: on)?| be)?(?: this year)?"
    rf"|when (?:is|was) (?P<day5>{FEAST}))",
    re.IGNORECASE,
)
_UNTIL = re.compile(
    rf"(?:how (?:many {_DAYS_ASKED}|long|much longer|far)|(?:what is )?the number of days){_FILLER}"
    rf" (?:until|till|til|to|before) (?P<day>{DAY})",
    re.IGNORECASE,
)
_SINCE = re.compile(
    rf"how (?:many {_DAYS_ASKED}|long)(?: (?:is|are|it|there|has|have|been|passed|gone by))*"
    rf" since (?P<day>{DAY})",
    re.IGNORECASE,
)
_AGO = re.compile(
    rf"how (?:many {_DAYS_ASKED}|long) ago was (?P<day>{DAY})(?: this year)?", re.IGNORECASE
)
_NTH_ONLY = r"the \d{1,2}(?:st|nd|rd|th)"
_BETWEEN = re.compile(
    rf"how many days{_FILLER} (?:between|from) (?P<first>{DAY}|{_NTH_ONLY}) (?:and|to|until)"
    rf" (?P<second>{DAY})",
    re.IGNORECASE,
)
_UNTIL_TIME = re.compile(
    rf"how (?:many (?:hours|minutes|seconds)|long|much time){_FILLER} (?:until|till|til|to|before)"
    rf" (?P<clock>{CLOCK})",
    re.IGNORECASE,
)


def understand(text: str, now: datetime) -> Fact | Question | None:
    """Return the answer to a question about time or date, at the local time `now`."""
    for pattern, answer in _RULES:
        if found := pattern.fullmatch(text):
            try:
                return answer(found, now)
            except Ambiguous as question:
                return Question(str(question))
    return None


def _time(_: re.Match[str], now: datetime) -> Fact:
    return Fact("time", now.time(), f"It is {say_time(now)}.")


def _time_in(found: re.Match[str], now: datetime) -> Fact | None:
    place = found["a"] or found["b"]
    there = time_in(place, utc(now))
    if there is None:
        return None
    day = "" if there.date() == now.date() else f" on {WEEKDAYS[there.weekday()].capitalize()}"
    where = re.sub(r"\b(?!the\b|of\b)[a-z]", lambda first: first[0].upper(), place)
    sentence = f"It is {say_time(there)}{day} in {where}."
    return Fact("time in", f"{there:%H:%M %A}", sentence)


def _today(_: re.Match[str], now: datetime) -> Fact:
    return Fact("date", now.date(), f"Today is {_with_year(now.date())}.")


def _year(_: re.Match[str], now: datetime) -> Fact:
    return Fact("year", now.year, f"It is {now.year}.")


def _month(_: re.Match[str], now: datetime) -> Fact:
    return Fact("month", now.month, f"It is {MONTHS[now.month - 1].capitalize()} {now.year}.")


def _that_day(found: re.Match[str], now: datetime) -> Fact | None:
    named = next(filter(None, (found[f"day{n}"] for n in ("", *range(2, 10)))))
    backwards = any(found[f"was{n}"] for n in ("", 2, 3))
    day = read_day(named, now.date(), backwards)
    if day is None:
        return None
    verb = "is" if day >= now.date() else "was"
    return Fact("date", day, f"{_name(named, day)} {verb} {_with_year(day)}.")


def _until(found: re.Match[str], now: datetime) -> Fact | None:
    day = read_day(found["day"], now.date())
    if day is None or day < now.date():
        return None
    days = (day - now.date()).days
    return Fact("days", days, f"{_days(days)} until {_inside(found['day'], day, now.date())}.")


def _since(found: re.Match[str], now: datetime) -> Fact | None:
    day = read_day(found["day"], now.date(), backwards=True)
    if day is None or day > now.date():
        return None
    days = (now.date() - day).days
    return Fact("days", days, f"{_days(days)} since {_inside(found['day'], day, now.date())}.")


def _between(found: re.Match[str], now: datetime) -> Fact | None:
    today = now.date()
    first, second = (read_day(found[name], today) for name in ("first", "second"))
    if re.fullmatch(_NTH_ONLY, found["first"], re.IGNORECASE) and second is not None:
        number = re.sub(r"\D", "", found["first"])
        first = read_day(f"{number} {MONTHS[second.month - 1]} {second.year}", today)
    if first is None or second is None:
        return None
    if re.fullmatch(WEEKDAY, found["second"], re.IGNORECASE):
        second = read_day(found["second"], first)  # the next one after the first day
    elif second < first and not re.search(rf"{YEAR}$|day$", found["second"], re.IGNORECASE):
        second = read_day(found["second"], first)  # a date without a year
    if second is None:
        return None
    days = abs((second - first).days)
    between = f"between {say_day(first, today)} and {say_day(second, today)}"
    return Fact("days", days, f"{_days(days)} {between}.")


def _until_time(found: re.Match[str], now: datetime) -> Fact:
    moment = read_moment(found["clock"], now)
    seconds = (utc(moment) - utc(now)) // timedelta(seconds=1)
    sentence = f"It is {say_span(seconds)} until {say_time(moment)}."
    return Fact("seconds", seconds, sentence)


_Answer = Callable[[re.Match[str], datetime], Fact | None]

_RULES: tuple[tuple[re.Pattern[str], _Answer], ...] = (
    (_TIME, _time),
    (_TIME_IN, _time_in),
    (_TODAY, _today),
    (_YEAR, _year),
    (_MONTH, _month),
    (_THAT_DAY, _that_day),
    (_UNTIL_TIME, _until_time),
    (_UNTIL, _until),
    (_SINCE, _since),
    (_AGO, _since),
    (_BETWEEN, _between),
)


def _with_year(day: date) -> str:
    month = MONTHS[day.month - 1].capitalize()
    return f"{WEEKDAYS[day.weekday()].capitalize()}, {month} {ordinal(day.day)}, {day.year}"


def _days(days: int) -> str:
    """Return `It is 33 days, or 4 weeks and 5 days,`."""
    said = f"It is {days} day" + ("" if days == 1 else "s")
    weeks, rest = divmod(days, 7)
    if not weeks >= 1 or days > 100:
        return said
    more = f" and {rest} day" + ("s" if rest > 1 else "") if rest else ""
    return f"{said}, or {weeks} week" + ("s" if weeks > 1 else "") + f"{more},"


def _name(named: str, day: date) -> str:
    """Return the beginning of an answer: the feast or the near day by name, else the date."""
    low = named.lower()
    if re.fullmatch(FEAST, low):
        feast = re.sub(r"^the | this year$| next year$| (?:in )?\d{2} ?\d{2}$", "", low)
        return re.sub(r"\b[a-z]", lambda first: first[0].upper(), feast).replace("'S", "'s")
    if low in ("tomorrow", "yesterday") or low.endswith(("tomorrow", "yesterday")):
        return low.removeprefix("the ").capitalize().replace("Day", "The day")
    return "That"


def _inside(named: str, day: date, today: date) -> str:
    name = _name(named, day)
    return say_day(day, today) if name == "That" else name if name[0] != "T" else name.lower()


_UNCERTAIN = ("georgia", "center", "east", "general", "north", "south", "west")

_ZONE = re.compile(r"^the |(?: standard| daylight)? time ?zone$| (?:standard )?time$|^time zone ")


def time_in(place: str, now: datetime) -> datetime | None:
    """Return the local time of a city or country at `now` (aware); None if it is not certain.

    The zone data takes some 20 ms to list, once.
    """
    low = _ZONE.sub("", place.lower()).strip()
    low = re.sub(r"^the |(?: standard| daylight)$", "", low)
    try:
        times = [now.astimezone(ZoneInfo(name)) for name in _zones().get(low, ())]
    except (OverflowError, ValueError, ZoneInfoNotFoundError):
        return None
    if not times or any(one.utcoffset() != times[0].utcoffset() for one in times):
        return None  # a country with several times
    if "standard" in place.lower() and times[0].dst():
        return None  # it is summer there
    return times[0].replace(tzinfo=None)


@cache
def _zones() -> dict[str, tuple[str, ...]]:
    names = sorted(name for name in available_timezones() if "/" in name and name[:3] != "Etc")
    zones: dict[str, tuple[str, ...]] = {
        name.rpartition("/")[2].replace("_", " ").lower(): (name,) for name in names
    }
    countries: dict[str, list[str]] = {}
    for line in _lines("zone.tab"):
        code, _, zone = line.split("\t")[:3]
        countries.setdefault(code, []).append(zone)
    for line in _lines("iso3166.tab"):
        code, _, country = line.partition("\t")
        plain = re.sub(r" \(.*", "", country).lower()
        if code in countries:
            zones.setdefault(plain, tuple(countries[code]))
    for name in _UNCERTAIN:
        zones.pop(name, None)
    for line in _rows(Path(__file__).parent / "cities.tsv"):
        zone, cities = line.split("\t")
        zones.update(dict.fromkeys(cities.split(", "), (zone,)))
    return zones


def _lines(name: str) -> list[str]:
    files = (Path(folder) / name for folder in TZPATH)
    return next((_rows(file) for file in files if file.is_file()), list[str]())


def _rows(file: Path) -> list[str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
