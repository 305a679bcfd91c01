"""Sentences that were written before the rules: answered rightly, or left to the brain."""

from __future__ import annotations

import re
from datetime import datetime
from fractions import Fraction

import pytest

from tests.skills.corpus import FOLDER
from voxtui.dialogue.data import Token
from voxtui.dialogue.protocols import PastTurn, SkillRequest
from voxtui.skills.assistant_skills import AssistantSkills
from voxtui.skills.rules import sums
from voxtui.skills.rules.intents import Fact
from voxtui.skills.rules.normalise import normalise, strip_courtesy

LINES = [
    line for line in (FOLDER / "held-out.tsv").read_text().splitlines() if line[:1] not in ("#", "")
]


def answer(folder, conversation: str) -> str | None:
    """Return the answer of the skills to the last words of a conversation."""
    *before, words = conversation.split(" | ")
    past = [
        PastTurn(said, said, (Token(reply),), number=number)
        for number, (said, reply) in enumerate((turn.split(" > ") for turn in before), 1)
    ]
    skills = AssistantSkills(folder, rings=False, now=lambda: datetime(2026, 11, 24, 14, 30))
    answered = skills.answer(SkillRequest(words, past=past))
    return answered and answered.text


def right(expected: str, answered: str | None) -> bool:
    kind, pattern = expected[0], expected[1:]
    if answered is None or kind == "-":
        return answered is None and kind != "="
    return re.search(pattern, answered, re.IGNORECASE) is not None


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("line", LINES)
def test_it_is_answered_rightly_or_left_to_the_brain(tmp_path, line):
    conversation, expected = line.split("\t")
    answered = answer(tmp_path, conversation)
    assert right(expected, answered), answered


def test_spoken_sums_are_right_or_left_to_the_brain():
    computed = 0
    for line in (FOLDER / "sums.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        says, value = line.split("\t")
        meaning = sums.understand(strip_courtesy(normalise(says)))
        if value == "-" or meaning is None:
            assert meaning is None, says
        else:
            assert isinstance(meaning, Fact) and meaning.value == Fraction(value), says
            computed += 1
    assert computed >= 75
