"""The chime of a timer, mixed into what is written to the device."""

from __future__ import annotations

import threading
import time
from contextlib import closing, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from voxtui.audio import speaker as speaker_module
from voxtui.audio.chime import Chime, bells
from voxtui.audio.played import PlayedSegment
from voxtui.audio.portaudio import Device
from voxtui.audio.speaker import SounddeviceSpeaker

RATE = 48_000
SILENCE = np.zeros(round(0.2 * RATE), np.float32)


def test_a_chime_begins_at_its_sample_once_the_device_plays() -> None:
    segment = PlayedSegment(RATE, written=RATE, began_at=9.05)
    mixed = Chime(10.1, RATE).mix(SILENCE, segment, now=9.9)
    assert np.flatnonzero(mixed)[0] == round(0.05 * RATE) + 1  # its first sample is zero


def test_a_chime_that_is_due_is_heard_though_the_device_has_not_begun() -> None:
    chime = Chime(10.0, RATE)
    assert not chime.mix(SILENCE, PlayedSegment(RATE), now=9.9).any()
    assert chime.mix(SILENCE, PlayedSegment(RATE), now=10.0).any()


def test_a_chime_that_is_ended_while_the_writer_mixes_it_fades_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chime, playing = Chime(10.0, RATE), PlayedSegment(RATE, written=RATE, began_at=9.0)
    chime.mix(SILENCE, playing, now=10.0)
    linspace = np.linspace

    def meanwhile(*arguments: Any, **options: Any) -> np.ndarray:
        chime.mix(SILENCE, playing, now=10.0)
        return linspace(*arguments, **options)

    monkeypatch.setattr(np, "linspace", meanwhile)
    chime.end()
    assert chime.over
    assert not chime.mix(SILENCE, playing, now=10.2).any()


class SlowDevice:
    """FakeStream: plays in real time, and takes 20 ms to be handed anything, as on a busy machine.

    So 10 ms of silence at a time never get ahead of it.
    """

    def __init__(self, samplerate: float, **_: object) -> None:
        self._rate, self._queued, self._at = samplerate, 0.0, time.monotonic()
        self.heard = threading.Event()
        self.written = np.zeros(0, np.float32)

    @property
    def write_available(self) -> int:
        now = time.monotonic()
        self._queued = max(0.0, self._queued - (now - self._at) * self._rate)
        self._at = now
        return round(0.2 * self._rate - self._queued)

    def write(self, samples: np.ndarray) -> None:
        threading.Event().wait(0.02)
        self._queued += len(samples)
        self.written = np.concatenate([self.written, samples[:, 0]])
        if np.abs(samples).max(initial=0.0) > 0.1:
            self.heard.set()

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def close(self, ignore_errors: bool) -> None: ...


@pytest.mark.parametrize("rate", [RATE, 44_100])
@pytest.mark.parametrize("announced_before", [False, True])
def test_a_chime_is_heard_from_a_device_that_is_never_handed_enough_silence(
    announced_before: bool, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[SlowDevice]()

    def stream(**options: Any) -> SlowDevice:
        opened.append(SlowDevice(**options))
        return opened[-1]

    library = SimpleNamespace(OutputStream=stream, PortAudioError=OSError)
    device = Device(0, "slow", "", 0, 1, rate, False, True)
    monkeypatch.setattr(speaker_module, "portaudio", lambda: library)
    monkeypatch.setattr("voxtui.audio.portaudio.portaudio", lambda: library)
    monkeypatch.setattr("voxtui.audio.portaudio.list_devices", lambda: [device])
    monkeypatch.setattr(speaker_module, "periods", lambda count: nullcontext())
    with closing(SounddeviceSpeaker("")) as speaker:
        at = time.monotonic() + 1.0
        if announced_before:
            speaker.chime(at)
        speaker.open()
        if not announced_before:
            speaker.chime(at)
        assert opened[0].heard.wait(4.0)
    heard = np.trim_zeros(opened[0].written)[:1000]
    assert heard == pytest.approx(np.trim_zeros(bells(rate))[:1000])
