from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import product
from typing import Literal, TypeAlias

from msgspec.structs import replace

from voxtui.skills.local_time import local, utc
from voxtui.skills.rules import intents
from voxtui.skills.rules.forms import english, matches, pattern
from voxtui.skills.rules.intents import Do, NewReminder, Question, TimerRequest, Which
from voxtui.skills.rules.normalise import normalise, strip_courtesy
from voxtui.skills.rules.spoken import MONTHS, say_moment, say_span, say_time, spoken_list
from voxtui.skills.rules.understand import understand
from voxtui.skills.timer_alarm import timer_name
from voxtui.skills.timer_store import MOST_ENTRIES, Entries, Reminder, Timer, TimerStore

Made: TypeAlias = TimerRequest | NewReminder
"""A request that has set something."""

_AROUND = pattern("^{around_answer} | {around_answer}$")
"""Matches words around an answer that are none of it."""

_CORRECTIONS, _OTHER_DAY = english("corrections"), pattern(r"\b(?:{day}|{span})\b")

_DONE = {Do.CANCEL: "cancelled", Do.PAUSE: "paused", Do.RESUME: "running again"}


class _Refused(Exception):
    """The request was not carried out. The arguments are those of a Question."""


def _ask_which(names: list[str], retry: str) -> _Refused:
    return _Refused(f"There are {len(names)}: {spoken_list(names)}. Say which one you mean.", retry)


def completed(asked: Question, words: str, now: datetime) -> intents.Meaning | None:
    """Return the request that `words` complete in answer to `asked`, or None."""
    answer = _AROUND.sub("", strip_courtesy(words.strip(" .?!")))
    for said in (answer, f"at {answer}"):
        meaning = understand(asked.retry.replace("{}", said, 1), now)
        if meaning is not None and getattr(meaning, "sentence", "") != asked.sentence:
            return meaning
    return None


def undoing(made: Made) -> intents.Request:
    """Return the request that cancels what `made` has set."""
    if isinstance(made, TimerRequest):
        return TimerRequest(Do.CANCEL, Which(made.which.name, made.seconds))
    return intents.CancelReminder(made.about, False, made.alarm, say_time(made.at))


def correction(made: Made, words: str, now: datetime) -> Made | Literal["undo"] | None:
    """Return what `words`, said directly after `made`, want in its place, or "undo", or None."""
    text = strip_courtesy(normalise(words)).lower()
    kind, found = next(matches(_CORRECTIONS, text), ("", {"value": ""}))
    if kind != "change":
        return "undo" if kind else None
    value = found["value"]
    if isinstance(made, TimerRequest):
        called = f" called {made.which.name}" if made.which.name else ""
        request, days = f"set a timer{called} for", [""]
        about, spoken = "", [value]
    else:
        about = made.about if made.about.startswith("that ") else f"to {made.about}"
        about = f" {about}" if made.about else ""
        request = "set an alarm for" if made.alarm else "remind me"
        days = [f" on {MONTHS[made.at.month - 1]} {made.at.day} {made.at.year}"]
        if made.at.date() == now.date() or _OTHER_DAY.search(value):
            days.append("")
        # `eight` in place of seven in the evening is in the evening.
        pm = [f"at {value} pm"] if made.at.hour >= 12 else []
        spoken = [*pm, value, f"at {value}", f"in {value}"]
    for day, said in product(days, spoken):
        meaning = understand(f"{request}{day} {said}{about}", now)
        if isinstance(meaning, NewReminder) and isinstance(made, NewReminder):
            if meaning.about == made.about:
                return meaning
        elif isinstance(meaning, TimerRequest) and meaning.which == getattr(made, "which", None):
            return meaning
    return None


def acts(request: intents.Request) -> bool:
    """Return True if the request changes something."""
    return request != intents.ListReminders() and getattr(request, "do", None) is not Do.STATUS


def carry_out(
    request: intents.Request, store: TimerStore, now: datetime, instead_of: Made | None = None
) -> str | Question:
    """Carry out `request` at the local time `now`; return what to say. Raises InputError.

    What `instead_of` has set is removed in the same step.
    """
    try:
        with store.changing() as change:
            entries = _without(instead_of, change.entries) if instead_of else change.entries
            change.entries, sentence = _carried_out(request, entries, now)
        return sentence
    except _Refused as refused:
        return Question(*refused.args)
    except (OverflowError, ValueError):  # the latter from Timer and Reminder
        return "That is too late: a calendar ends with the year 9999."


def _carried_out(request: intents.Request, entries: Entries, now: datetime) -> tuple[Entries, str]:
    match request:
        case TimerRequest(Do.START):
            return _start(request, entries, utc(now))
        case TimerRequest(Do.STATUS):
            found = _found(request.which, entries.timers)
            return entries, " ".join(_left(timer, utc(now)) for timer in found)
        case TimerRequest():
            return _change_timers(request, entries, utc(now))
        case NewReminder():
            return _remind(request, entries, now)
        case intents.ListReminders():
            return entries, _list(entries, now)
        case intents.CancelReminder():
            return _cancel_reminders(request, entries, now)


def _without(made: Made, entries: Entries) -> Entries:
    if isinstance(made, TimerRequest):
        wanted = made.which.name[:100], made.seconds
        found = [one for one in entries.timers if (one.name, one.seconds) == wanted]
    else:
        wanted = made.about[:200], utc(made.at)
        found = [one for one in entries.reminders if (one.name, one.due) == wanted]
    if not found:
        raise _Refused("There is no timer to change.")
    return Entries(tuple(entry for entry in entries.all if entry is not found[-1]))


