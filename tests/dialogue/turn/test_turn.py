"""One turn: tokens, text, speech, history, marks."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.dialogue.talking import WITHOUT_TRANSCRIPTS, notices, talking, text
from tests.fakes import (
    OUT_OF_MEMORY,
    SECONDS,
    BeepVoice,
    FakeSpeaker,
    Flag,
    ScriptedBrain,
)
from voxtui.dialogue.data import (
    CHARACTERS_PER_TOKEN,
    FRAME_SECONDS,
    SpeechChunk,
    Token,
    Utterance,
)
from voxtui.dialogue.engine_commands import (
    Cancel,
    Mute,
    NewConversation,
    Redo,
    ReplaceComponents,
    SendText,
    Talk,
)
from voxtui.dialogue.events import (
    Captured,
    Notice,
    ReplyText,
    SpokenUpTo,
    StateChanged,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.protocols import StopFlag, TurnRequest
from voxtui.dialogue.timestamps import Milestone, Outcome, Timestamps
from voxtui.errors import ModelError, UnspokenLanguage
from voxtui.settings.schema import (
    Config,
    GenerationConfig,
    HistoryConfig,
    StreamingConfig,
    VoiceConfig,
)


def test_a_spoken_turn_is_answered_in_text_and_speech() -> None:
    with talking(ScriptedBrain(["Hello", " there", "."])) as talk:
        turn = talk.ask()
        assert (turn.outcome, turn.heard, turn.reply, turn.tokens) == (
            Outcome.ANSWERED,
            "what was said",
            "Hello there.",
            3,
        )
        assert text(talk.events) == "Hello there."
        assert talk.voice.clauses == ["Hello there."]
        assert [type(e) for e in talk.events.seen if not isinstance(e, ReplyText | StateChanged)][
            -4:
        ] == [TurnStarted, Captured, UserWords, TurnFinished]


def test_marks_come_in_order_and_are_relative_to_the_release() -> None:
    with talking() as talk:
        timestamps = talk.ask().timestamps
        assert timestamps["released"] == 0.0
        assert timestamps["speech_ended"] == pytest.approx(-3 * FRAME_SECONDS)
        order = [
            Milestone.CAPTURED,
            Milestone.FIRST_TOKEN,
            Milestone.FIRST_CLAUSE,
            Milestone.FIRST_AUDIO,
            Milestone.FIRST_SOUND,
        ]
        times = [timestamps[mark] for mark in order]
        assert times == sorted(times)
        assert "cancelled" not in timestamps


def test_every_token_is_shown_before_the_next_exists() -> None:
    """L1: nothing is collected before it is shown."""
    more = Flag()
    with talking(ScriptedBrain(["One", more, " two"])) as talk:
        talk.speak()
        shown = talk.events.until(ReplyText)
        assert isinstance(shown, ReplyText) and shown.text == "One"
        more.set()
        assert talk.turn().reply == "One two"


def test_a_slow_voice_neither_delays_nor_drops_tokens() -> None:
    """L1: the text is complete while the voice is still busy with its first clause."""
    speaking, go_on = Flag(), Flag()

    def slow(clause: str) -> None:
        speaking.set()
        assert go_on.wait(SECONDS)

    words = ["First", " clause", ". ", *[f"word{i} " for i in range(100)]]
    with talking(ScriptedBrain(words), voice=BeepVoice(slow)) as talk:
        talk.speak()
        assert speaking.wait(SECONDS)
        talk.events.until(ReplyText, lambda e: "word99" in text(talk.events))
        go_on.set()
        assert talk.turn().reply == "".join(words)


def test_chunk_settings_are_obeyed() -> None:
    """L2: min_words gathers on the screen, and never delays the first token's mark."""
    more = Flag()
    config = Config(streaming=StreamingConfig(min_words=3, max_words=3, flush_ms=5000))
    with talking(ScriptedBrain(["one", " two", more, " three", " four"]), config=config) as talk:
        talk.speak()
        started = talk.events.until(TurnStarted)
        assert isinstance(started, TurnStarted)
        poll = Flag()
        while started.timestamps.at(Milestone.FIRST_TOKEN) is None:
            assert not poll.wait(0.001)
        assert text(talk.events) == ""
        more.set()
        talk.turn()
        assert [e.text for e in talk.events.of(ReplyText)] == ["one two three", " four"]  # type: ignore[attr-defined]


