"""Requests about timers, and about reminders and alarms at a time."""

from __future__ import annotations

import re
from datetime import datetime

from voxtui.skills.days import Ambiguous
from voxtui.skills.hours import BARE_WHEN, WHEN, read_moment
from voxtui.skills.intents import (
    CancelReminder,
    Do,
    ListReminders,
    NewReminder,
    Question,
    TimerRequest,
    Which,
)
from voxtui.skills.normalise import SPAN, VAGUE, patterns, seconds_in

LONGEST_SECONDS = 30 * 86_400

_TIMER = r"(?:timers?|countdowns?)"
_LEADING = (
    r"(?:(?:the|a|an|my|our|your|this|that|new|another|current|running|paused|of|these|those"
    r"|other|more) )*"
)
_DETERMINERS = rf"{_LEADING}(?P<every>all|every|both|each)?(?: (?:of|the|my|our|those|these))* ?"

_REF = re.compile(
    rf"{_DETERMINERS}(?P<before>(?:\S+ )*?){_TIMER}"
    rf"(?: (?:called|named|for|in|on|with the name) {_LEADING}(?P<after>.+?))?",
    re.IGNORECASE,
)

_VERBS = {
    Do.CANCEL: r"(?:cancel|stop|delete|remove|clear|end|kill|turn off|switch off|abort|dismiss)",
    Do.PAUSE: r"(?:pause|hold|suspend|freeze|halt)",
    Do.RESUME: r"(?:resume|continue|unpause|carry on with|go on with|restart(?= the paused))",
}
_SIMPLE = tuple(
    (do, re.compile(rf"{verb} (?P<ref>.+)", re.IGNORECASE)) for do, verb in _VERBS.items()
)

_LEFT = r"(?:left|remaining|remains|to go)"
_HOW_LONG = r"how (?:long|much (?:time|longer)|many (?:hours|minutes|seconds))"
_STATUS = patterns(
    rf"{_HOW_LONG}(?: (?:is|are|time|do i have|have i got))? {_LEFT}"
    r"(?: (?:on|for|of) (?P<ref>.+))?",
    rf"{_HOW_LONG} (?:is|are) there {_LEFT} (?:on|for) (?P<ref>.+)",
    rf"{_HOW_LONG} do(?:es)? (?P<ref>.+?) (?:still )?have(?: {_LEFT})?",
    rf"{_HOW_LONG} (?:is it )?(?:until|till|before) (?P<ref>.+?)"
    rf" (?:rings?|goes off|go off|ends?|is (?:done|over|up|finished))",
    r"how (?:long|much longer) (?:for|on) (?P<ref>.+)",
    r"when (?:does|do|is|are|will) (?P<ref>.+?) (?:be )?"
    r"(?:done|go off|going off|ring|end|over|up|finished|finish|ready)",
    r"(?P<ref>.+) status",
    r"(?:what is )?(?:the )?status of (?P<ref>.+)",
    rf"(?:what is |what time is |how much )?(?:the )?(?:time )?{_LEFT} (?:on|for) (?P<ref>.+)",
    r"(?:which|what) (?P<ref>timers) (?:are (?:running|set|active|on|there)|do i have|have i"
    r"(?: got| set)?|did i set)",
    r"(?:list|show|name|read|check)(?: me)?(?: on)? (?P<ref>.+)",
    r"(?:are there|do i have|have i got) (?:any |some )?(?P<ref>timers?)"
    r"(?: (?:running|set|active|on|left))?",
    r"is there (?:a|any) (?P<ref>timer)(?: (?:running|set|active|on))?",
    r"(?:is|are) (?P<ref>.+?) (?:still )?(?:running|on|going|active)",
)
_ADD = patterns(
    rf"(?:add|put) (?P<span>{SPAN}) (?:to|on|onto) (?P<ref>.+)",
    rf"give (?P<ref>.+?) (?P<span>{SPAN})",
    rf"(?:extend|increase|lengthen|prolong) (?P<ref>.+) by (?P<span>{SPAN})",
    rf"make (?P<ref>.+?) (?P<span>{SPAN}) longer",
)
_REMOVE = patterns(
    rf"(?:remove|subtract|deduct|take|knock|shave|cut) (?P<span>{SPAN})"
    rf" (?:from|off|off of|away from|out of) (?P<ref>.+)",
    rf"(?:decrease|reduce|shorten|cut) (?P<ref>.+) by (?P<span>{SPAN})",
    rf"make (?P<ref>.+?) (?P<span>{SPAN}) shorter",
)
_MORE = re.compile(r"\b(?:another|extra|additional|more) ", re.IGNORECASE)

