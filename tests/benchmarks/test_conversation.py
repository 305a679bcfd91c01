"""The comparison of the two ends of a conversation."""

from __future__ import annotations

import pytest

from benchmarks.conversation import questions, report
from voxtui.dialogue.data import SKILL
from voxtui.dialogue.timestamps import Outcome, Turn


def turn(number: int, ms: float, brain: str = "embedded") -> Turn:
    timestamps = {"released": 0.0, "first_token": ms / 1000, "first_sound": ms / 500}
    return Turn(number, brain, Outcome.ANSWERED, timestamps)


def test_a_question_that_a_rule_answered_at_one_end_is_compared_at_neither() -> None:
    turns = [turn(n, 100 if n < 15 else 150) for n in range(30)]
    turns[3], turns[29] = turn(3, 1.0, SKILL), turn(29, 1.0, SKILL)
    turns[23], turns[9] = turn(23, 9000.0), turn(9, 9000.0)
    assert report("typed", turns) == [
        "| typed | first token | 100 | 100 | 150 | 150 | 1.50 |",
        "| typed | first sound | 200 | 200 | 300 | 300 | 1.50 |",
    ]


@pytest.mark.parametrize(("turns", "ends"), [(30, 10), (20, 10), (5, 2)])
def test_a_conversation_ends_with_the_questions_with_which_it_begins(turns: int, ends: int) -> None:
    asked = questions(turns)
    assert len(asked) == turns
    assert asked[:ends] == asked[-ends:]


def test_the_ends_of_a_short_conversation_do_not_overlap() -> None:
    first, *_ = report("typed", [turn(n, 100 if n < 2 else 150) for n in range(4)])
    assert first.endswith("| 1.50 |")
