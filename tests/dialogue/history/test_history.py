"""The past that later turns see."""

from __future__ import annotations

import numpy as np
import pytest

from voxtui.dialogue.data import Token, Utterance
from voxtui.dialogue.history.history import History
from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.protocols import PastTurn
from voxtui.settings.schema import Config, HistoryConfig


def add(history: History, reply: str) -> None:
    tokens = tuple(Token(c) for c in reply)
    history.add(PastTurn("a question", None, tuple(tokens), number=1), reply)


def test_the_oldest_turns_are_dropped_past_max_tokens() -> None:
    history = History(LiveConfig(Config(history=HistoryConfig(max_tokens=100))))
    for i in range(20):
        add(history, f"{i:030}")
    assert [t.reply_text for t in history.past] == [f"{i:030}" for i in (18, 19)]


def test_some_turns_are_dropped_at_once_and_their_words_remembered() -> None:
    history = History(
        LiveConfig(Config(history=HistoryConfig(max_tokens=100)))
    )  # a turn takes 11 or 12
    lengths: list[int] = []
    for i in range(20):
        history.add(PastTurn(f"{i}. hello", None, (Token("Hi."),), number=i), "Hi.")
        lengths.append(len(history.past))
    assert lengths[7:14] == [8, 9, 6, 7, 8, 6, 7]
    words = [turn.user_text for turn in (*history.dropped, *history.past)]
    assert words == [f"{i}. hello" for i in range(20)]


def test_a_given_text_is_not_dropped() -> None:
    history = History(LiveConfig(Config(history=HistoryConfig(max_tokens=100))))
    history.past = (PastTurn("Hi.", "Hi.", (Token("Hi."),)),)
    history.attach(PastTurn("A text", None, (Token("Read."),), attached=True))
    for number in range(1, 20):
        history.add(PastTurn("Hello.", "Hello.", (Token("Hi."),), number=number), "Hi.")
    assert [turn.attached for turn in history.past[:2]] == [True, False]


def test_an_answer_of_a_rule_delays_the_next_cut() -> None:
    history = History(LiveConfig(Config(history=HistoryConfig(max_tokens=100))))
    for i in range(7):
        add(history, f"{i}")  # 12 tokens a turn
    for total, by_rule, kept in ((8, False, 8), (9, True, 9), (10, False, 6), (11, True, 7)):
        history.add(
            PastTurn("a question", None, (Token("Yes."),), number=total), "Yes.", by_rule=by_rule
        )
        assert len(history.past) == kept
    for _ in range(9):  # rules alone do not delay it for ever
        history.add(PastTurn("a question", None, (Token("Yes."),), number=1), "Yes.", by_rule=True)
        assert len(history.past) <= 9


def test_a_long_newest_turn_stays_as_long_as_it_fits_alone() -> None:
    history = History(LiveConfig(Config(history=HistoryConfig(max_tokens=100))))
    for length in (10, 70):
        add(history, "x" * length)
    assert [len(turn.reply) for turn in history.past] == [70]
    add(history, "x" * 100)
    assert history.past == ()


@pytest.mark.parametrize(("brain", "kept"), [("embedded", 600), ("voxtral", 1200)])
def test_a_cpu_keeps_less_than_a_gpu_unless_it_is_configured(brain: str, kept: int) -> None:
    assert HistoryConfig().tokens(brain) == kept
    assert HistoryConfig(max_tokens=900).tokens(brain) == 900
    history = History(LiveConfig(Config(history=HistoryConfig()), brain))
    for _ in range(99):
        add(history, "x" * 40)
    assert kept * 0.6 < sum(len(turn.reply) + 12 for turn in history.past) <= kept


def test_a_transcript_of_an_unheard_answer_is_not_added_to_another_turn() -> None:
    history = History(LiveConfig(Config(history=HistoryConfig())))
    said, unanswered = (Utterance(np.zeros(512, np.float32), (), at) for at in (1.0, 2.0))
    history.set_words(1, "too early")
    history.add(PastTurn(said, None, (Token("Yes."),), number=1), "Yes.")
    history.add(PastTurn(unanswered, None, (Token("No."),), number=2), "")
    history.set_words(2, "wrong")
    assert [turn.words for turn in history.past] == [None]
    history.set_words(1, "right")
    assert [turn.words for turn in history.past] == ["right"]


def test_the_time_stays_with_its_turn_and_counts() -> None:
    date = "(It is Sunday, 22 November 2026, 12:03.)"
    history = History(LiveConfig(Config(history=HistoryConfig(turns=1, max_tokens=60))))
    for number, at in enumerate((1.0, 2.0), 1):
        said = Utterance(np.zeros(512, np.float32), (), at)
        history.add(
            PastTurn(said, None, (Token("Yes."),), number=number, clock=f"(12:0{number})"), "Yes."
        )
    history.set_words(2, "a question")
    assert [turn.clock for turn in history.past] == ["(12:01)", "(12:02)"]
    history.add(PastTurn("q", "q", (Token("Yes."),), number=3, clock=date), "Yes.")
    assert [turn.clock for turn in history.past] == ["(12:02)", date]


def test_history_keeps_the_whole_tokens_that_were_heard() -> None:
    history = History(LiveConfig(Config(history=HistoryConfig())))
    history.add(
        PastTurn("q", None, (Token("Hello"), Token(" there"), Token(" you")), number=1), "Hello the"
    )
    assert history.past[0].reply == (Token("Hello"),)
    history.add(PastTurn("q", None, (Token("Hello"),), number=1), "")
    assert len(history.past) == 1


def test_a_reply_of_empty_tokens_is_not_in_the_history() -> None:
    """A brain yields an empty token for half a character."""
    history = History(LiveConfig(Config(history=HistoryConfig())))
    history.add(PastTurn("q", None, (Token(""), Token(""), Token("Hello")), number=1), "")
    assert history.past == ()


def test_a_forgotten_history_is_recalled_until_the_next_turn() -> None:
    history = History(LiveConfig(Config(history=HistoryConfig(max_tokens=25))))
    add(history, "No.")
    add(history, "Yes.")
    history.forget()
    history.forget()
    assert history.past == ()
    assert history.dropped == ()
    history.recall()
    assert [turn.reply_text for turn in history.past] == ["Yes."]
    assert [turn.user_text for turn in history.dropped] == ["a question"]
    assert history.newest == 1
    history.forget()
    add(history, "No.")
    history.recall()
    history.forget()
    history.recall()
    assert [turn.reply_text for turn in history.past] == ["No."]


def test_a_history_is_recalled_though_a_text_was_attached_since() -> None:
    history = History(LiveConfig(Config()))
    notes = PastTurn("My notes.", "My notes.", (), attached=True)
    history.attach(notes)
    history.forget()
    history.recall()
    assert history.past == (notes,)
    add(history, "Yes.")
    for _ in range(2):
        history.forget()
        history.attach(notes)
    history.recall()
    assert [turn.reply_text for turn in history.past] == ["", "Yes."]
