"""The microphone on the real PortAudio; another program plays what it hears."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.audio.sounds import edges, find, question, report
from tests.fakes import SECONDS, Flag
from tests.virtual_audio import MICROPHONE, RATE, SAID, VirtualAudio
from voxtui.audio.echo_canceller import EchoCanceller
from voxtui.audio.microphone import (
    BLOCK_SECONDS,
    KEPT_SECONDS,
    UNATTENDED_SECONDS,
    Framer,
    SounddeviceMicrophone,
)
from voxtui.audio.played import Played
from voxtui.audio.portaudio import Device, streams
from voxtui.audio.resampling import DELAY_SECONDS, downsampler, resample
from voxtui.dialogue.data import FRAME_SAMPLES, FRAME_SECONDS, SAMPLE_RATE, Frame
from voxtui.errors import DeviceError

pytestmark = pytest.mark.audio


class Capture:
    """Collects frames, and when each of them arrived."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.came_at: list[float] = []
        self.levels: list[float] = []
        """of the microphone, as each frame arrived"""
        self.microphone: SounddeviceMicrophone | None = None
        self.sentences: list[str] = []
        self.lost_now = threading.Event()
        self._more = threading.Condition()

    def sink(self, frame: Frame) -> None:
        with self._more:
            self.frames.append(frame)
            self.came_at.append(time.monotonic())
            if self.microphone is not None:
                self.levels.append(self.microphone.level)
            self._more.notify_all()

    def lost(self, sentence: str) -> None:
        self.sentences.append(sentence)
        self.lost_now.set()

    def wait(self, seconds: float) -> None:
        """Block until `seconds` more have been captured."""
        wanted = len(self.frames) + round(seconds / FRAME_SECONDS)
        with self._more:
            assert self._more.wait_for(lambda: len(self.frames) >= wanted, SECONDS + seconds)

    @property
    def samples(self) -> np.ndarray:
        return np.concatenate([frame.samples for frame in self.frames])


@pytest.fixture
def capture() -> Capture:
    return Capture()


@pytest.fixture
def microphone(virtual_audio: VirtualAudio, capture: Capture) -> Iterator[SounddeviceMicrophone]:
    capture.microphone = microphone = SounddeviceMicrophone(MICROPHONE)
    microphone.open(capture.sink, capture.lost)
    yield microphone
    microphone.close()


def test_speech_arrives_whole(
    virtual_audio: VirtualAudio, microphone: SounddeviceMicrophone, capture: Capture
) -> None:
    said = question("capital-of-france")
    capture.wait(0.2)
    assert virtual_audio.say(said).wait() == 0
    capture.wait(0.3)
    heard = capture.samples
    _, correlation = find(said, heard)
    first, last = edges(said, heard, SAMPLE_RATE)
    report(f"correlation {correlation:.4f}, first 100 ms {first:.4f}, last 100 ms {last:.4f}")
    assert correlation >= 0.97 and min(first, last) >= 0.95
    assert np.abs(heard).max() == pytest.approx(np.abs(said).max(), rel=0.1)
    assert not capture.sentences


def test_every_frame_is_whole_and_none_is_missing(
    microphone: SounddeviceMicrophone, capture: Capture
) -> None:
    capture.wait(2.0)
    assert {(f.samples.shape, f.samples.dtype.name) for f in capture.frames} == {
        ((FRAME_SAMPLES,), "float32")
    }
    times = np.array([frame.captured_at for frame in capture.frames])
    # A capture that waits long on a busy machine restarts the clock at a frame or two.
    assert np.percentile(np.abs(np.diff(times) - FRAME_SECONDS), 90) < 0.01
    assert times[-1] - times[0] == pytest.approx((len(times) - 1) * FRAME_SECONDS, abs=0.2)
    late = np.array(capture.came_at[: len(times)]) - times
    report(f"frames came {late.min() * 1000:.1f} to {late.max() * 1000:.1f} ms after their time")
    assert late.min() > -0.02