def _start(request: TimerRequest, entries: Entries, now: datetime) -> tuple[Entries, str]:
    if len(entries.timers) >= MOST_ENTRIES:
        raise _Refused(f"There are already {MOST_ENTRIES} timers. Cancel some first.")
    ends = now + timedelta(seconds=request.seconds)
    timer = Timer(request.seconds, ends, name=request.which.name[:100])
    name = f"Your {timer.name} timer" if timer.name else "Your timer"
    return Entries((*entries.all, timer)), f"{name} is set for {say_span(request.seconds, 3)}."


def _left(timer: Timer, now: datetime) -> str:
    if timer.missed:
        return f"{timer_name(timer, 'The')} ended {say_span(-timer.remaining(now), 1)} ago."
    left = say_span(max(0.0, timer.remaining(now)))
    paused = "" if timer.due else " is paused and"
    return f"{timer_name(timer, 'The')}{paused} has {left} left."


def _change_timers(request: TimerRequest, entries: Entries, now: datetime) -> tuple[Entries, str]:
    timers = [one for one in entries.timers if request.do is Do.CANCEL or not one.missed]
    found, change = _found(request.which, timers), f"{request.seconds:g} seconds"
    names = [timer_name(timer) for timer in found]
    if len(found) > 1 and not request.which.every:
        retry = {Do.ADD: f"add {change} to", Do.REMOVE: f"take {change} off"}
        raise _ask_which(names, f"{retry.get(request.do, request.do)} {{}} timer")
    changed = {id(timer): _changed(timer, request, now) for timer in found}
    after = Entries(tuple(filter(None, (changed.get(id(entry), entry) for entry in entries.all))))
    said, verb = spoken_list(names), "are" if len(found) > 1 else "is"
    if request.do in _DONE:
        done = f"{verb} {_DONE[request.do]}"
    else:
        left = next(filter(None, changed.values())).remaining(now)
        done = f"now has {say_span(left)} left"
    return after, f"{said[0].upper()}{said[1:]} {done}."


def _changed(timer: Timer, request: TimerRequest, now: datetime) -> Timer | None:
    """Return the timer after the request, or None if it is cancelled. Raises _Refused."""
    if request.do is Do.CANCEL:
        return None
    change = {Do.ADD: request.seconds, Do.REMOVE: -request.seconds}.get(request.do, 0.0)
    left = max(0.0, timer.remaining(now)) + change
    if change < 0 and left <= 0:
        raise _Refused(f"{_left(timer, now)} It was not shortened.")
    if request.do is Do.PAUSE or (timer.due is None and request.do is not Do.RESUME):
        return replace(timer, due=None, left=left)
    return replace(timer, due=now + timedelta(seconds=left), left=0.0)


def _found(which: intents.Which, timers: Sequence[Timer]) -> list[Timer]:
    """Return the timers that are meant. Raises _Refused if there is none."""
    name = which.name.lower().removesuffix("s")
    named = [one for one in timers if not name or one.name.lower().removesuffix("s") == name]
    found = [one for one in named if which.seconds in (0, one.seconds)]
    if not found:
        length = f" for {say_span(which.seconds)}" if which.seconds else ""
        raise _Refused(f"There is no timer{f' called {which.name}' if name else length}.")
    return found


def _remind(request: NewReminder, entries: Entries, now: datetime) -> tuple[Entries, str]:
    if len(entries.reminders) >= MOST_ENTRIES:
        raise _Refused(f"There are already {MOST_ENTRIES} reminders. Cancel some first.")
    about, when = request.about[:200], say_moment(request.at, now)
    reminder = Reminder(utc(request.at), about, unnamed=not (about or request.alarm))
    after = Entries((*entries.all, reminder))
    if not about:
        return after, f"Your {reminder.title} is set for {when.removeprefix('on ')}."
    return after, f"I will remind you {when}{'' if about.startswith('that ') else ':'} {about}."


def _list(entries: Entries, now: datetime) -> str:
    if not entries.reminders:
        return "There are no reminders."
    told = [
        f"{say_moment(local(one.due), now)}: {'missed, ' * one.missed}{one.title}"
        for one in sorted(entries.reminders, key=lambda one: one.due)
    ]
    return f"{'. '.join(part[0].upper() + part[1:] for part in told)}."


def _cancel_reminders(
    request: intents.CancelReminder, entries: Entries, now: datetime
) -> tuple[Entries, str]:
    kind = "alarm" if request.alarm else "reminder"
    found = [
        one
        for one in entries.reminders
        if request.alarm == (not one.name and not one.unnamed)
        and request.about.lower() in one.name.lower()
        and say_time(local(one.due)).startswith(request.time)
    ]
    if not found:
        raise _Refused(f"There is no {'such ' * bool(request.about or request.time)}{kind}.")
    names = [one.name or f"the {kind} {say_moment(local(one.due), now)}" for one in found]
    if len(found) > 1 and not request.every:
        raise _ask_which(names, f"cancel {'{} alarm' if request.alarm else 'reminder about {}'}")
    after = Entries(tuple(entry for entry in entries.all if entry not in found))
    return after, f"Cancelled: {spoken_list(names)}."
