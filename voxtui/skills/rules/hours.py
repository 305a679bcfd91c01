"""Read times of day, and the moment of words such as `tomorrow at nine`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from voxtui.skills.local_time import local, utc
from voxtui.skills.rules.days import Ambiguous, read_day
from voxtui.skills.rules.forms import english, matches, pattern
from voxtui.skills.rules.normalise import seconds_in

_PIECE = pattern(
    r"(?P<span>{in_span})|(?P<later>{later})|(?P<day>{on_day})(?![:\d])"
    r"|(?P<part>{part_of_day})|(?P<clock>(?:at |by )?{clock_time})"
)
_CLOCK = english("clock_times")

_EARLIEST_BARE, _NOON = 7, 12
"""Range of hours without am or pm that mean the morning of another day."""


@dataclass(slots=True)
class _Moment:
    day: date | None = None
    part: str = ""
    hour: int | None = None
    minute: int = 0
    certain: bool = False
    """whether the hour is one of 24"""


def read_moment(text: str, now: datetime) -> datetime:
    """Return the local moment of a `bare_when` of the forms. Raises Ambiguous with a question."""
    wanted, position = _Moment(), 0
    while position < len(text):
        piece = _PIECE.match(text, position)
        if piece is None or piece["later"]:
            raise Ambiguous("When exactly?")
        position, day, hour = piece.end() + 1, wanted.day, wanted.hour
        if piece["span"]:
            moment = _after(piece["span"], now)
            if piece[0] == text:
                return moment
            if seconds_in(piece["span"]) % 86_400:
                raise Ambiguous("When exactly?")
            wanted.day = moment.date()  # `in 2 days at 9`
        elif piece["day"]:
            wanted.day = read_day(re.sub(r"(?i)^on ", "", piece["day"]), now.date())
            if wanted.day is None:
                raise Ambiguous("There is no such day. Which day?")
            if wanted.day < now.date():
                raise Ambiguous("That time has passed. When?")
        elif piece["part"]:
            this, _, wanted.part = piece["part"].lower().rpartition(" ")
            wanted.day = now.date() if this == "this" else wanted.day
        else:
            _read_clock(re.sub(r"^(at|by) ", "", piece["clock"].lower()), wanted)
        days = day and wanted.day and day.weekday() != wanted.day.weekday()
        if days or (hour is not None and hour % 12 != (wanted.hour or 0) % 12):
            raise Ambiguous("When exactly?")  # `tomorrow in 2 days`, not `Friday December 11th`
    return _resolve(wanted, now)


def _after(span: str, now: datetime) -> datetime:
    seconds = seconds_in(span)
    if not 0 < seconds < 366 * 86_400:
        raise Ambiguous("When?")
    # A day ends at the same time on the clock, also in the nights when the clock changes.
    days = int(seconds // 86_400) if re.search(r"\b(?:day|week)s?\b", span) else 0
    begun = now + timedelta(days) if days else now
    return local(utc(begun) + timedelta(seconds=seconds - 86_400 * days))


def _read_clock(text: str, wanted: _Moment) -> None:
    match = next(matches(_CLOCK, text), None)
    if match is None:
        raise Ambiguous("At what time?")  # `noon pm`
    kind, words = match
    if kind == "name":
        wanted.hour, wanted.certain = 0 if text == "midnight" else 12, True
        return
    hour, half = int(words["hour"]), words["half"]
    minute = {"half": 30, "quarter": 15, "": 0}.get(words["minute"]) or int(words["minute"] or 0)
    if words.get("way") == "to":
        hour, minute = hour - 1 or 12, 60 - minute
    if hour > 24 or not 0 <= minute <= 59 or (half and not 0 < hour <= 12):
        raise Ambiguous("There is no such time. At what time?")
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    certain = kind == "plain" and (hour > 12 or words["hour"].startswith("0"))
    wanted.hour, wanted.minute, wanted.certain = hour % 24, minute, bool(half) or certain


def _resolve(wanted: _Moment, now: datetime) -> datetime:
    if wanted.hour is None:
        raise Ambiguous("At what time?")
    hours, today = _hours(wanted), now.date()
    if wanted.day is not None and wanted.day != today:
        if len(hours) > 1 and not _EARLIEST_BARE <= hours[0] <= _NOON:
            raise Ambiguous("In the morning or in the afternoon?")
        moment = _next(wanted, wanted.day, hours[0], now)
    elif later := next(filter(None, (_next(wanted, today, hour, now) for hour in hours)), None):
        moment = later
    elif wanted.day is None and (wanted.part != "tonight" or hours[0] < _EARLIEST_BARE):
        moment = _next(wanted, today + timedelta(1), hours[0], now)
    else:
        raise Ambiguous("That time has passed. At what time?")
    if moment is None or local(utc(moment)) != moment:
        raise Ambiguous("The clock skips that time in that night. At what time?")
    return moment


def _next(wanted: _Moment, day: date, hour: int, now: datetime) -> datetime | None:
    """Return the wanted time on a day if it is after `now`. It may occur twice in a night."""
    for fold in (0, 1):
        moment = datetime.combine(day, time(hour, wanted.minute, fold=fold))
        if utc(moment) > utc(now):
            return moment
    return None


def _hours(wanted: _Moment) -> list[int]:
    hour = wanted.hour
    assert hour is not None
    if wanted.certain or hour > 12:
        if {"morning": hour >= 12, "afternoon": hour < 12}.get(wanted.part):
            raise Ambiguous("When exactly?")
        return [hour]
    morning, evening = hour % 12, hour % 12 + 12
    match wanted.part:
        case "morning":
            return [morning]
        case "afternoon":
            return [evening]
        case "evening" | "night" | "tonight" if 5 <= hour < 12:
            return [evening]
        case "":
            return [morning, evening] if hour != 12 else [12, 0]
        case _:
            raise Ambiguous("When exactly?")