def test_a_frame_carries_the_time_at_which_its_sound_was_made(
    virtual_audio: VirtualAudio, microphone: SounddeviceMicrophone, capture: Capture
) -> None:
    said = question("meow")
    with virtual_audio.record(SAID) as outside:
        capture.wait(0.1)
        assert virtual_audio.say(said).wait() == 0
        capture.wait(0.2)
    at, _ = find(said, capture.samples)
    dated = capture.frames[0].captured_at - FRAME_SECONDS + at / SAMPLE_RATE
    at, _ = find(said, resample(outside.samples, RATE, SAMPLE_RATE))
    difference = dated - outside.began_at - at / SAMPLE_RATE
    report(f"dated {difference * 1000:.1f} ms after it was recorded outside")
    assert abs(difference) < 0.03


def test_silence_is_digital_zeros_and_the_level_follows_the_sound(
    virtual_audio: VirtualAudio, microphone: SounddeviceMicrophone, capture: Capture
) -> None:
    capture.wait(0.5)
    assert not capture.samples.any()
    assert capture.levels[-1] == 0.0
    assert virtual_audio.say(np.full(8000, 0.25, np.float32)).wait() == 0
    while not capture.samples.any():
        capture.wait(FRAME_SECONDS)
    assert np.abs(capture.samples).max() == pytest.approx(0.25, abs=0.05)
    heard = [level for level in capture.levels if level]
    assert np.median(heard) == pytest.approx(0.25, abs=0.05)
    while microphone.level:
        capture.wait(FRAME_SECONDS)


def test_no_frame_comes_after_close_and_it_opens_again(
    microphone: SounddeviceMicrophone, capture: Capture
) -> None:
    capture.wait(0.1)
    microphone.close()
    before = len(capture.frames)
    microphone.close()
    again = Capture()
    microphone.open(again.sink, again.lost)
    again.wait(0.2)
    assert len(capture.frames) == before
    assert not capture.sentences and not again.sentences


@pytest.mark.parametrize("rate", [16_000, 44_100, 48_000])
def test_late_blocks_get_times_by_their_count_and_a_gap_restarts_the_clock(
    rate: int,
) -> None:
    block = rate // 100
    sound = np.zeros(3 * rate, np.float32)
    sound[rate : rate + 10] = 0.5

    def dated(late: float) -> list[Frame]:
        """Cut `sound` in blocks of 10 ms; a second is missing in its middle."""
        framer, frames = Framer(rate), list[Frame]()
        for start in range(0, len(sound), block):
            missed = 1.0 if start >= len(sound) // 2 else 0.0
            jitter = late if start % (3 * block) else 0.0
            at = 100.0 + (start + block) / rate + missed + jitter
            frames += framer.frames(sound[start : start + block], at)
        return frames

    def clicked_at(frames: list[Frame]) -> float:
        loud = next(frame for frame in frames if np.abs(frame.samples).max() > 0.1)
        after = FRAME_SAMPLES - int(np.abs(loud.samples).argmax())
        return loud.captured_at - after / SAMPLE_RATE

    assert clicked_at(dated(late=0.0)) == pytest.approx(101.0, abs=0.001)
    frames = dated(late=0.02)
    times = np.array([frame.captured_at for frame in frames])
    steps = np.diff(times)
    assert len(frames) == pytest.approx(3.0 / FRAME_SECONDS, abs=2)
    assert sorted(np.abs(steps - FRAME_SECONDS) > 0.002)[-2:] == [False, True]
    assert steps.max() == pytest.approx(1.0 + FRAME_SECONDS, abs=0.03)
    assert clicked_at(frames) == pytest.approx(101.0, abs=0.02)


@pytest.mark.parametrize(("rate", "waits"), [(16_000, 0.0), (44_100, BLOCK_SECONDS), (48_000, 0.0)])
def test_a_frame_comes_with_the_block_that_completes_it(rate: int, waits: float) -> None:
    assert 0.0 <= max(lateness(rate, Framer(rate))) <= waits + DELAY_SECONDS


@pytest.mark.parametrize("rate", [16_000, 48_000])
def test_behind_a_canceller_each_frame_is_equally_late(rate: int) -> None:
    pytest.importorskip("pywebrtc_audio")
    late = lateness(rate, Framer(rate, EchoCanceller(Played())))
    assert max(late) - min(late) < 0.001
    assert max(late) < 0.02


