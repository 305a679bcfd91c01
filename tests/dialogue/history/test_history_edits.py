"""What a server's session needs beside the key: keep, answer later, insert, delete, truncate."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dialogue.talking import SPEECH, EngineTest, talking
from tests.fakes import FakeSpeaker, ScriptedBrain, frames
from voxtui.dialogue.data import FRAME_SECONDS, Token, Utterance
from voxtui.dialogue.engine_commands import (
    Answer,
    InsertTurn,
    NewConversation,
    Release,
    RemovePart,
    SendText,
    Talk,
    Truncate,
    UseReplyOptions,
)
from voxtui.dialogue.events import (
    Captured,
    Notice,
    SpokenUpTo,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.history.history import History
from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.protocols import PastTurn, ReplyOptions
from voxtui.dialogue.timestamps import Milestone, Outcome
from voxtui.dialogue.turn.turn_taking import UNASKED
from voxtui.settings.schema import Config, HistoryConfig


def keep(talk: EngineTest, at: float = 10.0, pattern: str = SPEECH) -> int:
    number = talk.engine.post(Talk(at))
    talk.microphone.push(frames(pattern, at))
    talk.engine.post(Release(at + len(pattern) * FRAME_SECONDS, number, answers=False))
    return number


def said(past: list[PastTurn] | tuple[PastTurn, ...]) -> list[tuple[str, str]]:
    return [(turn.user_text, turn.reply_text) for turn in past]


def test_a_kept_utterance_is_transcribed_and_waits_for_an_answer() -> None:
    with talking(ScriptedBrain(["Yes."], heard="first words")) as talk:
        number = keep(talk)
        words = talk.events.until(UserWords)
        assert words == UserWords(number, "first words")
        assert not talk.brain.pasts
        assert talk.engine.post(Answer()) == number
        assert talk.turn().outcome is Outcome.ANSWERED
        assert isinstance(talk.brain.said[0], Utterance)
        talk.engine.post(SendText("next"))
        talk.turn()
        assert said(talk.brain.pasts[-1]) == [("first words", ""), ("", "Yes.")]


def test_an_answer_that_is_asked_for_at_once_needs_no_transcription() -> None:
    with talking(ScriptedBrain(["Yes."])) as talk:
        number = keep(talk)
        assert talk.engine.post(Answer()) == number
        turn = talk.turn()
        assert (turn.number, turn.outcome) == (number, Outcome.ANSWERED)
        assert turn.timestamps[Milestone.RELEASED] == 0.0
        assert not talk.brain.transcribing.is_set()
        assert len(talk.events.of(TurnStarted)) == 1


def test_two_kept_utterances_both_enter_the_history_with_their_words() -> None:
    with talking(ScriptedBrain(heard="words")) as talk:
        keep(talk)
        keep(talk, 11.0)
        talk.engine.post(Answer())
        talk.turn()
        assert said(talk.brain.pasts[0]) == [("words", "")]
        assert isinstance(talk.brain.said[0], Utterance)


def test_silence_that_was_kept_is_answered_with_nothing() -> None:
    with talking() as talk:
        number = keep(talk, pattern="." * 12)
        assert talk.turn().outcome is Outcome.NO_SPEECH
        assert talk.engine.post(Answer()) == number
        assert talk.turn().outcome is Outcome.NO_SPEECH
        assert not talk.brain.inferences


def test_without_any_user_the_brain_speaks_first() -> None:
    with talking(ScriptedBrain(["Hello."])) as talk:
        talk.engine.post(Answer(ReplyOptions("Greet the user.")))
        assert talk.turn().reply == "Hello."
        assert talk.brain.said == [UNASKED]
        assert talk.brain.manners == [ReplyOptions("Greet the user.")]
        talk.ask(at=1002.0)
        assert said(talk.brain.pasts[-1]) == [("", "Hello.")]
        assert talk.brain.manners[-1] == ReplyOptions()


def test_without_any_user_a_request_is_answered_and_not_stored() -> None:
    with talking(ScriptedBrain(["Hello."])) as talk:
        talk.engine.post(UseReplyOptions(ReplyOptions("Be kind.")))
        talk.engine.post(Answer(ReplyOptions("Greet the user.", 7), "Greet the user."))
        assert talk.turn().reply == "Hello."
        assert talk.brain.said == ["Greet the user."]
        assert talk.brain.manners == [ReplyOptions("Be kind.", 7)]
        talk.ask(at=1002.0)
        assert said(talk.brain.pasts[-1]) == [("", "Hello.")]


def test_a_manner_reaches_the_brain_before_the_first_sound() -> None:
    options = ReplyOptions("Be a pirate.", max_new_tokens=7)
    with talking() as talk:
        talk.engine.post(UseReplyOptions(options))
        talk.ask()
        assert [listening for *_, listening in talk.brain.listened] == [options, options]
        assert talk.brain.manners == [options]


def test_a_manner_without_voice_is_text_only() -> None:
    with talking() as talk:
        talk.engine.post(UseReplyOptions(ReplyOptions(voice="none")))
        assert talk.ask().reply == "Yes."
        assert not talk.speaker.chunks


def test_hands_free_speech_is_only_kept_where_answers_are_not_wanted() -> None:
    from tests.dialogue.talking import HANDS_FREE

    with talking(ScriptedBrain(heard="words"), config=HANDS_FREE) as talk:
        talk.engine.post(UseReplyOptions(ReplyOptions(voice="none"), answers=False))
        talk.microphone.push(frames("." * 20 + "x" * 20 + "." * 60))
        captured = talk.events.until(Captured)
        assert isinstance(captured, Captured)
        assert talk.events.until(UserWords) == UserWords(captured.turn, "words")
        assert talk.engine.post(Answer()) == captured.turn
        talk.turn()


def test_what_was_heard_of_a_finished_turn_can_be_amended() -> None:
    reply = ["One two three. ", "Four five six."]
    with talking(ScriptedBrain(reply), speaker=FakeSpeaker()) as talk:
        turn = talk.ask()
        talk.engine.post(Truncate(turn.number, 0.08))  # a character lasts 10 ms
        heard = talk.events.until(SpokenUpTo)
        assert heard == SpokenUpTo(turn.number, "One two")
        talk.engine.post(SendText("next"))
        talk.turn()
        assert said(talk.brain.pasts[-1])[0][1] == ""  # no whole token was heard


def test_texts_are_inserted_and_deleted_without_an_answer() -> None:
    with talking(ScriptedBrain(["Yes."])) as talk:
        question = PastTurn("What is your name?", None, (), number=-1)
        reply = PastTurn("", None, (Token("Vox."),), number=-2)
        first = PastTurn("It begins.", None, (), number=-3)
        last = PastTurn("And mine?", None, (), number=-4)
        talk.engine.post(InsertTurn(question))
        talk.engine.post(InsertTurn(reply, -1))
        talk.engine.post(InsertTurn(first, first=True))
        talk.engine.post(InsertTurn(last, -2))
        number = talk.engine.post(Answer())
        talk.turn()
        assert talk.brain.said == ["And mine?"]
        told = [("It begins.", ""), ("What is your name?", ""), ("", "Vox.")]
        assert said(talk.brain.pasts[0]) == told
        talk.engine.post(RemovePart(-1, user=True))
        talk.engine.post(RemovePart(number, user=False))
        talk.engine.post(RemovePart(99, user=True))
        talk.engine.post(InsertTurn(PastTurn("Well?", None, (), number=-5), -4))
        talk.engine.post(Answer())
        talk.turn()
        assert said(talk.brain.pasts[1]) == [("It begins.", ""), ("", "Vox."), ("And mine?", "")]


def test_an_answer_of_which_nothing_was_heard_leaves_the_question() -> None:
    history = History(LiveConfig(Config(history=HistoryConfig())))
    history.insert(PastTurn("a question", None, (), number=1))
    history.add(PastTurn("", None, (Token("No."),), number=1), "")
    assert said(history.past) == [("a question", "")]
    assert history.unanswered is history.past[0]


@pytest.mark.parametrize(("turns", "kept"), [(0, 0), (1, 1), (5, 2)])
def test_only_the_latest_utterances_stay_audio(turns: int, kept: int) -> None:
    history = History(LiveConfig(Config(history=HistoryConfig(turns=turns))))
    for number in (1, 2):
        utterance = Utterance(np.zeros(512, np.float32), (), 0.0)
        history.insert(PastTurn(utterance, None, (), number=number))
        history.add(PastTurn("", None, (Token("Yes."),), number=number), "Yes.")
    assert sum(isinstance(turn.user_input, Utterance) for turn in history.past) == kept


def test_the_number_of_a_turn_finishes_once() -> None:
    with talking() as talk:
        number = keep(talk)
        talk.engine.post(Answer())
        talk.turn()
        assert [event.turn.number for event in talk.events.of(TurnFinished)] == [number]  # type: ignore[attr-defined]


def test_a_conversation_that_goes_on_is_not_sent_away_without_a_word() -> None:
    past = (PastTurn("Hello.", "Hello.", (Token("Hi."),), number=-1),)
    far = ScriptedBrain()
    far.sends_to = "far.example"
    sentence = Notice("This conversation goes to far.example with your next words.", "information")
    with talking(far, past=past) as talk:
        assert talk.events.until(Notice) == sentence
        talk.engine.post(NewConversation())
        talk.engine.post(NewConversation(past))
        assert talk.events.until(Notice) == sentence
    with talking(past=past) as talk:
        talk.engine.post(SendText("hello"))
        talk.turn()
        assert talk.events.of(Notice) == []