def test_first_token_first_shown_and_first_sound_are_three_marks() -> None:
    """L3: the engine marks the token, the speaker the sound, and a front end the screen."""
    with talking() as talk:
        timestamps = talk.ask().timestamps
        assert (
            "first_token" in timestamps
            and "first_sound" in timestamps
            and "first_shown" not in timestamps
        )


def test_a_turn_is_one_inference() -> None:
    """L5: the user's words are not bought with a second run of the model."""
    with talking() as talk:
        talk.ask()
        talk.ask(at=2000.0)
        assert talk.brain.inferences == 2


def test_history_holds_audio_then_a_placeholder() -> None:
    """L5: past history.turns a user's turn is text, without asking the model for it."""
    config = Config(history=HistoryConfig(turns=1), brain=WITHOUT_TRANSCRIPTS)
    with talking(ScriptedBrain(heard=None), config=config) as talk:
        for i in range(3):
            talk.ask(at=10.0 + 100 * i)
        oldest, newest = talk.brain.pasts[-1]
        assert isinstance(newest.user_input, Utterance)
        samples = len(newest.user_input.samples)
        assert (
            oldest.user_input == f"[User audio input - {samples} samples, {samples / 16000:.2f}s]"
        )
        assert talk.brain.inferences == 3


def test_a_new_conversation_remembers_nothing() -> None:
    with talking() as talk:
        talk.ask()
        talk.engine.post(NewConversation())
        talk.ask(at=2000.0)
        assert list(talk.brain.pasts[-1]) == []


def test_a_turn_goes_on_as_text_after_the_voice_fails() -> None:
    """L6, with the very error it is named after."""

    def broken(clause: str) -> None:
        raise NameError("name 'tts_manager' is not defined")

    with talking(
        ScriptedBrain(["One. ", "Two. ", "Three."], ["Next."]), voice=BeepVoice(broken)
    ) as talk:
        turn = talk.ask()
        assert (turn.outcome, turn.reply) == (Outcome.ANSWERED, "One. Two. Three.")
        notices = [e.message for e in talk.events.of(Notice)]  # type: ignore[attr-defined]
        assert len(notices) == 1 and "tts_manager" in notices[0]
        assert talk.ask(at=2000.0).reply == "Next."
        assert len(talk.brain.pasts[-1]) == 1


def test_a_stuck_voice_is_abandoned_after_its_timeout_until_another_is_chosen() -> None:
    """L6: its thread cannot be stopped, so it is left alone and the next answer is silent too."""
    release = Flag()
    config = Config(voice=VoiceConfig(timeout_s=0.05))

    def hang(clause: str) -> None:
        release.wait(SECONDS)

    with talking(ScriptedBrain(["One."], ["Two."]), voice=BeepVoice(hang), config=config) as talk:
        turn = talk.ask()
        assert (turn.outcome, turn.reply) == (Outcome.ANSWERED, "One.")
        assert "0.05 s" in str(talk.events.of(Notice)[0])
        assert talk.ask(at=2000.0).reply == "Two."
        assert talk.voice.clauses == ["One."]
        another = BeepVoice()
        talk.engine.post(ReplaceComponents(Config(), voice=another))
        talk.engine.post(SendText("hello"))
        assert talk.turn().reply == "Yes."
        assert another.clauses == ["Yes."]
        release.set()


