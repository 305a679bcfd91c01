"""The rules by which benchmarks/answers.py judges replies."""

from __future__ import annotations

import re

import pytest

from benchmarks.answers import KNOWLEDGE, Conversation, Expected, Judged, judge, read, summary
from tests.brains.conftest import small
from tests.fakes import ScriptedBrain
from voxtui.skills.assistant_skills import AssistantSkills

NAME = Expected("My name is Peter.", "peter|meet", r"\bmy name is")


@pytest.mark.parametrize("name", ["build", "judge"])
def test_each_set_has_sixty_turns_and_sixty_questions(name: str) -> None:
    talks = read(name)
    turns = [turn for talk in talks if talk.topic != KNOWLEDGE for turn in talk.turns]
    questions = [turn for talk in talks if talk.topic == KNOWLEDGE for turn in talk.turns]
    assert (len(turns), len(questions)) == (60, 60)
    for turn in turns + questions:
        re.compile(turn.needs)
        re.compile(turn.forbids)


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        ("Nice to meet you, Peter.", ""),
        ("My name is Peter.", "says “My name is”"),
        ("Hello.", "does not say what it must"),
        ("Peter, today is [insert date].", "has “[”"),
        ("Peter asks:\n1. Who?\n2. When?", "has “1.”"),
        ("Peter sang. " + "He asked what it was singing. " * 3, "repeats itself"),
        ("Peter " * 61, "repeats itself"),
        ("Peter " + " ".join(map(str, range(61))), "has 62 words"),
    ],
)
def test_a_reply_is_judged_by_its_patterns_and_the_rules_for_all(
    reply: str, complaint: str
) -> None:
    assert NAME.complaint(reply) == complaint


def test_each_turn_has_the_earlier_ones_of_its_conversation_as_history(tmp_path) -> None:
    brain = ScriptedBrain(["Nice ", "to meet you."])
    talks = [Conversation("talk", [NAME, NAME]), Conversation(KNOWLEDGE, [NAME])]
    judged = list(judge(brain, AssistantSkills(tmp_path, rings=False), talks, small()))
    assert [len(past) for past in brain.pasts] == [0, 1, 0]
    assert [row["n"] for row in summary(judged)] == [2, 2, 1]
    assert all(isinstance(one, Judged) for one in judged)
