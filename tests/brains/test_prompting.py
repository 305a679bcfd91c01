"""The instruction, the examples and the guard against loops."""

from __future__ import annotations

import re
import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxtui.brains.prompting import EXAMPLES, LAST_TOKENS, examples, until_repeated
from voxtui.dialogue.dialogue import clock_line
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


def test_few_examples_refuse() -> None:
    refused = [reply for _, reply in EXAMPLES if "can't" in reply or "haven't told" in reply]
    assert 0 < len(refused) <= len(EXAMPLES) / 4


def cut(text: str) -> str:
    return "".join(until_repeated(word + " " for word in text.split())).strip()


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (
            "The fox asked what the bird was singing. " * 9,
            "The fox asked what the bird was singing. The fox asked what the bird was singing.",
        ),
        # A sentence of which nothing was said does not begin.
        ("Go on and on. " * 5, "Go on and on. Go on and on. Go on and on."),
        # It is noticed in the middle of a sentence that goes another way.
        (
            "The snail went to the edge of the big field and slept. "
            "The snail went to the edge of the big field and ate a leaf. The end. The snail",
            "The snail went to the edge of the big field and slept. "
            "The snail went to the edge of the big field and ate a leaf.",
        ),
        ("thank you " * 40, ("thank you " * 16).strip()),  # it has no end
    ],
)
def test_a_reply_that_goes_in_circles_ends_with_a_sentence(text: str, whole: str) -> None:
    assert cut(text) == whole


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
def test_a_reply_goes_on_to_the_end_of_the_sentence_that_repeats(texts: list[str]) -> None:
    kept = list(until_repeated(texts))
    assert kept == texts[: len(kept)]

    def repeats(end: int) -> bool:
        words = re.findall(r"\w+", "".join(texts[:end]).lower())
        return runs(words, 5) >= 3 or runs(words, 8) >= 2

    noticed = next((end for end in range(1, len(texts) + 1) if repeats(end)), None)
    if noticed is None:
        assert kept == texts
        return
    begun = "".join(texts[: noticed - 1]).rpartition(". ")[2].strip()
    rest = texts[noticed - 1 : noticed - 1 + LAST_TOKENS] if begun else []
    ends = (number for number, text in enumerate(rest) if text == ". ")
    assert kept == texts[: noticed - 1] + rest[: next(ends, len(rest)) + 1]


def test_the_work_is_in_proportion_to_the_reply() -> None:
    texts = [f"word{number} " for number in range(4096)]
    begun = time.thread_time()
    assert list(until_repeated(texts)) == texts
    assert time.thread_time() - begun < 5.0  # 0.1 s if linear, 14 s if each token reads all words
