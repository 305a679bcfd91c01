from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from voxtui.skills.local_time import local, utc
from voxtui.skills.rules.intents import (
    CancelReminder,
    Do,
    ListReminders,
    NewReminder,
    Request,
    TimerRequest,
    Which,
)
from voxtui.skills.rules.spoken import say_moment, say_span, spoken_list
from voxtui.skills.timer_alarm import timer_name
from voxtui.skills.timer_store import MOST_ENTRIES, Entries, Reminder, Timer, TimerStore

_DONE = {Do.CANCEL: "cancelled", Do.PAUSE: "paused", Do.RESUME: "running again"}


class _Refused(Exception):
    """The request was not carried out. The message is the reason."""


def acts(request: Request) -> bool:
    """Return True if the request changes something."""
    asks = isinstance(request, TimerRequest) and request.do is Do.STATUS
    return not asks and not isinstance(request, ListReminders)


def carry_out(request: Request, store: TimerStore, now: datetime) -> str:
    """Carry out `request` at the local time `now`; return the sentence. Raises InputError."""
    try:
        with store.changing() as change:
            change.entries, sentence = _carried_out(request, change.entries, now)
        return sentence
    except _Refused as refused:
        return str(refused)
    except (OverflowError, ValueError):  # the latter from Timer and Reminder
        return "That is too late: a calendar ends with the year 9999."


def _carried_out(request: Request, entries: Entries, now: datetime) -> tuple[Entries, str]:
    match request:
        case TimerRequest(Do.START):
            return _start(request, entries, utc(now))
        case TimerRequest(Do.STATUS):
            return entries, _status(request.which, entries, utc(now))
        case TimerRequest():
            return _change_timers(request, entries, utc(now))
        case NewReminder():
            return _remind(request, entries, now)
        case ListReminders():
            return entries, _list(entries, now)
        case CancelReminder():
            return _cancel_reminders(request, entries)


def _start(request: TimerRequest, entries: Entries, now: datetime) -> tuple[Entries, str]:
    if len(entries.timers) >= MOST_ENTRIES:
        raise _Refused(f"There are already {MOST_ENTRIES} timers. Cancel some first.")
    ends = now + timedelta(seconds=request.seconds)
    timer = Timer(request.seconds, ends, name=request.which.name[:100])
    name = f"Your {timer.name} timer" if timer.name else "Your timer"
    return Entries((*entries.all, timer)), f"{name} is set for {say_span(request.seconds, 3)}."


def _status(which: Which, entries: Entries, now: datetime) -> str:
    found = _matching(which, entries.timers)
    if not found:
        raise _Refused(_no_timer(which))
    return " ".join(_left(timer, now) for timer in found)


def _left(timer: Timer, now: datetime) -> str:
    if timer.missed:
        return f"{timer_name(timer, 'The')} ended {say_span(-timer.remaining(now), 1)} ago."
    left = say_span(max(0.0, timer.remaining(now)))
    paused = "" if timer.due else " is paused and"
    return f"{timer_name(timer, 'The')}{paused} has {left} left."


def _change_timers(request: TimerRequest, entries: Entries, now: datetime) -> tuple[Entries, str]:
    found = _matching(request.which, entries.timers)
    if request.do is not Do.CANCEL:
        found = [timer for timer in found if not timer.missed]
    if not found:
        raise _Refused(_no_timer(request.which))
    if len(found) > 1 and not request.which.every:
        names = spoken_list([timer_name(timer) for timer in found])
        raise _Refused(f"There are {len(found)}: {names}. Say which one you mean.")
    changed = {id(timer): _changed(timer, request, now) for timer in found}
    after = Entries(tuple(filter(None, (changed.get(id(entry), entry) for entry in entries.all))))
    names = spoken_list([timer_name(timer) for timer in found])
    verb = "are" if len(found) > 1 else "is"
    if request.do in _DONE:
        done = f"{verb} {_DONE[request.do]}"
    else:
        left = next(filter(None, changed.values())).remaining(now)
        done = f"now has {say_span(left)} left"
    return after, f"{names[0].upper()}{names[1:]} {done}."


def _changed(timer: Timer, request: TimerRequest, now: datetime) -> Timer | None:
    """Return the timer after the request, or None if it is cancelled. Raises _Refused."""
    left = max(0.0, timer.remaining(now))
    match request.do:
        case Do.CANCEL:
            return None
        case Do.PAUSE:
            return replace(timer, due=None, left=left)
        case Do.RESUME:
            ends = timer.due or now + timedelta(seconds=left)
            return replace(timer, due=ends, left=0.0)
        case _:
            change = request.seconds if request.do is Do.ADD else -request.seconds
            if left + change <= 0:
                raise _Refused(f"{_left(timer, now)} It was not shortened.")
            if timer.due is None:
                return replace(timer, left=left + change)
            return replace(timer, due=timer.due + timedelta(seconds=change))


def _matching(which: Which, timers: Sequence[Timer]) -> list[Timer]:
    if which.name:
        name = which.name.lower().removesuffix("s")
        return [timer for timer in timers if timer.name.lower().removesuffix("s") == name]
    if which.seconds:
        return [timer for timer in timers if timer.seconds == which.seconds]
    return list(timers)


def _no_timer(which: Which) -> str:
    if which.name:
        return f"There is no timer called {which.name}."
    if which.seconds:
        return f"There is no timer for {say_span(which.seconds)}."
    return "There is no timer."


def _remind(request: NewReminder, entries: Entries, now: datetime) -> tuple[Entries, str]:
    if len(entries.reminders) >= MOST_ENTRIES:
        raise _Refused(f"There are already {MOST_ENTRIES} reminders. Cancel some first.")
    after = Entries((*entries.all, Reminder(utc(request.at), request.about[:200])))
    when = say_moment(request.at, now)
    if not request.about:
        return after, f"Your alarm is set for {when}."
    about = request.about
    return after, f"I will remind you {when}{'' if about.startswith('that ') else ':'} {about}."


def _list(entries: Entries, now: datetime) -> str:
    if not entries.reminders:
        return "There are no reminders."
    told = [
        f"{say_moment(local(one.due), now)}: {'missed, ' * one.missed}{one.title}"
        for one in sorted(entries.reminders, key=lambda one: one.due)
    ]
    return f"{'. '.join(part[0].upper() + part[1:] for part in told)}."


def _cancel_reminders(request: CancelReminder, entries: Entries) -> tuple[Entries, str]:
    about, kind = request.about.lower(), "alarm" if request.alarm else "reminder"
    named = [one for one in entries.reminders if one.name and about in one.name.lower()]
    unnamed = [one for one in entries.reminders if not one.name and not about]
    found = unnamed if request.alarm and not about else named or unnamed
    if not found:
        raise _Refused(f"There is no such {kind}." if about else f"There is no {kind}.")
    if len(found) > 1 and not request.every:
        which = "I can only cancel all of them" if found == unnamed else "Say what the one is about"
        raise _Refused(f"There are {len(found)} {kind}s. {which}.")
    after = Entries(tuple(entry for entry in entries.all if entry not in found))
    names = spoken_list([one.name or "the alarm" for one in found])
    return after, f"Cancelled: {names}."
