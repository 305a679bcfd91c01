"""True answers about the assistant: what it hears, stores, sends, and cannot do.

A language model invents these answers. They are promises, so they come from the configuration.
The forms of the questions are in about_itself.toml.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from voxtui.settings.schema import Config

_ABILITIES = {
    "deed": "I can't do that. I can only talk with you.",
    "live": "I can't know that, because I can't see anything and have no internet.",
    "can": "I can talk with you and answer questions. I can also set timers and reminders, "
    "calculate, and tell the time and the date.",
    "name": "I'm Vox, a voice assistant.",
}
"""A request for a deed gets an answer too, because a small model says that it has done it."""


def about_itself(words: str, sends_to: str, config: Config) -> str | None:
    """Return the answer to a question about the assistant itself; None for any other words.

    `sends_to`: the host that gets the user's voice and words; empty if they stay here.
    """
    asked = re.sub(r"\b(what|who|how|where)'s\b", r"\1 is", words.lower().replace("’", "'"))
    asked = " ".join(re.sub(r"[^\w'\- ]+", " ", asked).split())
    kind = next((kind for kind, form in FORMS.items() if form.fullmatch(asked)), "")
    if kind in _ABILITIES:
        # A server may have tools, and the user's instruction another name.
        own = sends_to or config.brain.instruction != type(config.brain)().instruction
        return None if own else _ABILITIES[kind]
    stored = config.session.keep
    match kind:
        case "hears" if config.vad.hands_free:
            return "Hands-free is on, so I listen for your voice all the time."
        case "hears":
            return "Only with the talk key: from just before you press it until your turn ends."
        case "remembers" if stored:
            return "Yes, this conversation goes on when you come back, until you start a new one."
        case "remembers":
            return "Only this conversation. It is gone when you start a new one or quit."
        case "keeps":
            return _keeps(sends_to, stored)
        case "sends" if sends_to:
            return f"Your voice and your words go to {sends_to}, and nowhere else."
        case "sends":
            return "Your voice and your words stay on this computer. Nothing is sent anywhere."
        case "runs" if sends_to:
            return f"The model that answers you runs at {sends_to}."
        case "runs":
            return "I run entirely on this computer and need no internet."
        case "being":
            return "I am a computer program, a voice assistant, and not a person."
        case _:
            return None


def _keeps(sends_to: str, stored: bool) -> str:
    if stored:
        what = f"What you say goes to {sends_to}. Here" if sends_to else "As you chose,"
        sent = "" if sends_to else " It is never sent anywhere."
        return f"{what} this conversation is kept in a file until you start a new one.{sent}"
    if sends_to:
        return f"What you say goes to {sends_to}. Here it is stored only when you ask for that."
    return (
        "What you say stays in the memory of this computer until you quit. "
        "It is stored only when you ask for that, and never sent anywhere."
    )


def _forms() -> dict[str, re.Pattern[str]]:
    """Return the patterns by the kind of question, in the order in which they are tried."""
    file = Path(__file__).with_suffix(".toml")
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    parts: dict[str, str] = tables["parts"]

    def whole(form: str) -> str:
        return re.sub(r"\{([a-z]+)\}", lambda part: whole(parts[part[1]]), form)

    opening, closing = parts["opening"], parts["closing"]
    return {
        kind: re.compile(f"{opening}(?:{'|'.join(map(whole, lines))}){closing}")
        for kind, lines in tables["forms"].items()
    }


FORMS = _forms()

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
