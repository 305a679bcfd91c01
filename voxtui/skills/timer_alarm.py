"""Decide when a timer rings, how often, and what stops it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from voxtui.skills.rules.spoken import say_span, spoken_list
from voxtui.skills.timer_store import Entries, Entry

AHEAD_SECONDS = 1.5
"""Time before a chime at which it is announced, so that the speaker plays it on time."""

LATE_SECONDS = 60.0
"""Delay from which an entry counts as missed while voxtui was closed: it is reported once and does
not ring."""

CHIMES = (0.0, 7.0, 16.0, 28.0, 44.0, 66.0, 94.0)
"""Times of the chimes in seconds, with growing pauses so as not to annoy a person nearby."""

SPOKEN_AFTER = 1.4
"""Time from the beginning of a chime to its sentence."""

LONGEST_SECONDS = 120.0
"""Time after which ringing ends and the entry counts as missed."""

JUST_NOW_SECONDS = 60.0
"""Time after a stop in which "stop" and "snooze" still refer to what rang."""

MISSED_DAYS = 1


class TimerAlarm:
    """The ringing entries and their schedule. Times are aware. One thread writes."""

    def __init__(self) -> None:
        self.entries: Sequence[Entry] = ()
        self.stopped: Sequence[Entry] = ()
        """the entries that rang last"""
        self._stopped_at: datetime | None = None
        self._began: datetime | None = None
        self._announced = self._spoken = 0
        """the number of announced chimes, and of those whose sentence was spoken"""

    def add(self, entries: Sequence[Entry], now: datetime) -> None:
        """Ring `entries` as well, from the beginning. Their first chime was already announced."""
        self.entries = (*self.entries, *entries)
        self._began, self._announced, self._spoken = now, 1, 0

    def stop(self, now: datetime) -> None:
        if self.entries:
            self.stopped, self._stopped_at = self.entries, now
        self.entries = ()

    def just_rang(self, now: datetime) -> bool:
        """Return True if something rings, or was stopped a moment ago."""
        if self.entries:
            return True
        at = self._stopped_at
        return at is not None and now - at < timedelta(seconds=JUST_NOW_SECONDS)

    def missed(self, now: datetime) -> bool:
        return bool(self.entries) and self._since(now) >= LONGEST_SECONDS

    def chime_in(self, now: datetime) -> float | None:
        """Return the seconds to the next chime, once and shortly before it; else None."""
        if self._announced >= len(CHIMES):
            return None
        left = CHIMES[self._announced] - self._since(now)
        if left > AHEAD_SECONDS:
            return None
        self._announced += 1
        return max(0.0, left)

    def speaks(self, now: datetime) -> bool:
        """Return True once after each chime, when its sentence is due."""
        if self._spoken >= self._announced:
            return False
        if self._since(now) < CHIMES[self._spoken] + SPOKEN_AFTER:
            return False
        self._spoken += 1
        return True

    def wait(self, now: datetime) -> float:
        """Return the seconds until a chime or a sentence is due."""
        since = self._since(now)
        times = [LONGEST_SECONDS]
        if self._announced < len(CHIMES):
            times.append(CHIMES[self._announced] - AHEAD_SECONDS)
        if self._spoken < self._announced:
            times.append(CHIMES[self._spoken] + SPOKEN_AFTER)
        return max(0.0, min(times) - since)

    def _since(self, now: datetime) -> float:
        return (now - self._began).total_seconds() if self._began else 0.0


def ring_due(entries: Entries, now: datetime) -> tuple[Entries, list[tuple[Entry, timedelta]]]:
    """Return the entries with due ones marked as missed, and the due ones with their delays.

    They are marked before they ring, so that they are in the list whatever happens.
    """
    oldest = now - timedelta(days=MISSED_DAYS)
    after, due = list[Entry](), list[tuple[Entry, timedelta]]()
    for entry in entries.all:
        if entry.due is None or entry.due > (oldest if entry.missed else now):
            after.append(entry)
        elif not entry.missed:
            after.append(replace(entry, missed=True))
            due.append((after[-1], now - entry.due))
    return Entries(tuple(after)), due


def snoozed(entries: Entries, again: Sequence[Entry], until: datetime) -> Entries:
    """Return the entries with `again` due at `until`."""
    rest = (entry for entry in entries.all if entry not in again)
    return Entries((*rest, *(entry.postponed(until) for entry in again)))


def snooze_sentence(again: Sequence[Entry], seconds: float) -> str:
    verb = "ring" if len(again) > 1 else "rings"
    listed = spoken_list([entry.title for entry in again])
    return f"{listed[0].upper()}{listed[1:]} {verb} again in {say_span(seconds)}."