def lateness(rate: int, framer: Framer) -> list[float]:
    """Return the seconds from the last sample of each frame to that of the block it comes with."""
    block, late = round(BLOCK_SECONDS * rate), list[float]()
    for number in range(200):
        at = 100.0 + number * block / rate
        frames = framer.frames(np.zeros(block, np.float32), at)
        late += [at - frame.captured_at for frame in frames]
    assert len(late) == pytest.approx(200 * block / rate / FRAME_SECONDS, abs=1)
    return late


@pytest.mark.parametrize("rate", [16_000, 44_100, 48_000])
def test_frames_behind_skipped_blocks_hold_what_was_heard_then(rate: int) -> None:
    block = rate // 100
    sound = np.random.default_rng(1).uniform(-0.5, 0.5, 2 * rate).astype(np.float32)
    framer, frames = Framer(rate), list[Frame]()
    for start in range(0, len(sound), block):
        at, piece = 100.0 + (start + block) / rate, sound[start : start + block]
        if 0.3 < at - 100.0 < 1.3:
            framer.skip(len(piece), at)
            frames.clear()
        else:
            frames += framer.frames(piece, at)
    whole = downsampler(rate).process(sound)
    heard = np.concatenate([f.samples for f in frames])
    begin = round((frames[0].captured_at - FRAME_SECONDS - 100.0) * SAMPLE_RATE)
    assert begin == pytest.approx(1.3 * SAMPLE_RATE, abs=block)
    settled = heard[200:-200]  # behind the gap, and before the end of the sound
    near = (whole[begin + d + 200 :][: len(settled)] for d in (-1, 0, 1))
    assert min(np.abs(part - settled).max() for part in near) < 0.01


def test_an_unattended_microphone_delivers_its_latest_sound_once_it_is_attended(
    virtual_audio: VirtualAudio, microphone: SounddeviceMicrophone, capture: Capture
) -> None:
    capture.wait(0.1)
    microphone.attend(False)
    level, before = Flag(), len(capture.frames)
    player = virtual_audio.say(np.full(SAMPLE_RATE, 0.25, np.float32))
    while not microphone.level:
        level.wait(0.01)
    assert player.wait() == 0
    unattended, began = len(capture.frames), time.monotonic()
    microphone.attend(True)
    capture.wait(0.3)
    assert unattended <= before + 4
    times = np.array([frame.captured_at for frame in capture.frames[unattended:]])
    assert np.diff(times).max() == pytest.approx(FRAME_SECONDS, abs=0.01)
    assert began - times[0] == pytest.approx(KEPT_SECONDS, abs=UNATTENDED_SECONDS + 0.1)
    assert np.abs(capture.frames[unattended].samples).max() == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize("wanted", ["voxnic", "99"])
def test_a_name_that_does_not_exist_is_refused(virtual_audio: VirtualAudio, wanted: str) -> None:
    with pytest.raises(DeviceError, match=f"There is no microphone '{wanted}'"):
        SounddeviceMicrophone(wanted).open(lambda frame: None, lambda sentence: None)


@pytest.mark.parametrize("wanted", ["", MICROPHONE.upper(), "mic"])
def test_the_default_and_part_of_a_name_find_it(
    virtual_audio: VirtualAudio, capture: Capture, wanted: str
) -> None:
    microphone = SounddeviceMicrophone(wanted)
    microphone.open(capture.sink, capture.lost)
    try:
        capture.wait(0.1)
        assert microphone.name == MICROPHONE  # also behind the name "default"
    finally:
        microphone.close()


