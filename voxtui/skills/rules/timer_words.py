"""Read requests about timers, and about reminders and alarms at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from itertools import chain

from voxtui.skills.rules import intents
from voxtui.skills.rules.days import Ambiguous
from voxtui.skills.rules.forms import english, matches, pattern
from voxtui.skills.rules.hours import read_moment
from voxtui.skills.rules.intents import Do, Question, TimerRequest, Which
from voxtui.skills.rules.normalise import normalise, seconds_in, strip_courtesy
from voxtui.skills.rules.spoken import SNOOZE_SECONDS

LONGEST_SECONDS = 30 * 86_400

_CHANGES, _TIMERS, _REMINDERS = english("timer_changes"), english("timers"), english("reminders")
_RINGING = english("ringing")

_REF = pattern(
    r"{leading}(?P<every>all|every|both|each)?(?: (?:of|the|my|our|those|these|them)\b)* ?"
    r"(?P<before>(?:\S+ )*?){timer}"
    r"(?: (?:called|named|for|in(?! {span}$)|with the name) {leading}(?P<after>.+?))?"
)
_SPAN, _NAME, _VAGUE = pattern("{span}"), pattern("{timer_name}"), pattern("{vague}")
_LEADING, _OWN = pattern("^{leading}"), pattern("^{own}")
_MORE = pattern(r"\b(?:another|extra|additional|more) | more$")
_NO_NAME = pattern(
    r"\b(?:{span}|half|quarter|and|minus|negative|seconds?|minutes?|hours?|days?|for|of|timer)\b"
    r"|\b(?:how|what|why|when|where|who|is|are)\b"
)
"""Matches parts of a request at the place of a name that are no name."""
_STARTS_WITH_TIME = pattern("(?:(?:and|or) )?{when} ")
_TWICE = pattern(r"(?:^|.* ){number} (\w)\w*\b.* {number} \1")  # `5 minutes 5 minutes`


def understand(text: str) -> TimerRequest | Question | None:
    changes = matches(_CHANGES, _MORE.sub("", text))
    for kind, words in chain(changes, matches(_TIMERS, text)):
        if kind == "ask_length":
            return _ask_length(words)
        if kind == "start":
            request = _start(words)
        else:
            which = read_which(words["ref"]) if words.get("ref") else Which()
            seconds = seconds_in(words.get("span", ""))
            request = which and TimerRequest(Do(kind), which, seconds)
        if request is not None:
            return request
    return None


def _start(words: Mapping[str, str]) -> TimerRequest | Question | None:
    names = [name for key in ("before", "name", "last") if (name := words.get(key))]
    unclear = len(names) > 1 or _TWICE.match(words["span"])
    if unclear or any(_NO_NAME.search(name) for name in names if name != "second"):
        return None
    seconds = seconds_in(words["span"])
    if not 1 <= seconds <= LONGEST_SECONDS:
        return Question("A timer takes from one second to 30 days. For how long?")
    return TimerRequest(Do.START, Which(names[0].lower() if names else ""), seconds)


def _ask_length(words: Mapping[str, str]) -> Question | None:
    before, name = words.get("before", ""), words.get("name", "")
    about = _OWN.sub("", name)
    vague = _VAGUE.fullmatch(name)
    if not vague and (re.search(r"\d", about) or len(about.split()) > 3 or _NO_NAME.search(before)):
        return None
    name = "" if vague else before or about
    named = f" called {name}" if name else ""
    return Question("For how long?", f"set a timer{named} for {{}}")


def read_which(text: str) -> Which | None:
    ref = _REF.fullmatch(text)
    if ref is None:
        return None
    words = " ".join(filter(None, (ref["before"].strip(), ref["after"]))).lower()
    words, every = _LEADING.sub("", words), bool(ref["every"])
    if _SPAN.fullmatch(words):
        return Which(seconds=seconds_in(words), every=every)
    unnamed = _NO_NAME.search(ref["after"] or "")  # `for a second`
    if words and (unnamed or re.search(r"\d", words) or not _NAME.fullmatch(words)):
        return None
    return Which(words, every=every)


def understand_reminder(text: str, now: datetime) -> intents.Request | Question | None:
    for kind, words in matches(_REMINDERS, text):
        about = words.get("about", "").strip()
        match kind:
            case "list":
                return intents.ListReminders()
            case "condition":
                return None  # it would come more than once, or at no certain time
            case "cancel":
                hour, alarm = words.get("hour"), bool(words.get("alarm"))
                time = f"{hour}:{words['minute'] or '00'} {words['half'].lower()}" if hour else ""
                return intents.CancelReminder(about, bool(words.get("every")), alarm, time)
            case "ask_when":
                retry = f"remind me {{}} to {about}" if about else f"{text} {{}}"
                return Question("When?", retry)
            case _ if _STARTS_WITH_TIME.match(f"{about} "):
                continue  # the form cut the time in two
            case _:
                return _remind(words["when"], about, now, bool(words.get("alarm")))
    return None


def _remind(when: str, about: str, now: datetime, alarm: bool) -> intents.NewReminder | Question:
    try:
        return intents.NewReminder(read_moment(when, now), about, alarm)
    except Ambiguous as question:
        # The day or the part of it stays in the request that the user's next words complete.
        stays = f"{when} " if str(question).startswith(("At what", "In the")) else ""
        request = "set an alarm for" if alarm else "remind me"
        retry = f"{request} {stays}{{}}{f' to {about}' * bool(about)}"
        return Question(str(question), retry)


def ringing_orders(words: str) -> dict[str, float]:
    """Return the orders in `words` to what rings: `stop`, `clear`, or `snooze` with its seconds."""
    plain = strip_courtesy(normalise(words)).lower() or words.strip(" .!?").lower()
    plain = plain.replace("more minutes", "minutes more")
    said = ((kind, seconds_in(words.get("span", ""))) for kind, words in matches(_RINGING, plain))
    return {kind: min(max(seconds or SNOOZE_SECONDS, 1.0), 86_400.0) for kind, seconds in said}
