"""The microphone on the real PortAudio; another program plays what it hears."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.audio.sounds import edges, find, question, report
from tests.fakes import SECONDS, Flag
from tests.virtual_audio import MICROPHONE, RATE, SAID, VirtualAudio
from voxtui.audio.echo_canceller import EchoCanceller
from voxtui.audio.microphone import (
    BLOCK_SECONDS,
    KEPT_BLOCKS,
    LATE_READINGS,
    ArrivalClock,
    Framer,
    SounddeviceMicrophone,
)
from voxtui.audio.played import Played
from voxtui.audio.portaudio import Device, streams
from voxtui.audio.resampling import DELAY_SECONDS, Resampler, resample
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


BLOCK = 480
"""samples of 10 ms at 48 kHz"""


def dated(clock: ArrivalClock, lates: list[float], begin: float = 100.0) -> list[float]:
    """Return by how much `clock` dates blocks too late that were captured from `begin` on."""
    errors = list[float]()
    for number, late in enumerate(lates, 1):
        captured = begin + number * BLOCK / RATE
        clock.advance(BLOCK, captured + late, lost=False)
        errors.append(clock.at - captured)
    return errors


def test_late_readings_do_not_move_the_clock_and_the_earliest_sets_it() -> None:
    errors = dated(ArrivalClock(RATE), [0.03, 0.02, 0.001, 0.02, *[0.05] * 50, 0.003])
    assert errors[:3] == pytest.approx([0.03, 0.02, 0.001])
    assert errors[3:] == pytest.approx([0.001] * 52)


def test_a_device_whose_clock_is_slower_or_faster_is_followed() -> None:
    jitter = np.random.default_rng(1).exponential(0.004, 60_000)
    for drift in (-1e-4, 1e-4):  # 60 ms in ten minutes
        drifted = [late + drift * n * BLOCK / RATE for n, late in enumerate(jitter)]
        errors = np.array(dated(ArrivalClock(RATE), drifted))
        true = drift * np.arange(len(errors)) * BLOCK / RATE
        assert np.abs(errors - true)[200:].max() < 0.002


def test_lost_sound_restarts_the_clock_at_once_if_it_is_reported_or_long() -> None:
    clock = ArrivalClock(RATE)
    dated(clock, [0.001] * 10)
    clock.advance(BLOCK, clock.at + 0.06, lost=True)
    assert clock.at == pytest.approx(100.161)
    clock.advance(BLOCK, clock.at + 1.01, lost=False)
    assert clock.at == pytest.approx(101.171)


def test_lost_sound_that_nobody_reports_is_noticed_after_a_while() -> None:
    clock = ArrivalClock(RATE)
    dated(clock, [0.0] * 10)
    errors = dated(clock, [0.0] * (LATE_READINGS + 1), begin=100.15)  # 50 ms are missing
    assert errors[0] == pytest.approx(-0.05)
    assert errors[-1] == pytest.approx(0.0)


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
            framer.restart()
            frames.clear()
        else:
            frames += framer.frames(piece, at)
    whole = Resampler(rate, SAMPLE_RATE).process(sound)
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
    blocks = (began - times[0] + FRAME_SECONDS) / BLOCK_SECONDS
    assert KEPT_BLOCKS - 3 < blocks < KEPT_BLOCKS + 3
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

    flags = [False, True, False, True, True]

    class FakeStream:
        latency = 1.0

        def __init__(self, **options: Any) -> None: ...
        def start(self) -> None: ...
        def close(self, ignore_errors: bool) -> None: ...

        @property
        def read_available(self) -> int:
            if not flags:
                raise sounddevice.PortAudioError("Unanticipated host error")
            return FRAME_SAMPLES

        def read(self, count: int) -> tuple[bytes, bool]:
            return bytes(4 * count), flags.pop(0)

    device = Device(0, "Headset", "ALSA", 1, 0, SAMPLE_RATE, True, False)
    monkeypatch.setattr(sounddevice, "RawInputStream", FakeStream)
    monkeypatch.setattr("voxtui.audio.portaudio.list_devices", lambda: [device])
    microphone = SounddeviceMicrophone("")
    microphone.open(capture.sink, capture.lost)
    assert capture.lost_now.wait(SECONDS)
    microphone.close()
    assert [frame.overflow for frame in capture.frames] == [False, True, False, True, True]


def test_a_stream_whose_first_blocks_were_late_is_dated_by_those_that_are_not(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sounddevice

    begin, block = time.monotonic(), round(BLOCK_SECONDS * SAMPLE_RATE)

    class FakeStream:
        latency, taken = 1.0, 0

        def __init__(self, **options: Any) -> None: ...
        def start(self) -> None: ...
        def close(self, ignore_errors: bool) -> None: ...

        @property
        def read_available(self) -> int:
            late = 0.01 if self.taken < 30 * block else 0.0
            captured = int((time.monotonic() - begin - late) / BLOCK_SECONDS) * block
            return max(0, captured - self.taken)

        def read(self, count: int) -> tuple[bytes, bool]:
            self.taken += count
            return bytes(4 * count), False

    device = Device(0, "Headset", "ALSA", 1, 0, SAMPLE_RATE, True, False)
    monkeypatch.setattr(sounddevice, "RawInputStream", FakeStream)
    monkeypatch.setattr("voxtui.audio.portaudio.list_devices", lambda: [device])
    microphone = SounddeviceMicrophone("")
    microphone.open(capture.sink, capture.lost)
    capture.wait(1.2)
    microphone.close()
    error = capture.frames[-1].captured_at - begin - len(capture.frames) * FRAME_SECONDS
    report(f"dated {error * 1000:.1f} ms late")
    assert -0.001 < error < 0.002


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

    streams.open += 1
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
