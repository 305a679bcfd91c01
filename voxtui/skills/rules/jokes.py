"""Jokes that have a point, and what the point is."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from voxtui.dialogue.protocols import Past
from voxtui.skills.rules.intents import Fact

_REQUEST = re.compile(
    r"(?:do you know|tell me|give me|say|make|crack|have you got|i want to hear|i'd like to hear"
    r"|(?:let me|let's) hear|how about|entertain me with|cheer me up with)? ?"
    r"(?:a|an|another|any|some|one more|one|your best)? ?(?:(?:good|funny|short|silly|new|bad"
    r"|different|clean|dad|nice|other) )*jokes?(?: about (?P<about>[\w' -]{2,30}))?"
    r"(?: (?:again|now|then))?|make me laugh|(?:tell me|say) something funny",
    re.IGNORECASE,
)
_ANOTHER = re.compile(
    r"(?:and |now )?(?:tell me |give me |do you know )?(?:another|one more|a(?: better| different"
    r"| new)? one|another joke|one more joke|more)(?: (?:one|then|of those))?"
    r"(?: about (?P<about>[\w' -]{2,30}))?|(?:that (?:was|is)|that's) not (?:very )?funny"
    r"|i know that(?: one)?(?: already)?",
    re.IGNORECASE,
)
_EXPLAIN = re.compile(
    r"(?:sorry |hm+ )?(?:i (?:don't|didn't|do not|did not) (?:get|understand)(?: (?:it|that"
    r"|the joke|this|that one))?|(?:can you )?explain (?:it|that|the joke|this)(?: to me)?"
    r"|what(?:'s| is) (?:so )?funny(?: about (?:that|it))?|why is (?:that|it) funny"
    r"|what does (?:that|it) mean|what(?:'s| is) the (?:point|joke))",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Joke:
    about: str
    """words of its subjects, or their beginnings, between spaces"""
    text: str
    point: str
    """explains it"""


@cache
def _jokes() -> tuple[Joke, ...]:
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple(Joke(**row) for row in table["joke"])


def understand(text: str, past: Past) -> Fact | None:
    """Return a joke that was not told yet, or the point of the latest one; None if neither."""
    earlier = [joke for turn in past for joke in _jokes() if joke.text in turn.reply_text]
    latest = earlier[-1] if earlier and past and earlier[-1].text in past[-1].reply_text else None
    if latest and _EXPLAIN.fullmatch(text):
        return Fact("joke", "", latest.point)
    request = _REQUEST.fullmatch(text) or (_ANOTHER.fullmatch(text) if earlier else None)
    if request is None:
        return None
    new = [joke for joke in _jokes() if joke not in earlier]
    if not new:
        return Fact("joke", "", "I don't know any more jokes.")
    before = (_REQUEST.fullmatch(turn.user_text.strip(" .?!")) for turn in reversed(past))
    subject = request["about"] or next((found["about"] for found in before if found), "") or ""
    fitting = [joke for joke in new if _is_about(joke, subject)]
    # Which one is drawn by what was said, so that a conversation can be repeated.
    draw = sum(map(ord, text)) + len(past)
    if request["about"] and not fitting:
        return Fact(
            "joke", "", f"I know none about {subject}, but another: {new[draw % len(new)].text}"
        )
    chosen = fitting or new
    return Fact("joke", "", chosen[0 if fitting and subject else draw % len(chosen)].text)


def _is_about(joke: Joke, subject: str) -> bool:
    return any(
        word.removesuffix("s") == beginning or (len(beginning) > 3 and word.startswith(beginning))
        for word in subject.lower().split()
        for beginning in joke.about.split()
    )
