"""From frames to utterances: keys, hands-free, clips, echo."""

from __future__ import annotations

import inspect
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from tests.dialogue.talking import HANDS_FREE, HEADPHONES, SPEECH, TRAIL, notices, talking
from tests.fakes import (
    LONG_AGO,
    SECONDS,
    BeepVoice,
    Events,
    FakeSpeaker,
    Flag,
    LoudIsSpeech,
    ScriptedBrain,
    frames,
)
from voxtui.audio.clips import Clip, speak
from voxtui.dialogue.data import FRAME_SAMPLES, FRAME_SECONDS, Frame, SpeechChunk, Utterance
from voxtui.dialogue.engine_commands import Cancel, Release, SendText, Talk
from voxtui.dialogue.events import (
    Caption,
    Notice,
    ReplyText,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.listening.heard_words import is_echo
from voxtui.dialogue.protocols import OnWords, StopFlag, TurnRequest
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.timestamps import Milestone, Outcome, Timestamps
from voxtui.settings.schema import (
    AudioConfig,
    Config,
    VadConfig,
)


@pytest.mark.parametrize("pattern", ["..............", "..xxx........."])
def test_silence_is_not_sent_to_the_model(pattern: str) -> None:
    """L8: less than 200 ms of speech is no utterance."""
    with talking() as talk:
        turn = talk.ask(pattern)
        assert turn.outcome is Outcome.NO_SPEECH
        assert talk.brain.inferences == 0


@pytest.mark.parametrize("pattern", [".......", "..xx...", "", "xxxxxxx"])
def test_a_tap_without_speech_sends_nothing(pattern: str) -> None:
    with talking() as talk:
        said = pattern.count("x") == 7
        assert talk.ask(pattern).outcome is (Outcome.ANSWERED if said else Outcome.CANCELLED)
        assert talk.brain.inferences == said
        assert talk.events.of(Notice) == []


def test_a_tap_stops_the_answer_and_the_history_keeps_the_heard_part() -> None:
    speaker, third = FakeSpeaker(held=True, heard=0.14 + 0.1), Flag()
    brain = ScriptedBrain(["One two three. ", "Four five six. ", "Seven."])
    voice = BeepVoice(lambda clause: third.set() if clause == "Seven." else None)
    with talking(brain, voice=voice, speaker=speaker) as talk:
        talk.engine.post(SendText("tell me"))
        assert speaker.playing.wait(SECONDS) and third.wait(SECONDS)
        turn = talk.engine.post(Talk(10.0))
        talk.engine.post(Release(10.1, turn))
        assert [talk.turn().outcome for _ in "ab"] == [Outcome.CANCELLED] * 2
        speaker.held = False
        talk.ask(at=2000.0)
        assert talk.brain.pasts[-1][0].reply_text == "One two three. "


def test_the_words_so_far_are_reported_while_one_speaks_and_not_after_a_discard() -> None:
    with talking(captions=True) as talk:
        turn = talk.engine.post(Talk(10.0))
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.LISTENING))
        on_words = talk.brain.on_words
        assert on_words is not None
        on_words("what is the", 4)
        assert talk.events.until(Caption) == Caption(turn, "what is the", 4)
        talk.engine.post(Cancel(turn))
        on_words("what is the capital", 11)
        assert talk.turn().outcome is Outcome.CANCELLED
        talk.events.drain()
        assert len(talk.events.of(Caption)) == 1


def test_a_client_that_asks_for_no_captions_gets_none() -> None:
    with talking() as talk:
        talk.ask()
        assert talk.brain.on_words is None
        assert talk.events.of(Caption) == []


def test_sound_lost_during_speech_is_reported() -> None:
    with talking() as talk:
        talk.engine.post(Talk(10.0))
        for count, frame in enumerate(frames(SPEECH)):
            talk.microphone.push([replace(frame, overflow=count in (2, 5))])
        talk.engine.post(Release(10.0 + len(SPEECH) * FRAME_SECONDS))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert "was lost: the microphone was not read in time (2 times)" in notices(talk.events)
        talk.ask(at=2000.0)
        assert notices(talk.events).count("was lost") == 1