def test_a_device_without_a_mono_stream_is_opened_in_stereo_and_a_busy_one_is_refused(
    virtual_audio: VirtualAudio, capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sounddevice

    opened, tried = sounddevice.RawInputStream, list[tuple[float, int]]()

    def stubborn(least: int):  # type: ignore[no-untyped-def]
        def stream(**options):  # type: ignore[no-untyped-def]
            tried.append((options["samplerate"], options["channels"]))
            if options["channels"] < least:
                raise sounddevice.PortAudioError("Device unavailable")
            return opened(**options)

        return stream

    microphone = SounddeviceMicrophone(MICROPHONE)
    monkeypatch.setattr(sounddevice, "RawInputStream", stubborn(2))
    microphone.open(capture.sink, capture.lost)
    capture.wait(0.1)
    microphone.close()
    assert tried == [(48_000, 1), (44_100, 1), (48_000, 2)]
    monkeypatch.setattr(sounddevice, "RawInputStream", stubborn(999))
    with pytest.raises(DeviceError, match=f"'{MICROPHONE}' is in use by another program"):
        microphone.open(capture.sink, capture.lost)


def test_sound_that_portaudio_lost_is_marked_on_the_next_frame(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sounddevice

    streams_opened = list[dict[str, Any]]()

    class FakeStream:
        def __init__(self, **options: Any) -> None:
            streams_opened.append(options)

        def start(self) -> None: ...
        def close(self, ignore_errors: bool) -> None: ...

    device = Device(0, "Headset", "ALSA", 1, 0, SAMPLE_RATE, True, False)
    monkeypatch.setattr(sounddevice, "RawInputStream", FakeStream)
    monkeypatch.setattr("voxtui.audio.microphone.list_devices", lambda: [device])
    microphone = SounddeviceMicrophone("")
    microphone.open(capture.sink, capture.lost)
    callback = streams_opened[0]["callback"]
    times = SimpleNamespace(currentTime=1.0, inputBufferAdcTime=1.0)
    good, overflow, underflow = (sounddevice.CallbackFlags(flags) for flags in (0, 2, 1))
    for status in (good, overflow, good, underflow, overflow, overflow):
        callback(bytes(4 * FRAME_SAMPLES), FRAME_SAMPLES, times, status)
    microphone.close()
    assert [frame.overflow for frame in capture.frames] == [False, True, False, False, True, True]


def test_the_mark_of_lost_sound_waits_for_a_whole_frame() -> None:
    framer, half = Framer(SAMPLE_RATE), np.zeros(FRAME_SAMPLES // 2, np.float32)
    assert framer.frames(half, 100.016, overflow=True) == []
    frames = framer.frames(half, 100.032) + framer.frames(np.tile(half, 2), 100.064)
    assert [frame.overflow for frame in frames] == [True, False]


def test_no_stream_is_opened_while_another_is_closed() -> None:
    free = list[bool]()

    def look() -> None:
        free.append(streams.lock.acquire(blocking=False))
        if free[0]:
            streams.lock.release()

    class Stream:
        def close(self, ignore_errors: bool) -> None:
            other = threading.Thread(target=look)
            other.start()
            other.join()

    streams.opened()
    streams.close(Stream())
    assert free == [False]


def test_a_microphone_that_delivers_nothing_is_lost(
    virtual_audio: VirtualAudio, microphone: SounddeviceMicrophone, capture: Capture
) -> None:
    capture.wait(0.1)
    virtual_audio.stall()
    try:
        assert capture.lost_now.wait(SECONDS)
        assert capture.sentences == [
            f"The microphone '{MICROPHONE}' stopped delivering sound; was it unplugged?"
        ]
        microphone.close()
    finally:
        virtual_audio.unstall()


def test_a_microphone_whose_server_dies_is_lost_once_and_opens_again(
    virtual_audio: VirtualAudio, microphone: SounddeviceMicrophone, capture: Capture
) -> None:
    capture.wait(0.1)
    virtual_audio.kill()
    try:
        assert capture.lost_now.wait(SECONDS)
        microphone.close()
        assert len(capture.sentences) == 1
        with pytest.raises(DeviceError, match="There is no microphone"):
            microphone.open(capture.sink, capture.lost)
    finally:
        virtual_audio.start()
    again = Capture()
    microphone.open(again.sink, again.lost)
    again.wait(0.2)


def test_a_bug_on_the_converting_thread_reaches_the_exception_hook(
    virtual_audio: VirtualAudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    bugs: queue.SimpleQueue[type[BaseException]] = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", lambda bug: bugs.put(bug.exc_type))

    def broken(frame: Frame) -> None:
        raise ZeroDivisionError

    microphone = SounddeviceMicrophone(MICROPHONE)
    microphone.open(broken, lambda sentence: None)
    try:
        assert bugs.get(timeout=SECONDS) is ZeroDivisionError
    finally:
        microphone.close()
