from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxtui.dialogue.clauses import clauses, speakable
from voxtui.dialogue.data import Token, Utterance
from voxtui.dialogue.history import Conversation
from voxtui.settings.schema import HistoryConfig


def cut(text: str) -> list[str]:
    """`clauses` fed as a model would feed it: word by word."""
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
            ["Dr. Smith lives in the U.S. now.", "He is well."],
        ),
        ("It costs 3.50 dollars. Fine.", ["It costs 3.50 dollars.", "Fine."]),
        ("1. Eat well.\n2. Sleep.", ["1. Eat well.", "2. Sleep."]),
        ("no end at all", ["no end at all"]),
        ("Well, yes, it is nice.", ["Well, yes,", "it is nice."]),
        ("The capital of France is Paris.", ["The capital of France", "is Paris."]),
        ("Paris is nice. The end of it is here.", ["Paris is nice.", "The end of it is here."]),
        ("", []),
    ],
)
def test_text_is_cut_where_a_speaker_would_breathe(text: str, expected: list[str]) -> None:
    assert cut(text) == expected


def test_the_first_full_stop_is_not_waited_past() -> None:
    def tokens():  # type: ignore[no-untyped-def]
        yield from ["It", " is", " Paris", "."]
        pytest.fail("the clause was complete at its full stop")

    assert next(clauses(tokens())) == "It is Paris."


def test_the_full_stop_of_an_abbreviation_is_waited_past() -> None:
    assert next(clauses(iter(["Ask", " Mrs", ".", " Smith", "."]))) == "Ask Mrs. Smith."


@pytest.mark.parametrize("text", ["It is 100.5 metres high.", "It is www.example.org today."])
def test_a_stop_inside_a_number_or_an_address_is_waited_past(text: str) -> None:
    assert list(clauses(iter(text))) == [text]


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


@given(st.lists(st.text(alphabet="ab1 .,;!?\n\"'-A`", max_size=6), max_size=60))
def test_clauses_lose_and_invent_nothing(texts: list[str]) -> None:
    whole = "".join(texts)
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
def test_what_is_spoken_holds_no_markup(text: str, expected: str) -> None:
    assert speakable(text) == expected


def remember(conversation: Conversation, reply: str, heard: str | None = None) -> None:
    tokens = tuple(Token(c) for c in reply)
    conversation.remember("a question", None, tokens, reply if heard is None else heard)


def test_the_oldest_turns_are_dropped_past_max_tokens() -> None:
    conversation = Conversation(HistoryConfig(max_tokens=100))
    for i in range(20):
        remember(conversation, f"{i:030}")
    assert [t.reply_text for t in conversation.past] == [f"{i:030}" for i in (18, 19)]


def test_words_of_an_answer_nobody_heard_are_not_put_to_another_turn() -> None:
    conversation = Conversation(HistoryConfig())
    said, unanswered = (Utterance(np.zeros(512, np.float32), (), at) for at in (1.0, 2.0))
    conversation.put_into_words(said, "too early")
    conversation.remember(said, None, (Token("Yes."),), "Yes.")
    conversation.remember(unanswered, None, (Token("No."),), "")
    conversation.put_into_words(unanswered, "wrong")
    assert [turn.words for turn in conversation.past] == [None]
    conversation.put_into_words(said, "right")
    assert [turn.words for turn in conversation.past] == ["right"]


def test_history_keeps_whole_tokens_of_what_was_heard() -> None:
    conversation = Conversation(HistoryConfig())
    conversation.remember("q", None, (Token("Hello"), Token(" there"), Token(" you")), "Hello the")
    assert conversation.past[0].reply == (Token("Hello"),)
    conversation.remember("q", None, (Token("Hello"),), "")
    assert len(conversation.past) == 1