_SET = (
    r"(?:(?:please )?(?:set|start|begin|create|make|run|launch|add|give me|get|get me|put on|i need"
    r"|i want|i would like|i (?:really )?need to set|i must set|i gotta (?:set|have)"
    r"|let's (?:set|get)|lets (?:set|get)|let us have|set up|start up)(?: up)? )"
)
_NO_NAMES = (
    r"(?!(?:an?|the|my|your|his|her|their|this|that|i|you|he|she|it|we|they|who|what|why|how|when"
    r"|where|which|and|or|but|if|to|of|for|from|in|on|at|by|with|me|him|us|them|not|no|never|always"
    r"|already|ever|only|do|does|did|done|is|are|was|were|be|been|am|has|have|had|will|would|can"
    r"|could|should|shall|may|might|must|set|sets|setting|start|starts|started|said|says|told|tell"
    r"|asked|ask|want|wants|wanted|need|needs|needed|forgot|forget|nobody|somebody|everybody|used"
    r"|timers?|yesterday|stop|stopped|please|let|dont|cannot|\w+n't)\b)"
)
"""Words that make a name a sentence, such as `I set a`. A timer would be set by a report of one."""
_ARTICLE = r"(?:(?:a|an|the|my|another|new|me) )*"
_NAME = rf"(?P<{{}}>{_NO_NAMES}[^\W\d_]\S*(?: {_NO_NAMES}[^\W\d_]\S*){{{{0,3}}}}?)"
_OWN = r"(?:the |my |a |an |our |some )?"
_CALLED = r"(?:called|named)"

_START = patterns(
    rf"{_SET}?{_ARTICLE}(?P<span>{SPAN})(?: long)? (?:{_NAME.format('b')} )?{_TIMER}"
    rf"(?: (?:{_CALLED}|for|with the name) {_OWN}{_NAME.format('n')})?",
    rf"{_SET}?{_ARTICLE}(?:{_NAME.format('b')} )?{_TIMER}(?: (?:set|going|running|to go off))?"
    rf"(?: (?:{_CALLED}|for) {_OWN}{_NAME.format('n')})?? ?(?:for|of|to|at|with|from|in)?"
    rf" (?P<span>{SPAN})(?: (?:{_CALLED}|for) {_OWN}{_NAME.format('n2')})?",
    rf"(?:count|start counting) down (?:from |for )?(?P<span>{SPAN})",
    rf"(?:alert|notify) me in (?P<span>{SPAN})",
)
_START_VAGUE = re.compile(
    rf"{_SET}{_ARTICLE}(?:{_NAME.format('b')} )?timer"
    rf"(?: (?:{_CALLED}|for) (?P<n>.+))?|{_SET}{_ARTICLE}(?:(?P<x>\S+) )?countdown",
    re.IGNORECASE,
)
_NO_NAME = re.compile(
    rf"\b(?:{SPAN}|half|quarter|and|seconds?|minutes?|hours?|days?|for|of|timer)\b"
    r"|\b(?:how|what|why|when|where|who|is|are)\b",
    re.IGNORECASE,
)


def understand(text: str) -> TimerRequest | Question | None:
    """Return the request about a timer in a normalised text; None if there is none."""
    low = text.lower()
    if "timer" not in low and "count" not in low:
        if re.fullmatch(rf"{_HOW_LONG} (?:is )?left", low):
            return TimerRequest(Do.STATUS)
        return _start(text) if low.startswith(("alert", "notify")) else None
    return _change(text) or _simple(text) or _status(text) or _start(text)


