"""Decide when a timer rings, how often, and what stops it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec.structs import replace

from voxtui.skills.rules.spoken import say_span, spoken_list
from voxtui.skills.timer_store import Entries, Entry, Timer

AHEAD_SECONDS = 1.5
"""Time before a chime at which it is announced, so that the speaker plays it on time."""

LATE_SECONDS = 60.0
"""Delay from which an entry counts as missed while voxtui was closed, and does not ring."""

CHIMES = (0.0, 7.0, 16.0, 28.0, 44.0, 66.0, 94.0)
"""Times of the chimes in seconds, with growing pauses so as not to annoy a person nearby."""

SPOKEN_AFTER = 1.4
"""Time from the beginning of a chime to its sentence."""

LONGEST_SECONDS = 120.0
"""Time after which ringing ends and the entry counts as missed."""

JUST_NOW_SECONDS = 60.0
"""Time after a stop in which "stop" and "snooze" still refer to what rang."""

KEY_SECONDS = 10.0
"""Time after a stop by the talk key in which "okay" is said of what rang, and not to the brain."""

MISSED_DAYS = 1

Step = StrEnum("Step", "CHIME SPEAK END")

_SCHEDULE = sorted(
    [
        *((at - AHEAD_SECONDS, Step.CHIME) for at in CHIMES[1:]),
        *((at + SPOKEN_AFTER, Step.SPEAK) for at in CHIMES),
        (LONGEST_SECONDS, Step.END),
    ]
)
"""What is done, in seconds from the first chime, which was announced before it rang."""


class TimerAlarm:
    """The ringing entries and their schedule. Times are aware. One thread writes."""

    def __init__(self) -> None:
        self.entries: Sequence[Entry] = ()
        self._stopped: Sequence[Entry] = ()
        self._stopped_at: datetime | None = None
        self._steps = deque[tuple[datetime, Step]]()
        """the rest of the schedule"""

    def add(self, entries: Sequence[Entry], now: datetime) -> None:
        """Ring `entries` as well, from the beginning. Their first chime was already announced."""
        self.entries = (*self.entries, *entries)
        self._steps = deque((now + timedelta(seconds=at), step) for at, step in _SCHEDULE)

    def stop(self, now: datetime) -> None:
        if self.entries:
            self._stopped, self._stopped_at = self.entries, now
        self.entries = ()

    @property
    def last(self) -> Sequence[Entry]:
        """The entries that ring, or that rang last."""
        return self.entries or self._stopped

    def just_rang(self, now: datetime, seconds: float = JUST_NOW_SECONDS) -> bool:
        """Return True if something rings, or was stopped less than `seconds` ago."""
        at = self._stopped_at
        return bool(self.entries or (at and now - at < timedelta(seconds=seconds)))

    def step(self, now: datetime) -> tuple[datetime, Step] | None:
        """Return the next step of the schedule and its time, once, if it is due."""
        if self._steps[-1][0] <= now:
            return self._steps[-1]
        return self._steps.popleft() if self._steps[0][0] <= now else None

    def move(self, by: timedelta) -> None:
        """Move the schedule, because the clock was set."""
        self._steps = deque((at + by, step) for at, step in self._steps)
        if self._stopped_at is not None:
            self._stopped_at += by

    def wait(self, now: datetime) -> float:
        """Return the seconds until the next step is due."""
        return max(0.0, (self._steps[0][0] - now).total_seconds())


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


def moved(entries: Entries, known: Entries, by: timedelta) -> Entries:
    """Return the entries with the same time left for running timers, after the clock was set.

    Only timers of `known` move, because a newer one was set by the new clock. Reminders stay,
    because they are for a time of day.
    """
    return Entries(
        tuple(
            replace(entry, due=entry.due + by)
            if isinstance(entry, Timer) and entry in known.all and entry.due and not entry.missed
            else entry
            for entry in entries.all
        )
    )


def snoozed(entries: Entries, again: Sequence[Entry], until: datetime) -> Entries:
    """Return the entries with `again` due at `until`."""
    rest = (entry for entry in entries.all if entry not in again)
    return Entries((*rest, *(replace(entry, due=until, missed=False) for entry in again)))


def snooze_sentence(again: Sequence[Entry], seconds: float) -> str:
    verb = "ring" if len(again) > 1 else "rings"
    listed = spoken_list([entry.title for entry in again])
    return f"{listed[0].upper()}{listed[1:]} {verb} again in {say_span(seconds)}."


def due_sentence(entry: Entry, late: timedelta) -> str:
    """Return the sentence for an entry that rings, or that was missed by `late`."""
    missed = late > timedelta(minutes=1)
    ago = f"{say_span(late.total_seconds(), 1)} ago"
    if isinstance(entry, Timer):
        verb = f"ended {ago}" if missed else "is done"
        return f"{timer_name(entry, 'Your')} {verb}."
    about = entry.name.removeprefix("that ")
    if not about:
        return f"Your {entry.title} was due {ago}." if missed else f"This is your {entry.title}."
    return f"Reminder, due {ago}: {about}." if missed else f"Reminder: {about}."


def timer_name(timer: Timer, article: str = "the") -> str:
    if timer.name:
        return f"{article} {timer.name} timer"
    return f"{article} timer for {say_span(timer.seconds)}"