@pytest.mark.parametrize("reply", ["!", "5", " 5\n"])
def test_replies_under_two_characters_are_not_spoken(reply: str) -> None:
    """L9."""
    with talking(ScriptedBrain([reply])) as talk:
        assert talk.ask().reply == reply
        assert talk.voice.clauses == []


@pytest.mark.parametrize("reply", [["7\n", "Three and four."], ["One, two.", "\n", "3"]])
def test_one_character_of_a_longer_reply_is_spoken(reply: list[str]) -> None:
    with talking(ScriptedBrain(reply)) as talk:
        talk.ask()
        assert re.sub(r"\W", "", "".join(talk.voice.clauses)) == re.sub(r"\W", "", "".join(reply))


def test_a_key_press_cuts_the_answer_off_and_history_keeps_the_heard_part() -> None:
    reply = ["One two three. ", "Four five six. ", "Seven."]
    brain = ScriptedBrain(reply, ["Next."])
    speaker, third = FakeSpeaker(held=True, heard=0.14 + 0.1), Flag()
    voice = BeepVoice(lambda clause: third.set() if clause == "Seven." else None)
    with talking(brain, voice=voice, speaker=speaker) as talk:
        talk.speak()
        assert speaker.playing.wait(SECONDS) and third.wait(SECONDS)
        talk.engine.post(Cancel())
        turn = talk.turn()
        assert turn.outcome is Outcome.CANCELLED and "cancelled" in turn.timestamps
        spoken = talk.events.of(SpokenUpTo)[0]
        assert isinstance(spoken, SpokenUpTo) and spoken.text == "One two three. Four five"
        speaker.held = False
        talk.ask(at=2000.0)
        assert talk.brain.pasts[-1][0].reply_text == "One two three. "


def test_an_unheard_answer_is_not_in_the_history() -> None:
    go_on = Flag()
    with talking(ScriptedBrain([go_on, "One."])) as talk:
        talk.speak()
        talk.events.until(UserWords)
        talk.engine.post(Cancel())
        go_on.set()
        assert talk.turn().outcome is Outcome.CANCELLED
        talk.ask(at=2000.0)
        assert talk.brain.pasts == [(), ()]


def test_tokens_that_come_after_the_key_press_are_not_shown() -> None:
    go_on = Flag()

    class Heedless(ScriptedBrain):
        def reply(self, request: TurnRequest):  # type: ignore[no-untyped-def]
            yield from super().reply(replace(request, cancelled=Flag()))

    with talking(Heedless(["One", go_on, " two", " three"]), silent=True) as talk:
        talk.speak()
        talk.events.until(ReplyText)
        talk.engine.post(Cancel())
        go_on.set()
        assert talk.turn().reply == text(talk.events) == "One"


def test_talking_over_the_answer_starts_the_next_turn_at_once() -> None:
    speaker = FakeSpeaker(held=True, heard=0.05)
    with talking(ScriptedBrain(["A long story."], ["Yes."]), speaker=speaker) as talk:
        talk.speak()
        assert speaker.playing.wait(SECONDS)
        talk.speak(at=2000.0)
        assert talk.turn().outcome is Outcome.CANCELLED
        speaker.held = False
        assert talk.turn().reply == "Yes."


def test_a_typed_turn_is_answered_aloud() -> None:
    with talking(ScriptedBrain(["Hi there."])) as talk:
        talk.engine.post(SendText("hello"))
        turn = talk.turn()
        assert (turn.heard, turn.reply) == ("hello", "Hi there.")
        assert turn.ttft_ms is not None and turn.first_sound_ms is not None
        assert talk.voice.clauses == ["Hi there."]


def test_mute_ends_the_sound_at_once_and_the_text_goes_on() -> None:
    speaker = FakeSpeaker(held=True)
    with talking(ScriptedBrain(["One."], ["Two."], ["Three."]), speaker=speaker) as talk:
        talk.engine.post(SendText("first"))
        assert speaker.playing.wait(SECONDS)
        talk.engine.post(Mute(True))
        assert talk.turn().outcome is Outcome.ANSWERED
        speaker.held = False
        talk.engine.post(SendText("second"))
        assert talk.turn().reply == "Two."
        assert talk.voice.clauses == ["One."]
        talk.engine.post(Mute(False))
        talk.ask(at=2000.0)
        assert [c.text for c in speaker.chunks] == ["One.", "Three."]


