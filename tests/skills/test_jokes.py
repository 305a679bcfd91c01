"""Jokes: about the subject, another each time, and explained."""

from __future__ import annotations

import pytest

from voxtui.dialogue.data import Token
from voxtui.dialogue.protocols import Past, PastTurn
from voxtui.skills.rules.jokes import understand


def replies(*requests: str) -> list[str]:
    past: Past = ()
    for words in requests:
        fact = understand(words, past)
        assert fact is not None, words
        past = (*past, PastTurn(words, words, (Token(fact.sentence),)))
    return [turn.reply_text for turn in past]


def test_a_joke_has_the_subject_and_its_point_is_explained() -> None:
    joke, point = replies("tell me a joke about teachers", "i don't get it")
    assert "teacher" in joke
    assert point.startswith("Bright means clever")


def test_a_joke_is_told_once() -> None:
    told = replies("tell me a joke about dogs", *["another one"] * 8)
    assert len(set(told)) == len(told)


def test_a_subject_without_a_joke_is_admitted() -> None:
    (reply,) = replies("do you know a joke about accordions")
    assert reply.startswith("I know none about accordions, but another: ")


@pytest.mark.parametrize(
    "words",
    [
        "that was no joke",
        "she told me a joke about teachers",
        "another one",
        "i don't get it",
        "who invented the joke",
        "my brother jokes a lot",
    ],
)
def test_other_words_are_left_to_the_brain(words: str) -> None:
    assert understand(words, ()) is None
