"""The instruction, the examples and the guard against loops."""

from __future__ import annotations

import pytest

from voxtui.brains.prompting import EXAMPLES, examples, until_repeated
from voxtui.settings.schema import BrainConfig, Config


def test_an_instruction_of_the_users_own_stands_without_the_examples() -> None:
    assert examples(Config()) == EXAMPLES
    assert examples(Config(brain=BrainConfig(instruction="You are a pirate."))) == ()


def cut(text: str) -> str:
    return "".join(until_repeated(word + " " for word in text.split())).strip()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            "The fox asked what the bird was singing. " * 9,
            "The fox asked what the bird was singing. The fox asked what the bird was singing. The",
        ),
        ("thank you " * 20, "thank you thank you thank you thank you"),
    ],
)
def test_a_reply_that_goes_in_circles_ends(text: str, kept: str) -> None:
    assert cut(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "No, no, no, I can't do that.",
        "One, two, three, one, two, three, dance.",
        "Anna is older than Ben. Ben is older than Carl. So Anna is older than Carl.",
        "Row, row, row your boat, gently down the stream. Merrily, merrily, merrily, merrily, "
        "life is but a dream.",
    ],
)
def test_an_ordinary_reply_stays_whole(text: str) -> None:
    assert cut(text) == text