def test_text_that_went_on_after_a_mute_stays_if_a_key_press_then_ends_the_answer() -> None:
    muted, more = Flag(), Flag()
    brain = ScriptedBrain(["One.", muted, " Two. Three.", more, " Four."])
    with talking(brain, speaker=(speaker := FakeSpeaker())) as talk:
        talk.engine.post(SendText("first"))
        assert speaker.playing.wait(SECONDS)
        talk.engine.post(Mute(True))
        muted.set()
        assert speaker.finishing.wait(SECONDS)
        talk.events.until(ReplyText, lambda event: "Three" in str(event))
        talk.engine.post(Cancel())
        more.set()
        assert talk.turn().outcome is Outcome.CANCELLED
        assert talk.events.of(SpokenUpTo) == []
        talk.engine.post(SendText("second"))
        talk.turn()
        (past,) = brain.pasts[-1]
        assert "".join(token.text for token in past.reply) == "One. Two. Three."


def test_typed_words_are_reported_once_even_if_the_brain_fails_at_once() -> None:
    class Unreachable(ScriptedBrain):
        def reply(self, *_: object) -> Iterator[Token]:
            raise ModelError("Nobody is there.")

    for brain, outcome in ((ScriptedBrain(), Outcome.ANSWERED), (Unreachable(), Outcome.FAILED)):
        with talking(brain) as talk:
            talk.engine.post(SendText(" hello "))
            assert talk.turn().outcome is outcome
            assert talk.events.of(UserWords) == [UserWords(1, "hello")]


def test_a_failed_turn_gives_the_reason_and_the_next_one_works() -> None:
    with talking(ScriptedBrain(["Well"], heard="x")) as talk:
        talk.brain.scripts[:] = [["Well", OUT_OF_MEMORY], ["Fine."]]  # type: ignore[list-item]
        turn = talk.ask()
        assert (turn.outcome, turn.error) == (Outcome.FAILED, "Out of memory.")
        assert talk.ask(at=2000.0).reply == "Fine."


def test_the_utterance_is_transcribed_once_the_answer_is_over() -> None:
    brain = ScriptedBrain(heard=None, transcript=["What is", " said."])
    with talking(brain) as talk:
        turn = talk.ask()
        assert turn.heard is None
        words = talk.events.until(UserWords)
        assert words == UserWords(turn.number, "What is said.")
        talk.ask(at=2000.0)
        assert [past.words for past in brain.pasts[1]] == ["What is said."]


def test_a_key_press_ends_the_transcription_within_one_step() -> None:
    going_on = Flag()
    brain = ScriptedBrain(["One."], ["Two."], heard=None, transcript=["What", going_on, " is"])
    with talking(brain) as talk:
        talk.ask()
        assert brain.transcribing.wait(SECONDS)
        talk.speak(at=2000.0)
        going_on.set()
        assert talk.turn().reply == "Two."
        assert talk.events.of(UserWords) == []
        assert [past.words for past in brain.pasts[1]] == [None]


def test_the_transcription_can_be_turned_off() -> None:
    with talking(ScriptedBrain(heard=None), config=Config(brain=WITHOUT_TRANSCRIPTS)) as talk:
        talk.ask()
        talk.ask(at=2000.0)
        assert talk.brain.inferences == 2


