"""Requests about reminders and alarms at a time."""

from __future__ import annotations

import re
from datetime import datetime

from voxtui.skills.days import Ambiguous
from voxtui.skills.hours import BARE_WHEN, WHEN, read_moment
from voxtui.skills.intents import CancelReminder, ListReminders, NewReminder, Question
from voxtui.skills.normalise import patterns

_MAKE = (
    r"(?:set|make|create|add|schedule|initiate|put in|give me|i need|i want|i would like)(?: up)?"
)
_ONE = r"(?: me)?(?: (?:an?|the|my|another|new))*"
_REMIND = rf"(?:remind me|{_MAKE}{_ONE} reminder(?: set)?(?: for me)?)"
_BUZZ = r"alarm(?: clock)?(?: (?:set|to go off|to ring|to wake me(?: up)?))?(?: for me)?"
_ALARM = rf"(?:{_MAKE}{_ONE} {_BUZZ}|(?:an )?{_BUZZ})"
_WAKE = r"wake me(?: up)?"
_TO = r"(?:to|about|of)"
_ABOUT = r"(?P<about>(?:that )?\S.*?)"

_WITH_TIME = patterns(
    rf"{_REMIND} (?:for )?(?P<when>{WHEN}) (?:{_TO} )?{_ABOUT}",
    rf"{_REMIND} (?:{_TO}|(?=that )) ?{_ABOUT} (?:for )?(?P<when>{WHEN})",
    rf"(?P<when>{WHEN}) {_REMIND} (?:{_TO}|(?=that )) ?{_ABOUT}",
    rf"{_REMIND} (?:for )?(?P<when>{WHEN})",
    rf"(?:{_ALARM}|{_WAKE}) (?:for |at )?(?P<when>{BARE_WHEN})",
)
_WITHOUT_TIME = re.compile(
    rf"(?P<verb>{_REMIND}) (?:(?P<later>later|soon|sometime) )?to {_ABOUT}"
    rf"|(?:{_MAKE}{_ONE} {_BUZZ}|{_WAKE}|{_MAKE}{_ONE} reminder)",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:every|each|daily|weekly|whenever|next time|when|once|until|unless|if|another|list"
    r"|again)\b"
)
"""With one of these in it, a reminder comes more than once, or at no certain time."""
_LISTED = (
    r"(?:(?:the|my|all|of|all of|current|any) )*(?:(?:items|things|reminders) on )?"
    r"(?:my |the )?(?:reminders?(?: list)?|list of reminders|alarms)"
)
_LIST = re.compile(
    rf"(?:what is (?:now |currently )?on {_LISTED}|what are (?:in )?{_LISTED}"
    rf"|(?:list|show|read|repeat|go through|check|see)(?: me| back| out)* {_LISTED}(?: back)?"
    rf"(?: to me)?"
    rf"|what (?:do i have|did i put) (?:on|in) {_LISTED}|(?:{_LISTED})(?<!alarms)(?<!the reminder)"
    r"|(?:what|which) (?:reminders|alarms) (?:do i have|are set|are there|have i(?: set| got)?)"
    r"|(?:list|show|read)(?: me)? (?:all )?(?:my |the )?(?:reminders|alarms)"
    r"|(?:do i have|are there|have i got) any (?:reminders|alarms)(?: set)?"
    r"|what are my (?:reminders|alarms))",
    re.IGNORECASE,
)
_CANCEL = re.compile(
    r"(?:cancel|delete|remove|clear|stop|turn off) (?:(?P<every>all|every|both)(?: of)? )?"
    r"(?:(?:the|my|that) )?(?:reminders?|alarms?)(?: (?:to|about|that|for) (?P<about>.+))?",
    re.IGNORECASE,
)
_STARTS_WITH_TIME = re.compile(rf"(?:{WHEN}) ", re.IGNORECASE)


def understand(
    text: str, now: datetime
) -> NewReminder | ListReminders | CancelReminder | Question | None:
    """Return the request about a reminder in a normalised text, at the local time `now`."""
    if not re.search(r"\b(?:remind|reminders?|alarms?|wake)\b", text, re.IGNORECASE):
        return None
    if _LIST.fullmatch(text):
        return ListReminders()
    if _CONDITION.search(text.lower()):
        return None
    if found := _CANCEL.fullmatch(text):
        return CancelReminder(found["about"] or "", bool(found["every"]))
    for pattern in _WITH_TIME:
        found = pattern.fullmatch(text)
        if found is None:
            continue
        about = (found.groupdict().get("about") or "").strip()
        if _STARTS_WITH_TIME.match(f"{about} "):
            continue  # the pattern cut the time in two
        try:
            return NewReminder(read_moment(found["when"], now), about)
        except Ambiguous as question:
            return Question(str(question), _retry(about, found["when"], str(question)))
    if found := _WITHOUT_TIME.fullmatch(text):
        about = found["about"] or ""
        return Question("When?", f"remind me {{}} to {about}" if about else f"{text} {{}}")
    return None


def _retry(about: str, when: str, question: str) -> str:
    """Return the request into which the answer to `question` is put."""
    kept = f"{when} " if question.startswith(("At what", "In the")) else ""
    return f"remind me {kept}{{}} to {about}" if about else f"set an alarm for {kept}{{}}"
