from __future__ import annotations

import numpy as np

from voxtui.dialogue.data import Token, Utterance
from voxtui.dialogue.history import Conversation
from voxtui.settings.schema import HistoryConfig


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