@pytest.mark.parametrize("end", ["change", "close"])
def test_the_transcription_ends_before_its_brain_is_closed(end: str) -> None:
    class Writing(ScriptedBrain):
        closed_first: bool | None = None

        def transcribe(self, said, cancelled):  # type: ignore[no-untyped-def]
            self.transcribing.set()
            try:
                while True:
                    yield Token("")
            finally:
                self.closed_first = self.closed

    brain = Writing(heard=None)
    with talking(brain) as talk:
        talk.ask()
        assert brain.transcribing.wait(SECONDS)
        if end == "change":
            talk.engine.post(ReplaceComponents(Config(), brain=ScriptedBrain()))
            talk.engine.post(SendText("hello"))
            talk.turn()
    assert brain.closed and brain.closed_first is False


def test_a_turn_stays_complete_if_its_transcription_fails() -> None:
    brain = ScriptedBrain(heard=None, transcript=["What", OUT_OF_MEMORY])
    with talking(brain) as talk:
        talk.ask()
        notice = talk.events.until(Notice)
        assert isinstance(notice, Notice) and "Out of memory." in notice.message
        assert talk.ask(at=2000.0).outcome is Outcome.ANSWERED


class StrictSpeaker(FakeSpeaker):
    """Like a real one it belongs to one reply until that is finished."""

    def __init__(self) -> None:
        super().__init__()
        self.reply: Timestamps | None = None

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        self.reply = self.reply or timestamps
        assert self.reply is timestamps, "the reply before was never finished"
        super().play(chunk, timestamps, stopped)

    def finish(self, timestamps: Timestamps, stopped: StopFlag) -> float:
        self.reply = None
        return super().finish(timestamps, stopped)


def test_after_a_brain_that_failed_in_the_middle_the_next_answer_is_spoken() -> None:
    brain = ScriptedBrain(["One two. ", "Three. ", Flag(), OUT_OF_MEMORY], ["Fine."])
    speaker = StrictSpeaker()
    brain.scripts[0][2] = speaker.playing
    with talking(brain, speaker=speaker) as talk:
        turn = talk.ask()
        assert turn.outcome is Outcome.FAILED and "last_sound" in turn.timestamps
        assert talk.ask(at=2000.0).outcome is Outcome.ANSWERED
        assert speaker.chunks[-1].text == "Fine."


def test_the_text_of_a_failed_answer_is_shown_before_its_turn_is_over() -> None:
    config = Config(streaming=StreamingConfig(min_words=3, max_words=3, flush_ms=5000))
    with talking(ScriptedBrain(["one", " two", OUT_OF_MEMORY]), config=config) as talk:
        talk.ask()
        assert text(talk.events) == "one two"


def test_a_turn_holds_the_name_of_the_brain_that_answered() -> None:
    class Lost(ScriptedBrain):
        def reply(self, request: TurnRequest):  # type: ignore[no-untyped-def]
            self.name = "the other"
            raise OUT_OF_MEMORY
            yield

    with talking(Lost()) as talk:
        assert talk.ask().brain == "scripted"


def test_a_replay_that_fails_leaves_the_first_answer_in_the_history() -> None:
    brain = ScriptedBrain(["One."], [OUT_OF_MEMORY], ["Three."])
    with talking(brain) as talk:
        talk.ask()
        talk.engine.post(Redo(1))
        assert talk.turn().outcome is Outcome.FAILED
        talk.ask(at=2000.0)
        assert [past.reply_text for past in brain.pasts[-1]] == ["One."]


def test_a_replay_stands_at_the_place_of_the_first_answer_also_without_audio_in_the_history() -> (
    None
):
    config = Config(history=HistoryConfig(turns=0), brain=WITHOUT_TRANSCRIPTS)
    brain = ScriptedBrain(["One."], ["Two."], ["Three."])
    with talking(brain, config=config) as talk:
        talk.ask()
        talk.engine.post(Redo(1))
        talk.turn()
        assert list(brain.pasts[-1]) == []
        talk.ask(at=2000.0)
        assert [past.reply_text for past in brain.pasts[-1]] == ["Two."]