def _simple(text: str) -> TimerRequest | None:
    for do, pattern in _SIMPLE:
        if (found := pattern.fullmatch(text)) and (which := read_which(found["ref"])):
            return TimerRequest(do, which)
    return None


def _status(text: str) -> TimerRequest | None:
    for pattern in _STATUS:
        if found := pattern.fullmatch(text):
            which = read_which(found["ref"]) if found["ref"] else Which()
            if which is not None:
                return TimerRequest(Do.STATUS, which)
    return None


def _change(text: str) -> TimerRequest | Question | None:
    plain = _MORE.sub("", re.sub(r" more$", "", text))
    for do, forms in ((Do.ADD, _ADD), (Do.REMOVE, _REMOVE)):
        for pattern in forms:
            found = pattern.fullmatch(plain)
            if found and (which := read_which(found["ref"])):
                return TimerRequest(do, which, seconds_in(found["span"]))
    return None


def _start(text: str) -> TimerRequest | Question | None:
    for pattern in _START:
        found = pattern.fullmatch(text)
        if found is None:
            continue
        groups = found.groupdict()
        names = [name for key in ("b", "n", "n2") if (name := groups.get(key))]
        if len(names) > 1 or any(_NO_NAME.search(name) for name in names[:1] if name != "second"):
            continue
        seconds = seconds_in(found["span"])
        if not 0 < seconds <= LONGEST_SECONDS:
            return Question("A timer takes from one second to 30 days. For how long?")
        return TimerRequest(Do.START, Which(names[0].lower() if names else ""), seconds)
    return _missing_span(text)


def _missing_span(text: str) -> Question | None:
    """Ask for the length, if a timer was requested without one or with a vague one."""
    found = _START_VAGUE.fullmatch(text)
    if found is None:
        return None
    about, before = found["n"] or "", found["b"] or ""
    about = re.sub(rf"^{_OWN}", "", about)
    vague = re.fullmatch(VAGUE, found["n"] or "", re.IGNORECASE)
    if not vague and (re.search(r"\d", about) or len(about.split()) > 3 or _NO_NAME.search(before)):
        return None
    name = "" if vague else before or about
    named = f" called {name}" if name else ""
    return Question("For how long?", f"set a timer{named} for {{}}")


def read_which(text: str) -> Which | None:
    """Return the timer that `the pasta timer` or `timer for 5 minutes` means; None for no timer."""
    found = _REF.fullmatch(text)
    if found is None:
        return None
    words = " ".join(filter(None, (found["before"].strip(), found["after"]))).lower()
    words = re.sub(rf"^{_LEADING}", "", words)
    every = bool(found["every"])
    if not words:
        return Which(every=every)
    if re.fullmatch(SPAN, words):
        return Which(seconds=seconds_in(words), every=every)
    if re.search(r"\d", words) or not re.fullmatch(_NAME.format("n"), words):
        return None
    return Which(name=words, every=every)


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
_CANCEL_REMINDER = re.compile(
    r"(?:cancel|delete|remove|clear|stop|turn off) (?:(?P<every>all|every|both)(?: of)? )?"
    r"(?:(?:the|my|that) )?(?:reminders?|alarms?)(?: (?:to|about|that|for) (?P<about>.+))?",
    re.IGNORECASE,
)
_STARTS_WITH_TIME = re.compile(rf"(?:{WHEN}) ", re.IGNORECASE)


def understand_reminder(
    text: str, now: datetime
) -> NewReminder | ListReminders | CancelReminder | Question | None:
    """Return the request about a reminder in a normalised text, at the local time `now`."""
    if not re.search(r"\b(?:remind|reminders?|alarms?|wake)\b", text, re.IGNORECASE):
        return None
    if _LIST.fullmatch(text):
        return ListReminders()
    if _CONDITION.search(text.lower()):
        return None
    if found := _CANCEL_REMINDER.fullmatch(text):
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
