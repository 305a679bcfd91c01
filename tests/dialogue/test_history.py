"""The past that later turns see."""

from __future__ import annotations

import numpy as np

from voxtui.dialogue.data import Token, Utterance
from voxtui.dialogue.history import History
from voxtui.settings.schema import HistoryConfig


def add(history: History, reply: str) -> None:
    tokens = tuple(Token(c) for c in reply)
    history.add(1, "a question", None, tokens, reply)


def test_the_oldest_turns_are_dropped_past_max_tokens() -> None:
    history = History(HistoryConfig(max_tokens=100))
    for i in range(20):
        add(history, f"{i:030}")
    assert [t.reply_text for t in history.past] == [f"{i:030}" for i in (18, 19)]


def test_a_transcript_of_an_unheard_answer_is_not_added_to_another_turn() -> None:
    history = History(HistoryConfig())
    said, unanswered = (Utterance(np.zeros(512, np.float32), (), at) for at in (1.0, 2.0))
    history.set_words(1, "too early")
    history.add(1, said, None, (Token("Yes."),), "Yes.")
    history.add(2, unanswered, None, (Token("No."),), "")
    history.set_words(2, "wrong")
    assert [turn.words for turn in history.past] == [None]
    history.set_words(1, "right")
    assert [turn.words for turn in history.past] == ["right"]


def test_the_time_stays_with_its_turn_and_counts() -> None:
    date = "(It is Sunday, 22 November 2026, 12:03.)"
    history = History(HistoryConfig(turns=1, max_tokens=60))
    for number, at in enumerate((1.0, 2.0), 1):
        said = Utterance(np.zeros(512, np.float32), (), at)
        history.add(number, said, None, (Token("Yes."),), "Yes.", f"(12:0{number})")
    history.set_words(2, "a question")
    assert [turn.clock for turn in history.past] == ["(12:01)", "(12:02)"]
    history.add(3, "q", "q", (Token("Yes."),), "Yes.", date)
    assert [turn.clock for turn in history.past] == ["(12:02)", date]


def test_history_keeps_the_whole_tokens_that_were_heard() -> None:
    history = History(HistoryConfig())
    history.add(1, "q", None, (Token("Hello"), Token(" there"), Token(" you")), "Hello the")
    assert history.past[0].reply == (Token("Hello"),)
    history.add(1, "q", None, (Token("Hello"),), "")
    assert len(history.past) == 1


def test_a_reply_of_empty_tokens_is_not_in_the_history() -> None:
    """A brain yields an empty token for half a character."""
    history = History(HistoryConfig())
    history.add(1, "q", None, (Token(""), Token(""), Token("Hello")), "")
    assert history.past == ()


def test_a_forgotten_history_is_recalled_until_the_next_turn() -> None:
    history = History(HistoryConfig())
    add(history, "Yes.")
    history.forget()
    history.forget()
    assert history.past == ()
    history.recall()
    assert [turn.reply_text for turn in history.past] == ["Yes."]
    assert history.newest == 1
    history.forget()
    add(history, "No.")
    history.recall()
    history.forget()
    history.recall()
    assert [turn.reply_text for turn in history.past] == ["No."]