def test_a_corrected_text_takes_the_place_of_what_was_heard() -> None:
    brain = ScriptedBrain(["One."], ["Two."], ["Three."], heard="the weather in France")
    with talking(brain) as talk:
        turn = talk.ask().number
        corrected = talk.engine.post(Redo(turn, " the weather in Flensburg "))
        assert talk.turn().number == corrected
        started = talk.events.of(TurnStarted)[-1]
        assert isinstance(started, TurnStarted)
        assert (started.source, started.replaces) == ("typed", turn)
        assert brain.said[-1] == "the weather in Flensburg"
        assert list(brain.pasts[-1]) == []
        talk.ask(at=2000.0)
        assert [past.user_text for past in brain.pasts[-1]] == ["the weather in Flensburg"]


def test_an_older_turn_is_asked_again_at_the_end() -> None:
    brain = ScriptedBrain(["One."], ["Two."], ["Three."])
    with talking(brain) as talk:
        talk.ask()
        talk.ask(at=2000.0)
        talk.engine.post(Redo(1))
        talk.turn()
        assert brain.said[-1] is brain.said[0]
        assert [past.reply_text for past in brain.pasts[-1]] == ["One.", "Two."]
        started = talk.events.of(TurnStarted)[-1]
        assert isinstance(started, TurnStarted) and started.replaces is None


def test_a_turn_whose_sound_is_gone_is_not_asked_again() -> None:
    with talking(config=Config(history=HistoryConfig(turns=1))) as talk:
        talk.ask()
        talk.ask(at=2000.0)
        talk.engine.post(Redo(1))
        assert talk.turn().outcome is Outcome.CANCELLED
        assert "no longer in memory" in str(talk.events.of(Notice)[-1])


def test_an_answer_is_spoken_in_the_language_of_its_first_clause() -> None:
    asked: list[str] = []

    class Polyglot(ScriptedBrain):
        def language(self, reply: str, timestamps: Timestamps) -> str:
            asked.append(reply)
            return "fr" if "Paris" in reply else "en"

    voice = BeepVoice()
    brain = Polyglot(["C'est Paris, bien sûr. ", "Good question. "], ["It is so. "])
    with talking(brain, voice=voice) as talk:
        talk.ask()
        talk.ask(at=2000.0)
    assert voice.languages == ["fr", "fr", "fr", "en"][-len(voice.clauses) :]
    assert [reply[:2] for reply in asked] == ["C'", "It"]


def test_an_answer_that_the_voice_cannot_speak_is_text_with_the_reason() -> None:
    class English(BeepVoice):
        def speak(self, clause, speed=None, language="en"):  # type: ignore[no-untyped-def]
            raise UnspokenLanguage("The voice has no German.")
            yield

    brain = ScriptedBrain(["Guten Tag. ", "Ja."])
    brain.spoken = "de"
    with talking(brain, voice=English()) as talk:
        turn = talk.ask()
    assert (turn.outcome, turn.reply) == (Outcome.ANSWERED, "Guten Tag. Ja.")
    (notice,) = talk.events.of(Notice)
    assert notice == Notice("The voice has no German. The answer goes on as text.")


