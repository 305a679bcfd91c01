"""Jokes that have a point, and an explanation of the point."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from voxtui.dialogue.protocols import Past
from voxtui.skills.rules.forms import english, matches, read_tables
from voxtui.skills.rules.intents import Fact

_FORMS = english("jokes")


@dataclass(frozen=True, slots=True)
class Joke:
    about: str
    """the words of its subjects, or their beginnings, between spaces"""
    text: str
    point: str


@cache
def _jokes() -> tuple[Joke, ...]:
    return tuple(Joke(**row) for row in read_tables("jokes.toml")["joke"])


def understand(text: str, past: Past) -> Fact | None:
    earlier = [joke for turn in past for joke in _jokes() if joke.text in turn.reply_text]
    latest = earlier[-1] if earlier and past and earlier[-1].text in past[-1].reply_text else None
    requests = dict(matches(_FORMS, text))
    if latest and "explain" in requests:
        return Fact("joke", "", latest.point)
    request = requests.get("request") or (requests.get("another") if earlier else None)
    if request is None:
        return None
    new = [joke for joke in _jokes() if joke not in earlier]
    if not new:
        return Fact("joke", "", "I don't know any more jokes.")
    subject = request["about"]
    fitting = [joke for joke in new if _is_about(joke, subject)]
    # Which one is drawn by what was said, so that a conversation can be repeated.
    draw = sum(map(ord, text)) + len(past)
    chosen = fitting or new
    joke = chosen[0 if fitting and subject else draw % len(chosen)].text
    missing = f"I know none about {subject}, but another: "
    return Fact("joke", "", f"{missing * bool(subject and not fitting)}{joke}")


def _is_about(joke: Joke, subject: str) -> bool:
    return any(
        word.removesuffix("s") == beginning or (len(beginning) > 3 and word.startswith(beginning))
        for word in subject.lower().split()
        for beginning in joke.about.split()
    )
