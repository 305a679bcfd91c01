"""The latency of a chirp from the speaker to the microphone."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import pytest

from tests.audio.sounds import report
from tests.fakes import FakeMicrophone, FakeSpeaker
from tests.virtual_audio import MICROPHONE, SPEAKER, VirtualAudio
from voxtui.audio import loopback_delay
from voxtui.audio.clips import frames
from voxtui.audio.loopback_delay import RATE, chirp, find, measure
from voxtui.audio.microphone import SounddeviceMicrophone
from voxtui.audio.resampling import resample
from voxtui.audio.speaker import SounddeviceSpeaker
from voxtui.dialogue.data import FRAME_SECONDS, SAMPLE_RATE, Frame
from voxtui.dialogue.timestamps import Milestone
from voxtui.errors import DeviceError

CHIRP = resample(chirp(), RATE, SAMPLE_RATE)


@pytest.mark.parametrize("gain", [1.0, 0.1, -0.01])
def test_a_chirp_is_found_to_the_sample(gain: float) -> None:
    room = np.random.default_rng(1).normal(0, 0.001, 16_000).astype(np.float32)
    room[5000 : 5000 + len(CHIRP)] += gain * CHIRP
    at = find(room)
    assert at is not None and abs(at - 5000) <= 1


def test_noise_silence_and_a_tone_are_not_taken_for_a_chirp() -> None:
    noise = np.random.default_rng(2)
    tone = np.sin(np.arange(16_000) / 16_000 * 2 * np.pi * 700).astype(np.float32)
    for sound in (noise.normal(0, 0.3, 16_000), np.zeros(16_000), np.zeros(10), tone):
        assert find(np.asarray(sound, np.float32)) is None


class Cable(FakeSpeaker):
    """Sends what it plays to `microphone` after `delay` seconds, changed by `room`."""

    def __init__(self, microphone, delay=0.1, room=lambda sound: sound):
        super().__init__()
        self._microphone, self._room = microphone, room
        self._delay = np.zeros(round(delay * SAMPLE_RATE), np.float32)
        self._now = time.monotonic()

    def open(self):
        self.deliver(np.full(SAMPLE_RATE, 0.001))

    def play(self, chunk, timestamps, stopped):
        timestamps.record(Milestone.FIRST_SOUND, self._now)
        sound = self._room(resample(chunk.samples, chunk.rate, SAMPLE_RATE))
        self.deliver(np.concatenate([self._delay, sound, np.zeros(SAMPLE_RATE, np.float32)]))

    def deliver(self, samples):
        for piece in frames([samples.astype(np.float32)]):
            self._now += FRAME_SECONDS
            self._microphone.push([Frame(piece, self._now)])


@pytest.fixture
def cable(monkeypatch):
    monkeypatch.setattr(loopback_delay, "NOISE_SECONDS", 0.0)

    def lay(**how):
        microphone = FakeMicrophone()
        return Cable(microphone, **how), microphone

    return lay


def test_the_delay_of_a_cable_is_its_offset(cable) -> None:
    found = measure(*cable(delay=0.1))
    assert len(found.offsets) == 5
    assert found.offsets == pytest.approx([0.1] * 5, abs=0.002)
    assert found.noise == pytest.approx(0.001, rel=0.05)
    assert found.peak == pytest.approx(0.5, abs=0.05)
    assert found.clipped == 0


def test_clipping_is_counted(cable) -> None:
    found = measure(*cable(room=lambda sound: np.clip(4 * sound, -1, 1)))
    assert found.clipped > 100


def test_a_microphone_lost_during_the_measurement_raises_a_device_error(cable) -> None:
    speaker, microphone = cable()
    speaker.play = lambda *_: microphone.unplug()
    speaker.finish = lambda timestamps, stopped: timestamps.record(Milestone.FIRST_SOUND)
    with pytest.raises(DeviceError, match="unplugged"):
        measure(speaker, microphone)
    assert speaker.closed and microphone.closed


@pytest.mark.slow
@pytest.mark.audio
def test_the_latency_of_real_devices_is_measured(
    virtual_audio: VirtualAudio, tmp_path, capsys
) -> None:
    """The virtual echo adds 40 ms; latency that the sound system reports is not counted."""
    virtual_audio.echo(80, delay_ms=40)
    try:
        found = measure(SounddeviceSpeaker(SPEAKER), SounddeviceMicrophone(MICROPHONE))
    finally:
        virtual_audio.echo(0)
    offset = median(found.offsets)
    report(f"offset {offset * 1000:.1f} ms, round trip {median(found.round_trips) * 1000:.1f} ms")
    assert len(found.offsets) >= 4
    assert 0.02 < offset < 0.08
    assert found.clipped == 0
    assert found.noise < 0.001 < found.peak
