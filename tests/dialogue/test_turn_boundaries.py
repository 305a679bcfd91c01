"""What happens at the edges of a turn: late, early, twice, at the same time, or in the middle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from tests.dialogue.test_engine import SPEECH, WITHOUT_TRANSCRIPTS, Talk, talking, text
from tests.fakes import (
    LONG_AGO,
    OUT_OF_MEMORY,
    SECONDS,
    BeepVoice,
    FakeSpeaker,
    Flag,
    LoudIsSpeech,
    ScriptedBrain,
    frames,
)
from voxtui.audio.clips import Clip, speak
from voxtui.dialogue.data import FRAME_SAMPLES, FRAME_SECONDS, SpeechChunk, Utterance
from voxtui.dialogue.events import (
    ReplyText,
    SpokenUpTo,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.marks import Mark, Marks, Outcome
from voxtui.settings.schema import AudioConfig, Config, HistoryConfig, StreamingConfig, VadConfig

HANDS_FREE = Config(vad=VadConfig(hands_free=True))
HEADPHONES = Config(vad=VadConfig(hands_free=True, listen_while_speaking=True))
TRAIL = 3200


def spoken_frames(said: Utterance | str) -> int:
    assert isinstance(said, Utterance)
    return (len(said.samples) - TRAIL) // FRAME_SAMPLES


# Release and press.


def test_words_after_a_release_that_is_known_late_are_not_part_of_the_utterance() -> None:
    with talking() as talk:
        talk.engine.talk(1000.0)
        spoken = frames("x" * 10 + "...." + "x" * 20, 1000.0)
        talk.microphone.push(spoken)
        talk.engine.release(spoken[11].captured_at)
        talk.turn()
        said = talk.brain.said[0]
        assert isinstance(said, Utterance) and said.ended_at == spoken[9].captured_at


def test_speech_that_goes_on_is_listened_to_as_long_if_the_release_is_known_late() -> None:
    with talking() as talk:
        talk.engine.talk(1000.0)
        spoken = frames("x" * 40, 1000.0)
        talk.microphone.push(spoken)
        released = spoken[9].captured_at
        talk.engine.release(released)
        talk.turn()
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert released + 0.2 <= said.ended_at <= released + 0.2 + FRAME_SECONDS


def test_a_word_that_begins_between_a_tap_and_the_press_after_it_is_whole() -> None:
    with talking() as talk:
        spoken = frames("...." + "xx" + "x" * 10 + "....", 1000.0)
        tap = talk.engine.talk(1000.0)
        talk.microphone.push(spoken[:5])
        talk.engine.release(1000.0 + 2 * FRAME_SECONDS, tap)
        talk.microphone.push(spoken[5:6])
        began = spoken[5].captured_at + FRAME_SECONDS / 2
        turn = talk.engine.talk(began)
        talk.microphone.push(spoken[6:])
        talk.engine.release(spoken[-1].captured_at, turn)
        assert [talk.turn().outcome for _ in "ab"] == [Outcome.CANCELLED, Outcome.ANSWERED]
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert sum(end - start for start, end in said.speech) == pytest.approx(12 * FRAME_SECONDS)


def test_what_a_tap_gives_back_keeps_its_order() -> None:
    with talking() as talk:
        spoken = frames("." * 20 + "x" * 10 + "....", 1000.0)
        talk.microphone.push(spoken[:20])
        at = spoken[19].captured_at
        talk.engine.release(at, talk.engine.talk(at))
        assert talk.turn().outcome is Outcome.CANCELLED
        before = len(talk.brain.frames)
        turn = talk.engine.talk(at)
        talk.microphone.push(spoken[20:])
        talk.engine.release(spoken[-1].captured_at, turn)
        talk.turn()
        heard = [frame.captured_at for frame, _ in talk.brain.frames[before:]]
        assert heard == sorted(set(heard)) and len(heard) >= 11 + 13


# Echo.


class Speaking(FakeSpeaker):
    """Has been heard for two seconds when its first chunk comes."""

    def play(self, chunk: SpeechChunk, marks: Marks, stopped: Callable[[], bool]) -> None:
        marks.mark(Mark.FIRST_SOUND, time.monotonic() - 2.0)
        super().play(chunk, marks, stopped)


def test_a_clip_that_is_not_played_in_real_time_is_heard_after_an_answer() -> None:
    """Its frames bear times at which the answer before was spoken."""
    with talking(speaker=Speaking()) as talk:
        talk.ask()
        now = time.monotonic()
        talk.engine.talk(now - 0.4, source="clip.wav", paced=False)
        for frame in frames(SPEECH, now - 0.4, "clip.wav"):
            talk.engine.push_frame(frame)
        talk.engine.release(now - 0.4 + len(SPEECH) * FRAME_SECONDS)
        assert talk.turn().outcome is Outcome.ANSWERED
        assert spoken_frames(talk.brain.said[1]) == 12


def test_with_headphones_the_words_that_interrupt_are_heard_whole() -> None:
    speaker = Speaking(held=True, heard=0.05)
    brain = ScriptedBrain(["A long story."], ["Yes."])
    with talking(brain, speaker=speaker, config=HEADPHONES, overhearing=LoudIsSpeech()) as talk:
        talk.engine.send_text("tell me")
        assert speaker.playing.wait(SECONDS)
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.SPEAKING))
        over_it = frames("." * 6 + "x" * 15 + "." * 30, time.monotonic() - 1.7)
        talk.microphone.push(over_it[:16])
        assert talk.turn().outcome is Outcome.CANCELLED
        speaker._held = False
        talk.microphone.push(over_it[16:])
        assert talk.turn().outcome is Outcome.ANSWERED
        assert spoken_frames(talk.brain.said[1]) == 6 + 15


def test_with_headphones_words_over_an_answer_that_is_ending_do_not_cancel_the_next() -> None:
    class VoiceBargeIn(LoudIsSpeech):
        def __init__(self) -> None:
            self.threads: set[threading.Thread] = set()

        def probability(self, frame):  # type: ignore[no-untyped-def]
            self.threads.add(threading.current_thread())
            return super().probability(frame)

    overhearing, go_on = VoiceBargeIn(), Flag()
    brain = ScriptedBrain([go_on, "One."])
    with talking(brain, silent=True, config=HEADPHONES, overhearing=overhearing) as talk:
        talk.engine.send_text("first")
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.THINKING))
        overhearing.threads.clear()
        talk.speak()
        go_on.set()
        assert [talk.turn().outcome for _ in "ab"] == [Outcome.CANCELLED, Outcome.ANSWERED]
        assert overhearing.threads == {threading.current_thread()}


# Hands-free beside keys.


def test_hands_free_does_not_cancel_what_was_typed_meanwhile() -> None:
    go_on = Flag()
    with talking(ScriptedBrain([go_on, "One."]), silent=True, config=HANDS_FREE) as talk:
        talk.engine.send_text("first")
        talk.events.until(UserWords)
        talk.microphone.push(frames("." + "x" * 10, 1000.0))
        talk.engine.send_text("second")
        go_on.set()
        talk.turn()
        turn = talk.turn()
        assert (turn.heard, turn.outcome) == ("second", Outcome.ANSWERED)


def test_hands_free_speech_keeps_its_beginning_however_much_of_it_starts_a_turn() -> None:
    with talking(config=Config(vad=VadConfig(hands_free=True, start_ms=2000))) as talk:
        talk.microphone.push(frames("." * 20 + "x" * 80 + "." * 30, LONG_AGO))
        talk.turn()
        assert spoken_frames(talk.brain.said[0]) == 6 + 80


def test_hands_free_the_silence_before_the_first_word_ends_nothing() -> None:
    config = Config(vad=VadConfig(hands_free=True, end_ms=64))
    with talking(config=config) as talk:
        talk.microphone.push(frames("." * 20 + "x" * 10 + "." * 5, LONG_AGO))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert spoken_frames(talk.brain.said[0]) == 6 + 10


def test_hands_free_the_rest_of_what_was_dropped_is_not_answered() -> None:
    with talking(config=HANDS_FREE) as talk:
        talk.microphone.push(frames("." * 20 + "x" * 20, LONG_AGO))
        talk.events.until(TurnStarted)
        talk.engine.cancel()
        talk.microphone.push(frames("x" * 20 + "." * 30, LONG_AGO + 40 * FRAME_SECONDS))
        assert talk.turn().outcome is Outcome.CANCELLED
        talk.microphone.push(frames("x" * 10 + "." * 30, LONG_AGO + 90 * FRAME_SECONDS))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert spoken_frames(talk.brain.said[0]) == 6 + 10


def test_hands_free_what_starts_a_turn_may_be_longer_than_an_utterance() -> None:
    config = Config(
        vad=VadConfig(hands_free=True, start_ms=2000), audio=AudioConfig(max_utterance_s=1)
    )
    with talking(config=config) as talk:
        talk.microphone.push(frames("." * 20 + "x" * 80 + "." * 40, LONG_AGO))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert spoken_frames(talk.brain.said[0]) <= 1.2 / FRAME_SECONDS
        talk.engine.send_text("still there?")
        assert talk.turn().outcome is Outcome.ANSWERED


def test_hands_free_an_utterance_that_ends_inside_the_preroll_is_answered_outside_of_it() -> None:
    """The pre-roll holds a whole utterance, then more speech: two turns, one after the other."""
    vad = VadConfig(hands_free=True, start_ms=500, end_ms=64, min_speech_ms=200)
    with talking(ScriptedBrain(["One."], ["Two."]), config=Config(vad=vad)) as talk:
        talk.microphone.push(frames("." * 20 + "x" * 8 + "..." + "x" * 16 + "...", LONG_AGO))
        turns = [talk.turn() for _ in "ab"]
        assert [turn.outcome for turn in turns] == [Outcome.ANSWERED] * 2
        kinds = [type(e) for e in talk.events.seen if isinstance(e, TurnStarted | TurnFinished)]
        assert kinds == [TurnStarted, TurnFinished] * 2


def test_closing_answers_nothing_that_is_still_in_the_inbox() -> None:
    speaker = FakeSpeaker(held=True)
    with talking(speaker=speaker, config=HANDS_FREE) as talk:
        talk.engine.send_text("first")
        assert speaker.playing.wait(SECONDS)
        talk.microphone.push(frames("." + "x" * 10 + "." * 30, 1000.0))
        talk.engine.close()
        assert talk.brain.said == ["first"]


# Cancel.


def test_a_late_cancel_of_a_turn_that_is_over_changes_nothing() -> None:
    words = Flag()
    brain = ScriptedBrain(["One."], heard=None, transcript=["What", words, " is"])
    with talking(brain) as talk:
        number = talk.ask().number
        assert brain.transcribing.wait(SECONDS)
        talk.engine.cancel(number)
        talk.engine.cancel()
        words.set()
        assert talk.events.until(UserWords) == UserWords(number, "What is")
        started = talk.events.of(TurnStarted)[0]
        assert isinstance(started, TurnStarted) and started.marks.at(Mark.CANCELLED) is None


def test_a_cancel_that_names_another_turn_ends_nothing() -> None:
    with talking() as talk:
        first = talk.ask().number
        turn = talk.engine.talk(2000.0)
        talk.engine.cancel(first)
        talk.microphone.push(frames(SPEECH, 2000.0))
        talk.engine.release(2000.0 + len(SPEECH) * FRAME_SECONDS, turn)
        assert talk.turn().outcome is Outcome.ANSWERED


def test_send_text_returns_the_number_by_which_its_turn_is_cancelled() -> None:
    go_on = Flag()
    with talking(ScriptedBrain([go_on, "One."])) as talk:
        number = talk.engine.send_text("hello")
        talk.events.until(UserWords)
        talk.engine.cancel(number)
        go_on.set()
        turn = talk.turn()
        assert (turn.number, turn.outcome) == (number, Outcome.CANCELLED)


def test_the_state_of_the_engine_is_the_one_last_reported() -> None:
    with talking() as talk:
        assert talk.engine.state is State.READY
        talk.engine.talk(1000.0)
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.LISTENING))
        assert talk.engine.state is State.LISTENING


# Clips.


@contextmanager
def busy_microphone(talk: Talk) -> Iterator[None]:
    """Push frames of the microphone all the time, as a real one does."""
    stop = Flag()

    def push() -> None:
        while not stop.wait(0.005):
            talk.microphone.push(frames(".", time.monotonic()))

    pusher = threading.Thread(target=push)
    pusher.start()
    try:
        yield
    finally:
        stop.set()
        pusher.join()


def test_a_released_clip_whose_source_stopped_ends_though_the_microphone_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("voxtui.dialogue.listening.RELEASED_SOURCE_SECONDS", 0.05)
    with talking() as talk, busy_microphone(talk):
        turn = talk.engine.talk(1000.0, source="clip.wav")
        for frame in frames("xxxxxxxxxx", 1000.0, "clip.wav"):
            talk.engine.push_frame(frame)
        talk.engine.release(1000.0 + 12 * FRAME_SECONDS, turn)
        assert talk.turn().outcome is Outcome.ANSWERED


def test_a_clip_whose_source_stopped_without_a_release_ends_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("voxtui.dialogue.listening.STOPPED_SOURCE_SECONDS", 0.05)
    with talking() as talk, busy_microphone(talk):
        talk.engine.talk(1000.0, source="clip.wav")
        for frame in frames("xxxxxxxxxx", 1000.0, "clip.wav"):
            talk.engine.push_frame(frame)
        assert talk.turn().outcome is Outcome.ANSWERED


def test_a_clip_that_was_stopped_before_it_began_takes_no_turn() -> None:
    stopped = Flag()
    stopped.set()
    with talking() as talk:
        turn = talk.engine.talk(1000.0)
        speak(Clip("clip.wav", np.zeros(1600, np.float32)), talk.engine, stopped)
        talk.microphone.push(frames(SPEECH, 1000.0))
        talk.engine.release(1000.0 + len(SPEECH) * FRAME_SECONDS, turn)
        assert talk.turn().outcome is Outcome.ANSWERED


# Failures in the middle.


class StrictSpeaker(FakeSpeaker):
    """Like a real one it belongs to one reply until that is finished."""

    def __init__(self) -> None:
        super().__init__()
        self.reply: Marks | None = None

    def play(self, chunk: SpeechChunk, marks: Marks, stopped: Callable[[], bool]) -> None:
        self.reply = self.reply or marks
        assert self.reply is marks, "the reply before was never finished"
        super().play(chunk, marks, stopped)

    def finish(self, marks: Marks, stopped: Callable[[], bool]) -> float:
        self.reply = None
        return super().finish(marks, stopped)


def test_after_a_brain_that_failed_in_the_middle_the_next_answer_is_spoken() -> None:
    brain = ScriptedBrain(["One two. ", "Three. ", Flag(), OUT_OF_MEMORY], ["Fine."])
    speaker = StrictSpeaker()
    brain._scripts[0][2] = speaker.playing
    with talking(brain, speaker=speaker) as talk:
        turn = talk.ask()
        assert turn.outcome is Outcome.FAILED and "last_sound" in turn.marks
        assert talk.ask(at=2000.0).outcome is Outcome.ANSWERED
        assert speaker.chunks[-1].text == "Fine."


def test_what_a_failed_answer_had_begun_to_say_is_shown_before_the_turn_is_over() -> None:
    config = Config(streaming=StreamingConfig(min_words=3, max_words=3, flush_ms=5000))
    with talking(ScriptedBrain(["one", " two", OUT_OF_MEMORY]), config=config) as talk:
        talk.ask()
        assert text(talk.events) == "one two"


def test_a_turn_that_a_brain_was_lost_in_bears_its_name() -> None:
    class Lost(ScriptedBrain):
        def reply(self, past, said, marks, cancelled):  # type: ignore[no-untyped-def]
            self.name = "the other"
            raise OUT_OF_MEMORY
            yield

    with talking(Lost()) as talk:
        assert talk.ask().brain == "scripted"


def test_a_replay_that_fails_leaves_the_first_answer_in_the_history() -> None:
    brain = ScriptedBrain(["One."], [OUT_OF_MEMORY], ["Three."])
    with talking(brain) as talk:
        talk.ask()
        talk.engine.replay()
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
        talk.engine.replay()
        talk.turn()
        assert list(brain.pasts[-1]) == []
        talk.ask(at=2000.0)
        assert [past.reply_text for past in brain.pasts[-1]] == ["Two."]


# What was heard.


def test_an_answer_cut_off_in_the_silence_after_its_last_word_was_heard_whole() -> None:
    class Pausing(BeepVoice):
        def speak(self, clause):  # type: ignore[no-untyped-def]
            for chunk in super().speak(clause):
                yield chunk
                yield SpeechChunk(np.zeros(chunk.rate // 4, np.float32), chunk.rate, "")

    reply = ["One", " two", " three", ". "]
    speaker = FakeSpeaker(held=True, heard=0.14 + 0.1)
    with talking(ScriptedBrain(reply), voice=Pausing(), speaker=speaker) as talk:
        talk.speak()
        assert speaker.finishing.wait(SECONDS)
        talk.engine.cancel()
        assert talk.turn().outcome is Outcome.ANSWERED
        assert talk.events.of(SpokenUpTo) == []


def test_an_answer_that_is_not_spoken_and_breaks_off_at_a_key_press_is_a_cancelled_one() -> None:
    """The brain ends by itself then, as if it had said everything."""
    more = Flag()
    with talking(ScriptedBrain(["One", more, " two"]), silent=True) as talk:
        talk.speak()
        talk.events.until(ReplyText)
        talk.engine.cancel()
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
        talk.engine.cancel()
        go_on.set()
        assert talk.turn().outcome is Outcome.CANCELLED
        assert len(talk.voice.clauses) == 2


def test_a_voice_that_is_still_at_a_clause_keeps_nobody_from_being_heard_and_answered() -> None:
    speaking, go_on = Flag(), Flag()

    def deep(clause: str) -> None:
        if clause == "One.":
            speaking.set()
            assert go_on.wait(SECONDS)

    with talking(ScriptedBrain(["One."], ["Two."]), voice=BeepVoice(deep)) as talk:
        talk.engine.send_text("first")
        assert speaking.wait(SECONDS)
        talk.speak()
        assert talk.turn().outcome is Outcome.CANCELLED
        talk.events.until(ReplyText, lambda e: e == ReplyText(2, "Two."))
        assert talk.voice.clauses == ["One."]
        go_on.set()
        assert talk.turn().outcome is Outcome.ANSWERED
        assert talk.voice.clauses == ["One.", "Two."]
        assert [chunk.text for chunk in talk.speaker.chunks] == ["Two."]


def test_closing_waits_for_a_voice_that_is_still_at_a_clause() -> None:
    speaking, go_on = Flag(), Flag()

    class Deep(BeepVoice):
        def close(self) -> None:
            assert go_on.is_set()
            super().close()

    def deep(clause: str) -> None:
        speaking.set()
        assert go_on.wait(SECONDS)

    with talking(voice=Deep(deep)) as talk:
        talk.engine.send_text("first")
        assert speaking.wait(SECONDS)
        talk.engine.cancel()
        talk.turn()
        closing = threading.Thread(target=talk.engine.close)
        closing.start()
        go_on.set()
        closing.join(SECONDS)
        assert talk.voice.closed


# Marks.


def test_the_last_token_is_marked_when_it_came_and_not_when_the_brain_knew_it_was_the_last() -> (
    None
):
    ending = Flag()
    with talking(ScriptedBrain(["One", ending])) as talk:
        talk.speak()
        talk.events.until(ReplyText)
        shown = time.monotonic()
        ending.set()
        started = talk.events.of(TurnStarted)[0]
        talk.turn()
        assert isinstance(started, TurnStarted)
        last = started.marks.at(Mark.LAST_TOKEN)
        assert last is not None and last <= shown


def test_a_key_press_after_the_answer_does_not_make_it_a_cancelled_one() -> None:
    with talking() as talk:
        talk.ask()
        started = talk.events.of(TurnStarted)[0]
        assert isinstance(started, TurnStarted)
        talk.engine.talk(2000.0)
        assert started.marks.at(Mark.CANCELLED) is None
