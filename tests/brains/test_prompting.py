"""The instruction, the examples and the guard against loops."""

from __future__ import annotations

import re
import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxtui.brains.prompting import EXAMPLES, examples, until_repeated
from voxtui.dialogue.turn_clock import clock_line
from voxtui.settings.schema import BrainConfig, Config


def test_an_instruction_of_the_users_own_stands_without_the_examples() -> None:
    shown = examples(Config(brain=BrainConfig(clock=False)))
    assert shown == EXAMPLES
    assert examples(Config(brain=BrainConfig(instruction="You are a pirate."))) == ()


def test_the_first_example_shows_that_the_time_is_not_to_be_repeated() -> None:
    (words, reply), *others = examples(Config())
    assert tuple(others) == examples(Config(brain=BrainConfig(clock=False)))[1:]
    assert (words.partition("\n")[2], reply) == EXAMPLES[0]
    # The form of the line before a turn.
    assert words.startswith(f"{clock_line(datetime(2025, 6, 6, 8, 41), ())}\n")


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


def runs(words: list[str], length: int) -> int:
    """Count how often the last `length` of `words` stand in them."""
    starts = range(len(words) - length + 1)
    return sum(words[start : start + length] == words[-length:] for start in starts)


@given(st.lists(st.sampled_from(["a", "b", "ab", " ", " a b", ". ", "A", ""]), max_size=80))
def test_a_reply_ends_at_the_token_that_completes_a_repetition(texts: list[str]) -> None:
    kept = list(until_repeated(texts))
    assert kept == texts[: len(kept)]
    for end in range(1, min(len(kept) + 1, len(texts)) + 1):
        words = re.findall(r"\w+", "".join(texts[:end]).lower())
        repeated = runs(words, 5) >= 3 or runs(words, 10) >= 2
        assert repeated == (end > len(kept))


def test_the_work_is_in_proportion_to_the_reply() -> None:
    texts = [f"word{number} " for number in range(4096)]
    begun = time.thread_time()
    assert list(until_repeated(texts)) == texts
    assert time.thread_time() - begun < 5.0  # 0.1 s if linear, 14 s if each token reads all words
