"""Cutting streamed text into clauses, and choosing the spoken part."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxtui.dialogue.speech.clauses import LONGEST_WORD, clauses, speakable

CPU_SECONDS = 5.0
"""The texts below take at most 0.1 s where the work is linear, and minutes where it is not."""


def cut(text: str) -> list[str]:
    """`clauses` fed word by word, as a model does."""
    words = [w + " " for w in text.split(" ")]
    words[-1] = words[-1].rstrip()
    return [c.strip() for c in clauses(iter(words))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Paris is the capital, and it is old. It is nice.",
            ["Paris is the capital,", "and it is old.", "It is nice."],
        ),
        (
            "The sky is blue because of scattering, mostly.",
            ["The sky is blue", "because of scattering, mostly."],
        ),
        ("Sure! Here is one.", ["Sure!", "Here is one."]),
        (
            "Dr. Smith lives in the U.S. now. He is well.",
            ["Dr. Smith lives", "in the U.S. now.", "He is well."],
        ),
        ("It costs 3.50 dollars. Fine.", ["It costs 3.50 dollars.", "Fine."]),
        ("1. Eat well.\n2. Sleep.", ["1. Eat well.", "2. Sleep."]),
        ("no end at all", ["no end at all"]),
        ("Well, yes, it is nice.", ["Well, yes,", "it is nice."]),
        ("The capital of France is Paris.", ["The capital of France", "is Paris."]),
        ("I know they are here.", ["I know they are here."]),
        ("Mozart was born in Salzburg.", ["Mozart was born", "in Salzburg."]),
        ("Paris is nice. The end of it is here.", ["Paris is nice.", "The end of it is here."]),
        ("", []),
    ],
)
def test_text_is_cut_where_a_speaker_would_breathe(text: str, expected: list[str]) -> None:
    assert cut(text) == expected


@pytest.mark.parametrize(
    ("text", "early"),
    [
        ("eleven, twelve, thir", "eleven, twelve,"),
        ("eleven, twelve,", "eleven, twelve,"),
        ("by the particles of the air", "by the particles"),
        ("tiny particles float everywhere inside the", "tiny particles float everywhere"),
        ("a **very bold", None),
        ("see [the long page", None),
        ("is 10 - 4 = 6", None),
        ("Dr. Smith and", "Dr. Smith"),
        ("Dr. Smith went", None),
        ("one word", None),
        ("```python\nprint(1, 2)\n", None),
    ],
)
def test_a_clause_is_cut_early_where_a_speaker_would_breathe_if_he_must(
    text: str, early: str | None
) -> None:
    found = list(clauses(iter(["Yes. ", text, None])))[1:]
    assert found[0].strip() == (early or text.strip())


def test_the_first_clause_ends_at_its_full_stop() -> None:
    def tokens():  # type: ignore[no-untyped-def]
        yield from ["It", " is", " Paris", "."]
        pytest.fail("the clause was complete at its full stop")

    assert next(clauses(tokens())) == "It is Paris."


def test_an_abbreviation_does_not_end_a_clause() -> None:
    assert next(clauses(iter(["Ask", " Mrs", ".", " Smith", "."]))) == "Ask Mrs. Smith."


@pytest.mark.parametrize("text", ["It is 100.5 metres high.", "It is www.example.org today."])
def test_a_full_stop_in_a_number_or_an_address_does_not_end_a_clause(text: str) -> None:
    tokens = re.findall(r" ?\w+|\W", text)
    assert list(clauses(iter(tokens))) == [text]


@pytest.mark.parametrize(
    ("tokens", "first"),
    [
        (("The capital of Norway is",), "The capital of Norway"),
        (("The", " little", " prince", " was"), "The little prince"),
        (("Some", " spiders", " have"), "Some spiders"),
        (("The", " sky", " is"), None),
        (("The piano was invented by",), "The piano was invented"),
        (("In", " winter", " there", " are"), None),
        (("In", " the", " evening,"), "In the evening,"),
        (("When", " the", " are", "na"), None),  # a token that ends within a word
        (("Cats", " purr", " when", " they", " are"), None),
    ],
)
def test_the_first_clause_ends_with_the_token_that_shows_its_end(
    tokens: tuple[str, ...], first: str | None
) -> None:
    def until_the_end() -> Iterator[str]:
        yield from tokens
        ended.append(True)

    ended: list[bool] = []
    found = next(clauses(until_the_end()))
    assert (found, bool(ended)) == (first or "".join(tokens), first is None)


def test_a_block_of_code_is_one_clause_and_not_read_aloud() -> None:
    before, after = "Use this, please:\n\n", "It adds two numbers."
    code = "```python\ndef add(a, b):\n\n    return a + b  # done. Or not?\n```\n"
    for reply in (code, before + code + after, before + code[:-1]):
        spoken = [speakable(clause) for clause in clauses(iter(reply))]
        assert [text for text in spoken if "code" in text] == ["code"]
        assert not [text for text in spoken if "return" in text or "add(" in text]
    assert next(clauses(iter("```ls``` is short. Yes."))) == "```ls``` is short."


def test_a_minus_does_not_end_the_first_clause() -> None:
    assert next(clauses(iter("The result of 10 - 4 = 6."))) == "The result of 10 - 4 = 6."


def test_a_text_without_punctuation_is_still_spoken_in_pieces() -> None:
    pieces = list(clauses(iter(["word "] * 200)))
    assert len(pieces) > 3 and max(map(len, pieces)) <= 240


@given(st.lists(st.none() | st.text(alphabet="ab1 .,;!?\n\"'-A`*[", max_size=6), max_size=60))
def test_the_clauses_joined_are_the_text(texts: list[str | None]) -> None:
    whole = "".join(text for text in texts if text is not None)
    joined = "".join(clauses(iter(texts)))
    assert whole.startswith(joined) and not whole[len(joined) :].strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**Bold** and `code` and *it*.", "Bold and code and it."),
        ("# Title\n- one\n- two", "Title one two"),
        ("See https://example.org/x?y=1 now", "See link now"),
        ("[name](https://example.org)", "name"),
        ("7\nand 8", "7 and 8"),
        ("42.", "42."),
        ("1969.", "1969."),
        ("1. one\n2. two", "one two"),
        ("-", ""),
        ("[Vox]: Yes", "[Vox]: Yes"),
        ("```python\nprint(1)\n```", "code"),
        ("It is −5, and 10 - 4 = 6.", "It is minus 5, and 10 minus 4 = 6."),
        ("3 * 4 is 24 / 2, from 10-14", "3 times 4 is 24 divided by 2, from 10-14"),
        ("C# is #1, see issue #7", "C sharp is #1, see issue #7"),
        ("!?…", ""),
        ("  ", ""),
    ],
)
def test_markup_is_not_spoken(text: str, expected: str) -> None:
    assert speakable(text) == expected


@pytest.mark.parametrize(
    "tokens",
    [
        ["```\n", *["x = 1. \n"] * 4096, "```\n"],
        ["Use this:\n```\n" + "x = 1. \n" * 12_500],
        ["word " * 20_000],
        ["x" * 100_000],
        ["." * 100_000],
        ["```" + "x. " * 30_000],
        ["```\n```\n" * 12_500],
    ],
    ids=["code", "code at once", "words", "one word", "full stops", "code line", "blocks"],
)
def test_the_work_is_in_proportion_to_the_text(tokens: list[str]) -> None:
    begun = time.thread_time()
    assert "".join(clauses(iter(tokens))).rstrip() == "".join(tokens).rstrip()
    assert time.thread_time() - begun < CPU_SECONDS


def test_a_word_without_end_is_spoken_in_pieces() -> None:
    assert max(map(len, clauses(iter(["x" * 100] * 30)))) == LONGEST_WORD


def test_a_long_block_of_code_is_one_clause_however_it_arrives() -> None:
    code = "```\n" + "x = 1. Done.\n" * 300 + "```\n"
    for tokens in ([code], list(code), code.splitlines(keepends=True)):
        assert list(clauses(iter([*tokens, "That is it."]))) == [code, "That is it."]
