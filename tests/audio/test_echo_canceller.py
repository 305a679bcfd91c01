"""Our own speech is removed from what the microphone hears, and somebody else's is not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from tests.audio.sounds import correlation, question
from voxtui.audio.echo_canceller import SETTLING_SECONDS, EchoCanceller
from voxtui.audio.microphone import Framer
from voxtui.audio.played import Played, PlayedSegment
from voxtui.dialogue.data import FRAME_SAMPLES, FRAME_SECONDS, SAMPLE_RATE, Frame
from voxtui.dialogue.listening import level
from voxtui.errors import DeviceError
from voxtui.settings.schema import AudioConfig, Config, VadConfig
from voxtui.wiring import cancels_echo

RATE = 48_000
NOW = 1000.0
BLOCK = RATE // 20


@cache
def answer() -> np.ndarray:
    """Five seconds of speech at 48 kHz."""
    names = ("blue-and-yellow", "largest-planet", "opposite-of-hot", "first-month")
    return np.concatenate([question(name, RATE) for name in names])[: 5 * RATE]


class PlayedAhead:
    """What a speaker notes that plays `speech` from NOW on and writes 200 ms ahead."""

    def __init__(self, speech: np.ndarray, dropped_at: float | None = None) -> None:
        self.notes = Played()
        self._speech = speech
        self._segment = PlayedSegment(RATE, began_at=NOW, dropped_at=dropped_at)

    def until(self, at: float) -> Played:
        """Go on to the time `at`."""
        last = round((at - NOW + 0.2) * RATE)
        while self._segment.written < min(last, len(self._speech)):
            piece = self._speech[self._segment.written :][: RATE // 100]
            self.notes.add(self._segment, piece)
            self._segment.written += len(piece)
        return self.notes


SILENT = np.zeros(0, np.float32)


def room(speech: np.ndarray, delay_s: float, volume: float) -> np.ndarray:
    """Return what a microphone hears of `speech`."""
    delay = round(delay_s * RATE)
    return volume * np.concatenate([np.zeros(delay, np.float32), speech])[: len(speech)]


def captured(heard: np.ndarray, speech: np.ndarray) -> list[Frame]:
    """Return the frames of a microphone that hears `heard` while `speech` is played."""
    pytest.importorskip("pywebrtc_audio")
    speaker, frames = PlayedAhead(speech), list[Frame]()
    framer = Framer(RATE, EchoCanceller(speaker.notes))
    for end in range(BLOCK, len(heard) + 1, BLOCK):
        now = NOW + end / RATE
        speaker.until(now)
        frames += framer.frames(heard[end - BLOCK : end], now)
    return frames


def power(frames: Sequence[Frame], since: float) -> float:
    """Return the loudness (dB) of the frames captured from `since` seconds on."""
    late = [frame.samples for frame in frames if frame.captured_at > NOW + since]
    return 10 * np.log10(np.mean(np.square(np.concatenate(late))) + 1e-12)


@pytest.mark.parametrize(("delay_s", "volume"), [(0.01, 1.0), (0.06, 0.3)])
def test_our_own_speech_is_removed(delay_s: float, volume: float) -> None:
    speech = answer()
    heard = room(speech, delay_s, volume)
    plain, clean = captured(heard, SILENT), captured(heard, speech)
    assert power(plain, SETTLING_SECONDS) > -35
    assert power(clean, SETTLING_SECONDS) < power(plain, SETTLING_SECONDS) - 25


def test_frames_are_free_of_echo_once_its_delay_is_known() -> None:
    speech = answer()
    frames = captured(room(speech, 0.03, 1.0), speech)
    first = next(frame for frame in frames if frame.echo_free)
    assert first.captured_at - NOW == pytest.approx(SETTLING_SECONDS, abs=0.1)
    assert not any(frame.echo_free for frame in captured(speech, SILENT))


def test_the_delay_of_the_next_segment_is_found_again() -> None:
    pytest.importorskip("pywebrtc_audio")
    played, sound = Played(), np.ones(RATE, np.float32)
    canceller = EchoCanceller(played)

    def settled_after(segment: PlayedSegment, seconds: int) -> bool:
        began = segment.began_at or 0.0
        for second in range(seconds):
            played.add(segment, sound)
            segment.written += RATE
            canceller.process(np.zeros(SAMPLE_RATE, np.float32), began + second + 1)
        return canceller.settled

    assert settled_after(PlayedSegment(RATE, began_at=NOW), 3)
    assert not settled_after(PlayedSegment(RATE, began_at=NOW + 3), 1)


def test_while_nothing_is_played_the_sound_is_only_delayed() -> None:
    pytest.importorskip("pywebrtc_audio")
    canceller, sound = EchoCanceller(Played()), answer()[:SAMPLE_RATE]
    blocks = np.split(sound, 100)
    passed = [canceller.process(b, NOW + k / 100) for k, b in enumerate(blocks)]
    assert {len(piece) for piece in passed} == {160}
    heard = np.concatenate(passed)
    delay = round(canceller.delay_s * SAMPLE_RATE) + len(heard) - len(sound)
    assert heard[delay:] == pytest.approx(sound[: len(heard) - delay])


def test_the_library_never_gets_digital_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    library, given = pytest.importorskip("pywebrtc_audio"), list[np.ndarray]()

    class Noting:
        def __init__(self, *about: object, **more: object) -> None:
            self._canceller = library_canceller(*about, **more)

        def process(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
            given.extend((near, far))
            return self._canceller.process(near, far)

    library_canceller = library.EchoCanceller
    monkeypatch.setattr(library, "EchoCanceller", Noting)
    speech, muted = np.pad(answer()[:RATE], RATE // 2), np.zeros(2 * RATE, np.float32)
    assert any(frame.samples.any() for frame in captured(muted, speech))
    assert given and all(sound.any() for sound in given)
    assert max(np.abs(near).max() for near in given[::2]) < level.SILENT


def test_the_canceller_begins_to_work_without_a_click() -> None:
    pytest.importorskip("pywebrtc_audio")
    played, segment = Played(), PlayedSegment(RATE, began_at=NOW + 0.5)
    played.add(segment, np.full(RATE, 1e-5, np.float32))
    canceller = EchoCanceller(played)
    tone = 0.3 * np.sin(2 * np.pi * 1500 * np.arange(SAMPLE_RATE) / SAMPLE_RATE)
    blocks = np.split(tone.astype(np.float32), 100)
    heard = np.concatenate([canceller.process(b, NOW + k / 100) for k, b in enumerate(blocks, 1)])
    delay = round(canceller.delay_s * SAMPLE_RATE) + len(heard) - len(tone)
    assert heard[delay:] == pytest.approx(tone[: len(heard) - delay], abs=0.05)


def test_a_late_look_at_the_device_does_not_make_the_speech_late() -> None:
    segment = PlayedSegment(RATE, written=RATE)
    segment.took(RATE // 50, NOW + 0.03)  # 20 ms after 10 ms
    late = segment.began_at
    segment.took(RATE // 50, NOW + 0.04)
    segment.took(RATE // 50, NOW + 0.09)
    assert late == pytest.approx(NOW + 0.02)
    assert segment.began_at == pytest.approx(NOW + 0.01)


def test_the_second_answer_knows_the_period_of_a_slow_device() -> None:
    """The device takes 40 ms at a time, and nobody looks later than 5 ms after it."""
    step, segment = RATE // 25, PlayedSegment(RATE)
    errors = []
    for _ in range(2):
        segment.written = 24 * step + step // 3
        for number in range(1, 25):
            segment.took(step, NOW + (number - 1) * 0.04 + 0.005 * (number % 2))
        segment.took(step // 3, NOW + 0.96)  # all that is left
        assert segment.began_at is not None
        errors.append(segment.began_at - NOW)
        segment = segment.following()
    assert errors == pytest.approx([-0.03, 0.0])


def test_a_person_who_talks_over_it_is_heard_at_the_right_time() -> None:
    speech, words = answer(), question("largest-planet", RATE) * 0.7
    heard = room(speech, 0.03, 0.3)
    at = 3 * RATE
    words = words[: len(heard) - at]
    heard[at : at + len(words)] += words
    frames = captured(heard, speech)
    began = next(k for k, frame in enumerate(frames) if frame.captured_at > NOW + 3.0)
    over = np.concatenate([frame.samples for frame in frames[began:]])
    early = frames[began].captured_at - FRAME_SECONDS - NOW - 3.0
    said = np.interp(np.arange(len(words) // 3) * 3, np.arange(len(words)), words)
    lag = round(-early * SAMPLE_RATE)
    size = min(len(said), len(over) - lag)
    assert abs(lag) < FRAME_SAMPLES
    found = correlation(said[:size], over[max(0, lag) :][:size])
    assert found > 0.6


def test_what_the_device_dropped_is_not_played() -> None:
    speech = np.ones(RATE, np.float32)
    notes = PlayedAhead(speech, dropped_at=NOW + 0.25).until(NOW + 0.8)
    rate, sound, _ = notes.between(NOW - 0.1, NOW + 0.5)
    assert rate == RATE
    assert np.flatnonzero(sound).tolist() == list(range(RATE // 10, RATE * 35 // 100))


def test_nothing_is_played_by_a_segment_that_has_not_begun() -> None:
    notes = Played()
    notes.add(PlayedSegment(RATE), np.ones(RATE, np.float32))
    assert not notes.between(NOW, NOW + 1.0)[1].any()


@pytest.mark.parametrize(
    ("wanted", "hands_free", "installed", "cancels"),
    [
        ("auto", True, True, True),
        ("auto", False, True, False),
        ("auto", True, False, False),
        ("on", False, True, True),
        ("off", True, True, False),
    ],
)
def test_echo_is_cancelled_where_it_is_wanted_and_possible(
    wanted: str, hands_free: bool, installed: bool, cancels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "pywebrtc_audio", None)
    audio = AudioConfig(echo_cancellation=wanted)  # type: ignore[arg-type]
    assert cancels_echo(Config(audio=audio, vad=VadConfig(hands_free=hands_free))) is cancels


def test_a_broken_installation_is_an_error_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pywebrtc_audio", None)
    with pytest.raises(DeviceError, match="The echo canceller did not load"):
        EchoCanceller(Played())


def test_without_the_extra_it_cannot_be_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pywebrtc_audio", None)
    with pytest.raises(DeviceError, match=r"needs pywebrtc-audio, .*'\.\[hands-free\]'"):
        cancels_echo(Config(audio=AudioConfig(echo_cancellation="on")))
