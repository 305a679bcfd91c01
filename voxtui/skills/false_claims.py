"""Find claims of a model to have set a timer, sent a message and the like, which it cannot do."""

from __future__ import annotations

import re

_THING = r"(?:timers?|reminders?|alarms?|countdown|e-?mails?|messages?|appointments?|events?|call)"
_DONE = r"(?:set|started|created|added|scheduled|sent|saved|stopped|cancell?ed|paused|deleted)"

LONGEST_CLAIM = 80
"""Characters between verb and thing. Without a limit the work is quadratic in a reply without full
stops, and the interpreter serves no key and no signal while it matches a pattern."""

_CLAIM = re.compile(
    rf"\b(?:I|I've|I have|I just|I've just|I have just|I'll|I will|I am|I'm)\b"
    rf"(?: (?:have|just|now|also|already|successfully|be))*"
    rf" (?:{_DONE}|set|start|setting|starting|send|sending|create|creating|schedule|scheduling)\b"
    rf"[^.?!]{{0,{LONGEST_CLAIM}}}\b(?P<a>{_THING})\b"
    rf"|\b(?:your|the|a) (?:[\w-]+ ){{0,4}}(?P<b>{_THING})(?: [\w' -]{{0,40}}?)?"
    rf" (?:is|are|has been|have been|was)(?: now| already| successfully)?"
    rf" (?:{_DONE}|running|on its way)\b"
    rf"|^(?:ok(?:ay)?,? |sure,? |done[,.]? )?(?P<c>{_THING}) {_DONE}\b"
    rf"|\bI(?:'ll| will) (?P<d>remind|wake|notify|alert) you\b",
    re.IGNORECASE,
)

_HERE = re.compile(r"timer|reminder|alarm|countdown|remind|wake|notify|alert", re.IGNORECASE)


def doubt(reply: str) -> str | None:
    """Return a sentence that corrects `reply`, if it claims to have done something; else None."""
    claim = _CLAIM.search(reply.replace("’", "'"))
    if claim is None:
        return None
    thing = next(filter(None, claim.groups()))
    if _HERE.search(thing):
        return "The model said so, but no timer or reminder was changed."
    return f"The model said so, but voxtui cannot do that: nothing was sent or entered ({thing})."