def test_an_answer_cut_off_in_the_silence_after_its_last_word_was_heard_whole() -> None:
    class Pausing(BeepVoice):
        def speak(self, clause, speed=None, language="en"):  # type: ignore[no-untyped-def]
            for chunk in super().speak(clause):
                yield chunk
                yield SpeechChunk(np.zeros(chunk.rate // 4, np.float32), chunk.rate, "")

    reply = ["One", " two", " three", ". "]
    speaker = FakeSpeaker(held=True, heard=0.14 + 0.1)
    with talking(ScriptedBrain(reply), voice=Pausing(), speaker=speaker) as talk:
        talk.speak()
        assert speaker.finishing.wait(SECONDS)
        talk.engine.post(Cancel())
        assert talk.turn().outcome is Outcome.ANSWERED
        assert talk.events.of(SpokenUpTo) == []


def test_an_unspoken_answer_that_a_key_press_ends_is_cancelled() -> None:
    """The brain ends by itself then, as if it had said everything."""
    more = Flag()
    with talking(ScriptedBrain(["One", more, " two"]), silent=True) as talk:
        talk.speak()
        talk.events.until(ReplyText)
        talk.engine.post(Cancel())
        more.set()
        turn = talk.turn()
        assert (turn.outcome, turn.reply) == (Outcome.CANCELLED, "One")
        assert turn.total_ms is None


def test_no_clause_is_begun_after_the_key_press() -> None:
    speaking, go_on = Flag(), Flag()

    def slow(clause: str) -> None:
        if clause.startswith("Two"):
            speaking.set()
            assert go_on.wait(SECONDS)

    words = [f"{word} and so on. " for word in ("One", "Two", "Three", "Four", "Five")]
    with talking(ScriptedBrain(words), voice=BeepVoice(slow)) as talk:
        talk.speak()
        assert speaking.wait(SECONDS)
        talk.events.until(ReplyText, lambda e: "Five" in text(talk.events))
        talk.engine.post(Cancel())
        go_on.set()
        assert talk.turn().outcome is Outcome.CANCELLED
        assert len(talk.voice.clauses) == 2


def test_a_busy_voice_delays_no_turn() -> None:
    speaking, go_on = Flag(), Flag()

    def deep(clause: str) -> None:
        if clause == "One.":
            speaking.set()
            assert go_on.wait(SECONDS)

    with talking(ScriptedBrain(["One."], ["Two."]), voice=BeepVoice(deep)) as talk:
        talk.engine.post(SendText("first"))
        assert speaking.wait(SECONDS)
        talk.speak()
        assert talk.turn().outcome is Outcome.CANCELLED
        talk.events.until(ReplyText, lambda e: e == ReplyText(2, "Two."))
        assert talk.voice.clauses == ["One."]
        go_on.set()
        assert talk.turn().outcome is Outcome.ANSWERED
        assert talk.voice.clauses == ["One.", "Two."]
        assert [chunk.text for chunk in talk.speaker.chunks] == ["Two."]


def test_the_last_token_is_marked_when_it_came_and_not_when_the_brain_ended() -> None:
    ending = Flag()
    with talking(ScriptedBrain(["One", ending])) as talk:
        talk.speak()
        talk.events.until(ReplyText)
        shown = time.monotonic()
        ending.set()
        started = talk.events.of(TurnStarted)[0]
        talk.turn()
        assert isinstance(started, TurnStarted)
        last = started.timestamps.at(Milestone.LAST_TOKEN)
        assert last is not None and last <= shown


def test_a_key_press_after_the_answer_does_not_mark_it_cancelled() -> None:
    with talking() as talk:
        talk.ask()
        started = talk.events.of(TurnStarted)[0]
        assert isinstance(started, TurnStarted)
        talk.engine.post(Talk(2000.0))
        assert started.timestamps.at(Milestone.CANCELLED) is None


SMALL = Config(generation=GenerationConfig(max_new_tokens=10))


@pytest.mark.parametrize(
    "pieces", [["x" * 100_000], ["word " * 10] * 100], ids=["one huge piece", "many large pieces"]
)
def test_an_answer_ends_at_its_largest_size_with_a_notice(pieces: list[str]) -> None:
    with talking(ScriptedBrain(pieces), silent=True, config=SMALL) as talk:
        turn = talk.ask()
        assert turn.outcome is Outcome.ANSWERED and turn.total_ms is not None
        assert turn.reply == text(talk.events) == "".join(pieces)[: 10 * CHARACTERS_PER_TOKEN]
        assert "too long" in notices(talk.events)


def test_an_answer_of_the_usual_size_is_not_cut() -> None:
    with talking(ScriptedBrain(["words "] * 10), silent=True, config=SMALL) as talk:
        assert talk.ask().tokens == 10
        assert not talk.events.of(Notice)