def test_a_muted_microphone_is_named_as_the_cause() -> None:
    with talking() as talk:
        assert talk.ask("." * 40).outcome is Outcome.NO_SPEECH
        assert "digital silence" in str(talk.events.of(Notice)[0])
        assert talk.ask("....x.......", at=2000.0).outcome is Outcome.NO_SPEECH
        assert len(talk.events.of(Notice)) == 1


def test_the_brain_gets_the_trimmed_utterance_and_the_same_frames_ahead() -> None:
    with talking() as talk:
        talk.ask("....................xxxxxxxxxx...")
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert len(said.samples) == (6 + 10) * 512 + 3200
        assert not said.samples[-3200:].any() and said.samples[-3201] != 0
        assert len(talk.brain.frames) == 33
        assert [speech for _, speech in talk.brain.frames].count(True) == 10


def test_sound_from_before_the_key_is_kept() -> None:
    with talking() as talk:
        early = frames("....................xxxxxxxxx", 10.0)
        talk.microphone.push(early)
        pressed = early[-1].captured_at
        talk.engine.post(Talk(pressed))
        talk.microphone.push(frames("xxx...", pressed))
        talk.engine.post(Release(pressed + 6 * FRAME_SECONDS))
        talk.turn()
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert len(said.samples) - 3200 >= (0.3 + 3 * FRAME_SECONDS) * 16000


def test_a_release_that_is_older_than_the_talk_does_not_end_it() -> None:
    with talking() as talk:
        talk.engine.post(Talk(10.0))
        talk.engine.post(Release(999.9))
        spoken = frames(SPEECH, 10.0)
        talk.microphone.push(spoken)
        talk.engine.post(Release(spoken[-1].captured_at))
        assert talk.turn().outcome is Outcome.ANSWERED
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert said.ended_at == spoken[11].captured_at


