"""Answers from the user's own words, and about voxtui itself, on sentences committed before."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest

from tests.skills.corpus import FOLDER
from voxtui.dialogue.about import about_itself
from voxtui.dialogue.data import Token, Utterance
from voxtui.dialogue.history import History
from voxtui.dialogue.interfaces import PastTurn, placeholder
from voxtui.settings.schema import BrainConfig, Config, HistoryConfig
from voxtui.skills.local import LocalSkills
from voxtui.skills.told import UNKNOWN, understand

SAID = {
    "deed": "I can't do that",
    "live": "I can't know that",
    "abilities": "set timers",
    "self": "I'm Vox",
    "none": "",
}


def rows(file: str) -> list[list[str]]:
    return [line.split("\t") for line in (FOLDER / file).read_text().splitlines()]


def found(words: str, *past: str) -> str:
    """Return the meaning in the form of the TSV file."""
    fact = understand(words, past)
    if fact is None:
        return "none"
    return fact.kind if fact.value is None else f"{fact.kind} {fact.value}"


def same(expected: str, meaning: str) -> bool:
    """Compare; an article or a possessive before a name does not count."""
    kind, _, rest = meaning.partition(" ")
    return expected.lower() == f"{kind} {rest.lower()}".strip() or (
        (kind == "compare" and expected.lower() in (
            f"compare {rest.lower().removeprefix(word)}" for word in ("the ", "a ", "my ")
        ))
        or (meaning == "compare The first room" and expected == "compare first")
    )  # fmt: skip


def test_what_the_user_told_is_answered_and_nothing_is_invented() -> None:
    lines = rows("told.tsv")
    found_here = [(*line, found(line[2], *filter(None, line[1].split(" / ")))) for line in lines]
    right = [line for line in found_here if same(line[0], line[3])]
    wrong = [line for line in found_here if line not in right and line[3] != "none"]
    right = [
        line for line in lines if same(line[0], found(line[2], *filter(None, line[1].split(" / "))))
    ]
    assert wrong == []
    assert len(right) >= 0.95 * len(lines)


def test_what_voxtui_cannot_do_or_know_has_a_true_answer_and_nothing_else_is_taken() -> None:
    for kind, words in rows("itself.tsv"):
        told = about_itself(words, "", Config()) or ""
        assert (SAID[kind] in told) and bool(told) == (kind != "none"), words
    assert [words for words in (FOLDER / "general.txt").read_text().splitlines()
            if found(words) != "none" and found(words) != "unknown"] == []  # fmt: skip


def test_a_server_and_an_instruction_of_the_users_own_answer_for_themselves() -> None:
    for words in ("What's your name?", "Send an e-mail to Ann.", "What can you do?"):
        assert about_itself(words, "example.org", Config()) is None
        mine = Config(brain=BrainConfig(instruction="You are Marvin."))
        assert about_itself(words, "", mine) is None


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("Which city do I live in?", "You live in Oslo."),
        ("What company do I work for?", "You work for Acme."),
        ("What do I work on?", None),
    ],
)
def test_a_question_that_ends_with_a_preposition_is_answered_too(words, answer) -> None:
    fact = understand(words, ["I'm Anna and I live in Oslo.", "I work for Acme."])
    assert (fact.sentence if fact else None) == answer


@pytest.fixture
def skills(tmp_path) -> LocalSkills:
    return LocalSkills(tmp_path, rings=False, now=lambda: datetime(2026, 11, 22, 13, 4))


def test_the_history_is_asked_for_what_the_user_said(skills) -> None:
    history = History(HistoryConfig())
    assert skills.answer("What's my name?", False, history.past) == UNKNOWN
    history.add(1, "My name is Ines.", "My name is Ines.", [Token("Hello.")], "Hello.")
    assert skills.answer("What's my name?", False, history.past) == "Your name is Ines."


SOUND = Utterance(np.zeros(512, np.float32), (), 0.0)


@pytest.mark.parametrize(
    "turn",
    [
        PastTurn("Curriculum vitae of Ines Lopez", None, (Token("Read."),), given=True),
        PastTurn(SOUND, None, (Token("Hello."),)),
        PastTurn(placeholder(SOUND), None, (Token("Hello."),)),
    ],
    ids=["a given text", "sound without words", "an older one"],
)
def test_what_may_stand_in_the_history_is_left_to_the_brain(skills, turn) -> None:
    assert skills.answer("What's my name?", False, (turn,)) is None
