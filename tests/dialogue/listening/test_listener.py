"""Frames to utterances, without an engine."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from tests.fakes import LoudIsSpeech, frames, record
from voxtui.dialogue.data import AUDIBLE, FRAME_SAMPLES, FRAME_SECONDS, MICROPHONE, Frame
from voxtui.dialogue.listening.endpointing import Endpointer, SpeechGate, VoiceBargeIn
from voxtui.dialogue.listening.listener import (
    Finding,
    Finished,
    Listener,
    Recorded,
    Started,
    TooQuiet,
)
from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.settings.schema import Config, VadConfig


def test_a_verdict_does_not_flutter() -> None:
    gate = SpeechGate(0.5)
    assert [gate.verdict(p) for p in (0.4, 0.6, 0.4, 0.36, 0.3, 0.4)] == [
        False, True, True, True, False, False,
    ]  # fmt: skip
    assert gate.verdict(0.6)
    gate.reset()
    assert not gate.verdict(0.4)


def test_speech_ends_however_low_the_threshold_is() -> None:
    gate = SpeechGate(0.1)
    assert [gate.verdict(p) for p in (0.2, 0.05, 0.0)] == [True, True, False]


def test_the_voice_that_begins_a_turn_is_measured_to_the_nearest_frame() -> None:
    endpointer = Endpointer(VadConfig())  # six frames are 192 ms
    assert "".join(".b"[endpointer.starts(True)] for _ in range(7)) == ".....b."


def test_only_voice_that_lasts_begins_a_turn_by_itself() -> None:
    endpointer = Endpointer(VadConfig(start_ms=90))
    assert "".join(".b"[endpointer.starts(c == "x")] for c in "xx.xxxxxx.x") == ".....b..b.."


def test_the_rest_of_a_discarded_utterance_begins_no_turn() -> None:
    endpointer = Endpointer(VadConfig(start_ms=90, end_ms=90))
    endpointer.skip()
    found = "".join(".b"[endpointer.starts(c == "x")] for c in "xxxx..xxxx...xxx")
    assert found == "." * 15 + "b"


@pytest.mark.parametrize(
    ("pattern", "ends"), [("....", False), ("x..", False), ("x...", True), ("x...x", False)]
)
def test_only_silence_that_lasts_after_speech_ends_it(pattern: str, ends: bool) -> None:
    assert Endpointer(VadConfig(end_ms=90)).ends(record(pattern)) is ends


def test_voice_over_the_end_of_one_answer_does_not_interrupt_the_next() -> None:
    class Counting(LoudIsSpeech):
        resets = 0

        def reset(self) -> None:
            self.resets += 1

    detector = Counting()
    overhearing = VoiceBargeIn(detector, LiveConfig(Config(vad=VadConfig(interrupt_ms=90))))
    heard = zip(frames("xxxxx"), (1, 1, 2, 2, 2), strict=True)
    assert [overhearing.interrupts(*one) for one in heard] == [False] * 4 + [True]
    assert detector.resets == 2


@pytest.mark.parametrize(
    ("heard", "interrupts"),
    [
        ([(0.8, 0.9)] * 9, False),  # faint
        (
            [(0.9, 1.1), (0.4, 1.1), (0.4, 1.1), (0.9, 1.1)],
            False,
        ),  # one doubtful frame after another
        ([(0.8, 0.9), (0.95, 1.1), (0.95, 1.1)], True),
        ([(0.7, 1.1), (0.7, 1.1)], False),
        ([(0.7, 1.1), (0.7, 1.1), (0.7, 1.1)], True),
    ],
)
def test_clear_speech_interrupts_sooner_than_doubtful_and_the_rest_of_an_echo_never(
    heard: list[tuple[float, float]], interrupts: bool
) -> None:
    """`heard`: the probability of speech in each frame, and its level in multiples of AUDIBLE."""

    class Known(LoudIsSpeech):
        def probability(self, frame: Frame) -> float:
            return probabilities.pop(0)

    probabilities = [probability for probability, _ in heard]
    sound = AUDIBLE * np.ones(FRAME_SAMPLES, np.float32)
    barge_in = VoiceBargeIn(Known(), LiveConfig(Config(vad=VadConfig())))
    found = [barge_in.interrupts(Frame(level * sound, 0.0), 1) for _, level in heard]
    assert found == [False] * (len(heard) - 1) + [interrupts]


def listener(**vad: object) -> Listener:
    return Listener(LoudIsSpeech(), LiveConfig(Config(vad=VadConfig(**vad))))  # type: ignore[arg-type]


def push(listener: Listener, pattern: str, start: float = 10.0) -> list[Finding]:
    """Push the frames of `pattern` and return the results but `Recorded`."""
    found = [listener.push(frame) for frame in frames(pattern, start)]
    return [one for one in found if one is not None and not isinstance(one, Recorded)]


def test_a_turn_without_a_key_is_released_when_its_last_frame_was_captured() -> None:
    ears, spoken = listener(hands_free=True, end_ms=90), frames("xxxxxxxxxx...")
    ears.begin(MICROPHONE, 10.0, hands_free=True)
    *_, found = [ears.push(frame) for frame in spoken]
    assert isinstance(found, Finished) and found.released_at == spoken[-1].captured_at


def test_a_listener_returns_the_utterance_of_a_released_key() -> None:
    ears = listener()
    assert ears.begin(MICROPHONE, 10.0) == []
    assert push(ears, "xxxxxxxxxx...") == []
    found = ears.release(10.0 + 13 * FRAME_SECONDS)
    assert isinstance(found, Finished) and not found.too_long
    assert found.utterance.ended_at == pytest.approx(10.0 + 10 * FRAME_SECONDS)
    assert ears.recording is None


def test_a_complete_recording_ends_at_its_release_although_its_last_frame_is_speech() -> None:
    for complete in (False, True):
        ears = listener()
        ears.begin(MICROPHONE, 10.0)
        push(ears, "x" * 10)
        found = ears.release(10.0 + 10 * FRAME_SECONDS, complete)
        assert isinstance(found, Finished) is complete


def test_a_listener_returns_a_tap_and_gives_its_frames_back_as_preroll() -> None:
    ears = listener()
    ears.begin(MICROPHONE, 10.0)
    push(ears, "....")
    found = ears.release(10.0 + 3.5 * FRAME_SECONDS)
    assert isinstance(found, TooQuiet) and found.tap and found.peak is None
    assert len(ears.begin(MICROPHONE, 10.0 + 4 * FRAME_SECONDS)) == 4


def test_hands_free_a_listener_reports_speech_and_begins_nothing_itself() -> None:
    ears = listener(hands_free=True)
    (started,) = push(ears, "." * 20 + "x" * 7)
    assert isinstance(started, Started) and ears.recording is None
    preroll = ears.begin(MICROPHONE, started.at, hands_free=True)
    assert [frame.captured_at for frame in preroll] == sorted(f.captured_at for f in preroll)


def test_frames_without_an_echo_are_heard_during_our_own_speech() -> None:
    ears = listener(hands_free=True)
    spoken = Timestamps()
    spoken.record(Milestone.FIRST_SOUND, 10.0)
    spoken.record(Milestone.LAST_SOUND, 1010.0)
    ears.note_speech(spoken)
    assert push(ears, "." * 20 + "x" * 7) == []
    clean = [replace(frame, echo_free=True) for frame in frames("." * 20 + "x" * 7)]
    assert [type(found) for frame in clean if (found := ears.push(frame))] == [Started]


def test_only_frames_without_an_echo_end_an_answer_and_only_hands_free() -> None:
    (frame,) = frames("x")
    clean = replace(frame, echo_free=True)
    assert not listener(hands_free=True).may_interrupt(frame)
    assert listener(hands_free=True).may_interrupt(clean)
    assert not listener().may_interrupt(clean)
    assert not listener(hands_free=True).may_interrupt(replace(clean, source="clip.wav"))
    assert listener(hands_free=True, listen_while_speaking=True).may_interrupt(frame)


def test_a_release_that_is_older_than_the_recording_returns_nothing() -> None:
    ears = listener()
    ears.begin(MICROPHONE, 10.0)
    assert ears.release(999.0) is None and ears.recording is not None


def test_an_abandoned_recording_returns_nothing() -> None:
    ears = listener()
    ears.begin(MICROPHONE, 10.0)
    push(ears, "xxxxxxxxxx")
    ears.abandon()
    assert ears.finish() is None


@pytest.mark.parametrize("released", [True, False])
def test_a_frame_of_the_microphone_ends_a_clip_whose_source_has_stopped(
    released: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ears = listener()
    ears.begin("clip.wav", 10.0)
    for frame in frames("xxxxxxxxxx", 10.0, "clip.wav"):
        ears.push(frame)
    if released:
        assert ears.release(10.0 + 12 * FRAME_SECONDS) is None
    assert push(ears, "..") == []
    monkeypatch.setattr("voxtui.dialogue.listening.listener.RELEASED_SOURCE_SECONDS", -1.0)
    monkeypatch.setattr("voxtui.dialogue.listening.listener.STOPPED_SOURCE_SECONDS", -1.0)
    (found,) = push(ears, ".", 11.0)
    assert isinstance(found, Finished)


def test_a_clip_is_not_over_because_the_process_was_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ears = listener()
    ears.begin("clip.wav", 10.0)
    for frame in frames("xxxxxxxxxx", 10.0, "clip.wav"):
        ears.push(frame)
    later = time.monotonic() + 60.0
    monkeypatch.setattr("voxtui.dialogue.listening.listener.time.monotonic", lambda: later)
    assert push(ears, "..") == []
    assert ears.source == "clip.wav"


def test_a_microphone_that_pauses_before_the_release_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("voxtui.dialogue.listening.listener.STOPPED_SOURCE_SECONDS", -1.0)
    ears = listener()
    ears.begin(MICROPHONE, 10.0)
    assert push(ears, "xxxxxxxxxx") == [] and ears.patience_s is None