def test_a_release_that_is_meant_for_the_clip_before_does_not_end_the_talk() -> None:
    with talking() as talk:
        clip = talk.engine.post(Talk(10.0, source="clip.wav"))
        spoken = talk.engine.post(Talk(10.5))
        talk.engine.post(Release(10.6, clip))
        talk.microphone.push(frames(SPEECH, 10.5))
        talk.engine.post(Release(10.5 + len(SPEECH) * FRAME_SECONDS, spoken))
        assert [talk.turn().outcome for _ in "ab"] == [Outcome.CANCELLED, Outcome.ANSWERED]
        assert len(talk.brain.frames) >= len(SPEECH) - 1


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long for the frames after a release, because the test pushes them late."""
    monkeypatch.setattr("voxtui.dialogue.listening.listener.RELEASED_SOURCE_SECONDS", SECONDS)


@pytest.mark.usefixtures("patient")
def test_speech_that_goes_on_past_the_release_is_heard() -> None:
    with talking() as talk:
        talk.engine.post(Talk(10.0))
        spoken = frames("xxxxxxxxxxxx.....", 10.0)
        talk.microphone.push(spoken[:8])
        talk.engine.post(Release(10.0 + 8 * FRAME_SECONDS))
        talk.microphone.push(spoken[8:])
        talk.turn()
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert said.ended_at == spoken[11].captured_at


@pytest.mark.usefixtures("patient")
def test_listening_past_the_release_ends_after_200_ms() -> None:
    with talking() as talk:
        talk.engine.post(Talk(10.0))
        spoken = frames("x" * 40, 10.0)
        released = spoken[9].captured_at
        talk.microphone.push(spoken[:10])
        talk.engine.post(Release(released))
        talk.microphone.push(spoken[10:])
        talk.turn()
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert released + 0.2 <= said.ended_at <= released + 0.2 + FRAME_SECONDS


def test_nothing_captured_while_it_speaks_enters_the_next_utterance() -> None:
    with talking() as talk:
        talk.ask()
        ended = last_sound(talk.events)
        echo = [Frame(f.samples, ended + 0.12, f.source) for f in frames("xxxxx")]
        talk.microphone.push(echo)
        early = frames("xx", ended + 0.11)
        talk.microphone.push(early)
        talk.speak("xxxxxxxxxx...", early[-1].captured_at)
        talk.turn()
        said = talk.brain.said[1]
        assert isinstance(said, Utterance)
        assert len(said.samples) - 3200 == (2 + 10) * 512


def test_a_key_press_at_the_end_of_an_answer_does_not_record_its_echo() -> None:
    with talking() as talk:
        talk.ask()
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.READY))
        talk.speak("xx" + "...." + "xxxxxxxxxx" + "...", last_sound(talk.events))
        talk.turn()
        said = talk.brain.said[1]
        assert isinstance(said, Utterance)
        assert len(said.samples) - 3200 == (4 + 10) * 512


def last_sound(events: Events) -> float:
    started = events.of(TurnStarted)[0]
    assert isinstance(started, TurnStarted)
    at = started.timestamps.at(Milestone.LAST_SOUND)
    assert at is not None
    return at


def test_a_discarded_utterance_is_not_answered() -> None:
    with talking() as talk:
        talk.engine.post(Talk(10.0))
        talk.microphone.push(frames(SPEECH))
        talk.engine.post(Cancel())
        assert talk.turn().outcome is Outcome.CANCELLED
        assert talk.brain.inferences == 0
        assert talk.brain.listened[0][1].is_set()


def test_the_longest_utterance_ends_a_held_key() -> None:
    from voxtui.settings.schema import AudioConfig

    with talking(config=Config(audio=AudioConfig(max_utterance_s=1.0))) as talk:
        talk.engine.post(Talk(10.0))
        talk.microphone.push(frames("x" * 60))
        assert talk.turn().outcome is Outcome.ANSWERED
        said = [str(notice) for notice in talk.events.of(Notice)]
        assert len(said) == 2 and "0 s are left" in said[0]
        assert "Later speech was not recorded" in said[1]


def test_the_seconds_left_of_a_recording_are_known_while_it_lasts() -> None:
    with talking(config=Config(audio=AudioConfig(max_utterance_s=60))) as talk:
        assert talk.engine.seconds_left is None
        talk.engine.post(Talk(LONG_AGO))
        talk.microphone.push(frames("x" * 1600, LONG_AGO))
        talk.events.until(Notice, lambda e: "10 s are left: a recording ends after 60 s" in str(e))
        while (talk.engine.seconds_left or 60) > 9:
            Flag().wait(0.001)
        talk.engine.post(Release(LONG_AGO + 1600 * FRAME_SECONDS))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert talk.engine.seconds_left is None


def test_an_overdriven_microphone_is_named_once_while_one_speaks() -> None:
    with talking() as talk:
        for at in (LONG_AGO, LONG_AGO + 100):
            overdriven = frames(SPEECH, at)
            for frame in overdriven:
                np.clip(frame.samples * 1000, -1, 1, out=frame.samples)
            talk.engine.post(Talk(at))
            talk.microphone.push(overdriven)
            talk.engine.post(Release(at + len(SPEECH) * FRAME_SECONDS))
            talk.turn()
        assert notices(talk.events).count("'fake microphone' is overdriven") == 1


def test_hands_free_speech_starts_a_turn_and_silence_ends_it() -> None:
    config = Config(vad=VadConfig(hands_free=True))
    with talking(config=config) as talk:
        talk.microphone.push(frames("......xxxxxxxxxxxx" + "." * 26, LONG_AGO))
        turn = talk.turn()
        assert turn.outcome is Outcome.ANSWERED
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert len(said.samples) == (6 + 12) * 512 + 3200


def test_hands_free_a_click_starts_nothing() -> None:
    config = Config(vad=VadConfig(hands_free=True))
    with talking(config=config) as talk:
        talk.microphone.push(frames("..xx....xxx......" * 3, LONG_AGO))
        talk.engine.post(SendText("done"))
        assert talk.turn().heard == "done"
        assert talk.brain.inferences == 1


def test_a_clip_is_heard_instead_of_the_microphone() -> None:
    with talking() as talk:
        talk.engine.post(Talk(10.0, source="clip.wav", paced=False))
        talk.microphone.push(frames("xxxxxxxxxxxx", 10.0))
        for frame in frames(SPEECH, 10.0, source="clip.wav"):
            talk.engine.push(frame)
        talk.engine.post(Release(10.0 + len(SPEECH) * FRAME_SECONDS))
        turn = talk.turn()
        assert (turn.clip, turn.paced) == ("clip.wav", False)
        said = talk.brain.said[0]
        assert isinstance(said, Utterance) and len(said.samples) == 12 * 512 + 3200


def test_a_short_silent_clip_does_not_count_as_a_tap() -> None:
    with talking() as talk:
        talk.engine.post(Talk(10.0, source="clip.wav"))
        for frame in frames("....", 10.0, source="clip.wav"):
            talk.engine.push(frame)
        talk.engine.post(Release(10.0 + 4 * FRAME_SECONDS))
        assert talk.turn().outcome is Outcome.NO_SPEECH


def spoken_frames(said: Utterance | str) -> int:
    assert isinstance(said, Utterance)
    return (len(said.samples) - TRAIL) // FRAME_SAMPLES


def test_a_late_release_cuts_off_the_words_that_came_after_it() -> None:
    with talking() as talk:
        talk.engine.post(Talk(10.0))
        spoken = frames("x" * 10 + "...." + "x" * 20, 10.0)
        talk.microphone.push(spoken)
        talk.engine.post(Release(spoken[11].captured_at))
        talk.turn()
        said = talk.brain.said[0]
        assert isinstance(said, Utterance) and said.ended_at == spoken[9].captured_at


def test_a_late_release_keeps_200_ms_of_speech_that_continues() -> None:
    with talking() as talk:
        talk.engine.post(Talk(10.0))
        spoken = frames("x" * 40, 10.0)
        talk.microphone.push(spoken)
        released = spoken[9].captured_at
        talk.engine.post(Release(released))
        talk.turn()
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert released + 0.2 <= said.ended_at <= released + 0.2 + FRAME_SECONDS


def test_a_word_that_begins_between_a_tap_and_the_press_after_it_is_whole() -> None:
    with talking() as talk:
        spoken = frames("...." + "xx" + "x" * 10 + "....", 10.0)
        tap = talk.engine.post(Talk(10.0))
        talk.microphone.push(spoken[:5])
        talk.engine.post(Release(10.0 + 2 * FRAME_SECONDS, tap))
        talk.microphone.push(spoken[5:6])
        began = spoken[5].captured_at + FRAME_SECONDS / 2
        turn = talk.engine.post(Talk(began))
        talk.microphone.push(spoken[6:])
        talk.engine.post(Release(spoken[-1].captured_at, turn))
        assert [talk.turn().outcome for _ in "ab"] == [Outcome.CANCELLED, Outcome.ANSWERED]
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert sum(end - start for start, end in said.speech) == pytest.approx(12 * FRAME_SECONDS)


def test_frames_that_a_tap_gives_back_keep_their_order() -> None:
    with talking() as talk:
        spoken = frames("." * 20 + "x" * 10 + "....", 10.0)
        talk.microphone.push(spoken[:20])
        at = spoken[19].captured_at
        talk.engine.post(Release(at, talk.engine.post(Talk(at))))
        assert talk.turn().outcome is Outcome.CANCELLED
        before = len(talk.brain.frames)
        turn = talk.engine.post(Talk(at))
        talk.microphone.push(spoken[20:])
        talk.engine.post(Release(spoken[-1].captured_at, turn))
        talk.turn()
        heard = [frame.captured_at for frame, _ in talk.brain.frames[before:]]
        assert heard == sorted(set(heard)) and len(heard) >= 11 + 13


class Speaking(FakeSpeaker):
    """Has been heard for two seconds when its first chunk comes."""

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        timestamps.record(Milestone.FIRST_SOUND, time.monotonic() - 2.0)
        super().play(chunk, timestamps, stopped)


def test_a_clip_that_is_not_played_in_real_time_is_heard_after_an_answer() -> None:
    """Its frames bear times at which the answer before was spoken."""
    with talking(speaker=Speaking()) as talk:
        talk.ask()
        now = time.monotonic()
        talk.engine.post(Talk(now - 0.4, source="clip.wav", paced=False))
        for frame in frames(SPEECH, now - 0.4, "clip.wav"):
            talk.engine.push(frame)
        talk.engine.post(Release(now - 0.4 + len(SPEECH) * FRAME_SECONDS))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert spoken_frames(talk.brain.said[1]) == 12


def test_with_headphones_the_words_that_interrupt_are_heard_whole() -> None:
    speaker = Speaking(held=True, heard=0.05)
    brain = ScriptedBrain(["A long story."], ["Yes."])
    with talking(brain, speaker=speaker, config=HEADPHONES, overhearing=LoudIsSpeech()) as talk:
        talk.engine.post(SendText("tell me"))
        assert speaker.playing.wait(SECONDS)
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.SPEAKING))
        over_it = frames("." * 6 + "x" * 15 + "." * 30, time.monotonic() - 1.7)
        talk.microphone.push(over_it[:16])
        assert talk.turn().outcome is Outcome.CANCELLED
        speaker.held = False
        talk.microphone.push(over_it[16:])
        assert talk.turn().outcome is Outcome.ANSWERED
        assert spoken_frames(talk.brain.said[1]) == 6 + 15


class HeardEarlier(Speaking):
    """Was heard from four to two seconds ago."""

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        timestamps.record(Milestone.FIRST_SOUND, time.monotonic() - 4.0)
        super().play(chunk, timestamps, stopped)

    def finish(self, timestamps: Timestamps, stopped: StopFlag) -> float:
        timestamps.record(Milestone.LAST_SOUND, time.monotonic() - 2.0)
        return super().finish(timestamps, stopped)


@pytest.mark.parametrize(
    ("heard", "after_s", "outcome"),
    [
        ("long story. About the", -0.5, Outcome.CANCELLED),
        ("Stop, please.", -0.5, Outcome.ANSWERED),
        ("long story. About the", 0.15, Outcome.ANSWERED),
    ],
)
def test_an_echo_over_the_answer_is_dropped_and_named(
    heard: str, after_s: float, outcome: Outcome
) -> None:
    brain = ScriptedBrain(["A long story. ", "About the sea."], ["Yes."], heard=heard)
    with talking(brain, speaker=HeardEarlier(), config=HEADPHONES) as talk:
        talk.engine.post(SendText("tell me"))
        talk.turn()
        talk.microphone.push(frames("x" * 15 + "." * 30, time.monotonic() - 2.0 + after_s))
        assert talk.turn().outcome is outcome
        named = f"an echo of the answer: “{heard}”" in notices(talk.events)
        assert named == (outcome is Outcome.CANCELLED)
        talk.engine.post(SendText("and now?"))
        talk.turn()
        assert len(talk.brain.pasts[-1]) == (1 if named else 2)


@pytest.mark.parametrize(
    ("words", "spoken", "echo"),
    [
        ("The moon goes around", "Well, the moon goes around the earth.", True),
        ("oon goes around the ear", "The moon goes around the earth.", True),
        ("the earth goes around", "The moon goes around the earth.", False),
        ("The moon", "The moon.", True),
        ("London", "Paris or London?", False),
        ("", "The moon.", False),
        ("moon", "", False),
    ],
)
def test_an_echo_is_known_by_its_words(words: str, spoken: str, echo: bool) -> None:
    assert is_echo(words, spoken) is echo


def test_with_headphones_words_over_an_answer_that_is_ending_do_not_cancel_the_next() -> None:
    class VoiceBargeIn(LoudIsSpeech):
        def __init__(self) -> None:
            self.threads: set[threading.Thread] = set()

        def probability(self, frame):  # type: ignore[no-untyped-def]
            self.threads.add(threading.current_thread())
            return super().probability(frame)

    overhearing, go_on = VoiceBargeIn(), Flag()
    brain = ScriptedBrain(["Well", go_on, "One."])
    with talking(brain, silent=True, config=HEADPHONES, overhearing=overhearing) as talk:
        talk.engine.post(SendText("first"))
        talk.events.until(ReplyText)  # the brain is inside its answer
        overhearing.threads.clear()
        talk.speak()
        go_on.set()
        assert [talk.turn().outcome for _ in "ab"] == [Outcome.CANCELLED, Outcome.ANSWERED]
        assert overhearing.threads == {threading.current_thread()}


def test_hands_free_does_not_cancel_a_text_that_was_typed_meanwhile() -> None:
    go_on = Flag()
    with talking(ScriptedBrain([go_on, "One."]), silent=True, config=HANDS_FREE) as talk:
        talk.engine.post(SendText("first"))
        talk.events.until(UserWords)
        talk.microphone.push(frames("." + "x" * 10, 10.0))
        talk.engine.post(SendText("second"))
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


def test_hands_free_the_rest_of_a_cancelled_utterance_is_not_answered() -> None:
    with talking(config=HANDS_FREE) as talk:
        talk.microphone.push(frames("." * 20 + "x" * 20, LONG_AGO))
        talk.events.until(TurnStarted)
        talk.engine.post(Cancel())
        talk.microphone.push(frames("x" * 20 + "." * 30, LONG_AGO + 40 * FRAME_SECONDS))
        assert talk.turn().outcome is Outcome.CANCELLED
        talk.microphone.push(frames("x" * 10 + "." * 30, LONG_AGO + 90 * FRAME_SECONDS))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert spoken_frames(talk.brain.said[0]) == 6 + 10


def test_hands_free_start_ms_may_be_longer_than_the_longest_utterance() -> None:
    config = Config(
        vad=VadConfig(hands_free=True, start_ms=2000), audio=AudioConfig(max_utterance_s=1)
    )
    with talking(config=config) as talk:
        talk.microphone.push(frames("." * 20 + "x" * 80 + "." * 40, LONG_AGO))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert spoken_frames(talk.brain.said[0]) <= 1.2 / FRAME_SECONDS
        talk.engine.post(SendText("still there?"))
        assert talk.turn().outcome is Outcome.ANSWERED


def test_hands_free_an_utterance_that_ends_inside_the_preroll_is_answered_outside_of_it() -> None:
    """The pre-roll holds a whole utterance, then more speech: two turns, one after the other."""
    depths: list[int] = []

    class Measuring(ScriptedBrain):
        def listen(
            self, request: TurnRequest, recording: Recording, on_words: OnWords | None = None
        ) -> None:
            depths.append(len(inspect.stack(0)))
            super().listen(request, recording, on_words=on_words)

    vad = VadConfig(hands_free=True, start_ms=500, end_ms=64, min_speech_ms=200)
    with talking(Measuring(["One."], ["Two."]), config=Config(vad=vad)) as talk:
        talk.microphone.push(frames("." * 20 + "x" * 8 + "..." + "x" * 16 + "...", LONG_AGO))
        turns = [talk.turn() for _ in "ab"]
        assert [turn.outcome for turn in turns] == [Outcome.ANSWERED] * 2
        kinds = [type(e) for e in talk.events.seen if isinstance(e, TurnStarted | TurnFinished)]
        assert kinds == [TurnStarted, TurnFinished] * 2
        assert depths[0] == depths[1]  # the second turn does not begin inside the first


def test_a_clip_whose_source_stopped_without_a_release_ends_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("voxtui.dialogue.listening.listener.STOPPED_SOURCE_SECONDS", 0.05)
    with talking() as talk:
        talk.engine.post(Talk(10.0, source="clip.wav"))
        for frame in frames("xxxxxxxxxx", 10.0, "clip.wav"):
            talk.engine.push(frame)
        assert talk.turn().outcome is Outcome.ANSWERED


def test_a_clip_that_was_stopped_before_it_began_begins_no_turn() -> None:
    stopped = Flag()
    stopped.set()
    with talking() as talk:
        turn = talk.engine.post(Talk(10.0))
        speak(Clip("clip.wav", np.zeros(1600, np.float32)), talk.engine, stopped)
        talk.microphone.push(frames(SPEECH, 10.0))
        talk.engine.post(Release(10.0 + len(SPEECH) * FRAME_SECONDS, turn))
        assert talk.turn().outcome is Outcome.ANSWERED


def test_an_utterance_that_is_cancelled_before_its_answer_is_not_sent_to_the_brain() -> None:
    go_on = Flag()
    with talking(ScriptedBrain(["Well", go_on, "One."]), silent=True) as talk:
        talk.engine.post(SendText("first"))
        talk.events.until(ReplyText)
        talk.speak()
        talk.engine.post(Cancel())
        go_on.set()
        assert [talk.turn().outcome for _ in "ab"] == [Outcome.CANCELLED] * 2
        assert talk.brain.inferences == 1
