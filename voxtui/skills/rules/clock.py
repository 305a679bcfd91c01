"""Answer questions about time and date, here and in the places of this machine's zone data."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from functools import cache
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, ZoneInfoNotFoundError

from voxtui.skills.local_time import utc
from voxtui.skills.rules import spoken
from voxtui.skills.rules.days import Ambiguous, read_day
from voxtui.skills.rules.forms import english, matches, pattern
from voxtui.skills.rules.hours import read_moment
from voxtui.skills.rules.intents import Fact, Question
from voxtui.skills.rules.spoken import MONTHS, WEEKDAYS

_FORMS = english("clock")
_FEAST, _WEEKDAY, _NTH_ALONE = pattern("{feast}"), pattern("{weekdays}"), pattern("{nth_alone}")
_ENDS_WITH_YEAR = pattern("{year}$|day$")


def understand(text: str, now: datetime) -> Fact | Question | None:
    for kind, words in matches(_FORMS, text):
        try:
            return _answer(kind, words, now)
        except Ambiguous as question:
            return Question(str(question))
    return None


def _answer(kind: str, words: Mapping[str, str], now: datetime) -> Fact | None:
    today = now.date()
    match kind:
        case "time":
            return Fact("time", now.time(), f"It is {spoken.say_time(now)}.")
        case "time_in":
            return _time_in(words["place"], now)
        case "today":
            return Fact("date", today, f"Today is {spoken.say_date(today)}.")
        case "year":
            return Fact("year", now.year, f"It is {now.year}.")
        case "month":
            return Fact("month", now.month, f"It is {MONTHS[now.month - 1].title()} {now.year}.")
        case "that_day":
            day = read_day(words["day"], today, backwards=bool(words.get("was")))
            if day is None:
                return None
            verb = "is" if day >= today else "was"
            return Fact("date", day, f"{_name(words['day'])} {verb} {spoken.say_date(day)}.")
        case "until_time":
            moment = read_moment(words["clock"], now)
            seconds = (utc(moment) - utc(now)) // timedelta(seconds=1)
            sentence = f"It is {spoken.say_span(seconds)} until {spoken.say_time(moment)}."
            return Fact("seconds", seconds, sentence)
        case "between":
            return _between(words["first"], words["second"], today)
        case _:
            day = read_day(words["day"], today, backwards=kind == "since")
            if day is None or (day > today if kind == "since" else day < today):
                return None
            days, name = abs((day - today).days), _name(words["day"])
            name = spoken.say_day(day, today) if name == "That" else re.sub("^T", "t", name)
            return Fact("days", days, f"{spoken.say_days(days)} {kind} {name}.")


def _time_in(place: str, now: datetime) -> Fact | None:
    there = time_in(place, utc(now))
    if there is None:
        return None
    day = "" if there.date() == now.date() else f" on {WEEKDAYS[there.weekday()].title()}"
    where = re.sub(r"\b(?!the\b|of\b)[a-z]", lambda first: first[0].upper(), place)
    sentence = f"It is {spoken.say_time(there)}{day} in {where}."
    return Fact("time in", f"{there:%H:%M %A}", sentence)


def _between(first_words: str, second_words: str, today: date) -> Fact | None:
    first, second = read_day(first_words, today), read_day(second_words, today)
    if _NTH_ALONE.fullmatch(first_words) and second is not None:  # of the same month
        month = f"{MONTHS[second.month - 1]} {second.year}"
        first = read_day(f"{first_words} {month}", today)
    if first is None or second is None:
        return None
    # A weekday is the next one after the first day, and so is a date without a year.
    if _WEEKDAY.fullmatch(second_words) or (
        second < first and not _ENDS_WITH_YEAR.search(second_words)
    ):
        second = read_day(second_words, first)
    if second is None:
        return None
    days = abs((second - first).days)
    between = f"between {spoken.say_day(first, today)} and {spoken.say_day(second, today)}"
    return Fact("days", days, f"{spoken.say_days(days)} {between}.")


def _name(named: str) -> str:
    """Return the beginning of an answer: the name of a holiday or a near day, else `That`."""
    low = named.lower()
    if _FEAST.fullmatch(low):
        feast = re.sub(r"^the | this year$| next year$| (?:in )?\d{2} ?\d{2}$", "", low)
        return re.sub(r"\b[a-z]", lambda first: first[0].upper(), feast).replace("'S", "'s")
    if low.endswith(("tomorrow", "yesterday")):
        return low.removeprefix("the ").capitalize().replace("Day", "The day")
    return "That"


_ZONE = re.compile(r"^the |(?: standard| daylight)? time ?zone$| (?:standard )?time$|^time zone ")


def time_in(place: str, now: datetime) -> datetime | None:
    """Return the local time of a city or country at `now` (aware), or None if it is ambiguous."""
    low = re.sub(r"^the |(?: standard| daylight)$", "", _ZONE.sub("", _plain(place)).strip())
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
def _zones() -> dict[str, tuple[str, ...]]:  # takes some milliseconds, once
    zones, of_code = dict[str, tuple[str, ...]](), dict[str, tuple[str, ...]]()
    for line in _lines("zone.tab"):
        code, _, zone = line.split("\t")[:3]
        of_code[code] = (*of_code.get(code, ()), zone)
        region, _, city = zone.partition("/")
        if "/" not in city and region != "Antarctica":  # nor places such as Petersburg in Indiana
            zones[_plain(city)] = (zone,)
    countries = dict[str, tuple[str, ...]]()
    for line in _lines("iso3166.tab"):
        code, _, country = line.partition("\t")
        name = _plain(country.partition(" (")[0])  # two countries are called Congo
        countries[name] = countries.get(name, ()) + of_code.get(code, ())
    zones = countries | zones
    for line in _lines("cities.tsv"):
        zone, cities = line.split("\t")
        zones |= dict.fromkeys(cities.split(", "), (zone,))
    return zones


def _plain(name: str) -> str:
    return re.sub("[-_. ]+", " ", name.lower()).replace("&", "and").replace("saint ", "st ")


def _lines(name: str) -> list[str]:
    files = (Path(folder) / name for folder in (Path(__file__).parent, *TZPATH))
    file = next((file for file in files if file.is_file()), Path(os.devnull))
    lines = file.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
