"""Measure the real latency of sound: play a chirp and search for it in the recording."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import numpy as np

from voxtui.audio.resampling import resample
from voxtui.dialogue.data import FRAME_SECONDS, SAMPLE_RATE, Frame, Samples, SpeechChunk, audible
from voxtui.dialogue.protocols import Microphone, Speaker
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import DeviceError

CHIRPS = 5
RATE = 24_000
CHIRP_SECONDS = 0.15
LOWEST_HZ, HIGHEST_HZ = 500.0, 5000.0
"""Frequencies within the range of the smallest speaker and of every microphone."""
PEAK = 0.5

NOISE_SECONDS = 1.0
EARLIEST_SECONDS, LATEST_SECONDS = 0.1, 0.8
"""Times before and after the expected one between which a chirp is searched for."""

LIKENESS = 0.3
"""Minimum correlation of a chirp. Noise and speech stay below 0.1."""

FULL_SCALE = 0.99


@dataclass(frozen=True, slots=True)
class Loopback:
    round_trips: tuple[float, ...]
    """seconds from `play` to the capture by the microphone"""
    offsets: tuple[float, ...]
    """seconds from `first_sound` to the capture, so of speaker and microphone"""
    noise: float
    """the root mean square of the room's sound, 0 to 1"""
    peak: float
    """the loudest sample of the recorded chirps"""
    clipped: int
    """the number of samples at full scale"""


def measure(speaker: Speaker, microphone: Microphone, chirps: int = CHIRPS) -> Loopback:
    """Play `chirps` and record them. Opens and closes both devices. Raises DeviceError."""
    recorder = Recorder()
    microphone.open(recorder.arrived.put, recorder.lose)
    try:
        speaker.open()
        recorder.until(time.monotonic() + NOISE_SECONDS)
        quiet = recorder.since(0.0)[1]
        heard = [found for _ in range(chirps) if (found := _one(speaker, recorder)) is not None]
    finally:
        speaker.close()
        microphone.close()
    sounds = np.concatenate([sound for _, _, sound in heard]) if heard else np.zeros(1, np.float32)
    return Loopback(
        round_trips=tuple(trip for trip, _, _ in heard),
        offsets=tuple(offset for _, offset, _ in heard),
        noise=float(np.sqrt(np.mean(np.square(quiet, dtype=np.float64)))) if len(quiet) else 0.0,
        peak=float(np.abs(sounds).max()),
        clipped=int(np.count_nonzero(np.abs(sounds) >= FULL_SCALE)),
    )


def _one(speaker: Speaker, recorder: Recorder) -> tuple[float, float, Samples] | None:
    """Return the round trip, the offset and the recorded chirp; None if there is no chirp."""
    timestamps, sound = Timestamps(), chirp()
    handed_over = time.monotonic()
    speaker.play(SpeechChunk(sound, RATE, "chirp"), timestamps, recorder.lost)
    speaker.finish(timestamps, recorder.lost)
    first_sound = timestamps.at(Milestone.FIRST_SOUND)
    if first_sound is None:
        raise DeviceError("The speaker played nothing.")
    recorder.until(first_sound + CHIRP_SECONDS + LATEST_SECONDS)
    began, samples = recorder.since(first_sound - EARLIEST_SECONDS)
    at = find(samples)
    if at is None:
        return None
    heard = began + at / SAMPLE_RATE
    delay = float(audible(sound)[0]) / RATE
    length = round(CHIRP_SECONDS * SAMPLE_RATE)
    return heard - handed_over, heard + delay - first_sound, samples[at : at + length]


def chirp() -> Samples:
    """Make a rising tone with soft ends, which correlates with itself at one place only."""
    t = np.arange(round(CHIRP_SECONDS * RATE)) / RATE
    phase = LOWEST_HZ * t + (HIGHEST_HZ - LOWEST_HZ) * t * t / (2 * CHIRP_SECONDS)
    return (PEAK * np.hanning(len(t)) ** 0.25 * np.sin(2 * np.pi * phase)).astype(np.float32)


def find(samples: Samples) -> int | None:
    """Return the index in `samples` (16 kHz) at which the chirp begins."""
    wanted = resample(chirp(), RATE, SAMPLE_RATE)
    if len(samples) < len(wanted):
        return None
    likeness = np.correlate(samples, wanted, "valid")
    energy = np.cumsum(np.concatenate([[0.0], np.square(samples, dtype=np.float64)]))
    loudness = np.sqrt(np.maximum(energy[len(wanted) :] - energy[: -len(wanted)], 1e-12))
    scores = np.abs(likeness) / (loudness * np.linalg.norm(wanted))
    best = int(np.argmax(scores))
    return best if scores[best] >= LIKENESS else None


class Recorder:
    """Collects the frames of a microphone. One thread waits for them."""

    def __init__(self) -> None:
        self.arrived: SimpleQueue[Frame | None] = SimpleQueue()
        self.lost = threading.Event()
        self._frames: list[Frame] = []
        self._reason = ""

    def lose(self, reason: str) -> None:
        self._reason = reason
        self.lost.set()
        self.arrived.put(None)

    def until(self, at: float) -> None:
        """Wait for the sound up to the monotonic time `at`. Raises DeviceError."""
        while not self.lost.is_set() and (not self._frames or self._frames[-1].captured_at < at):
            try:
                frame = self.arrived.get(timeout=max(0.0, at - time.monotonic() + LATEST_SECONDS))
            except Empty:
                raise DeviceError("The microphone delivers no sound.") from None
            if frame is not None:
                self._frames.append(frame)
        if self.lost.is_set():
            raise DeviceError(self._reason)

    def since(self, at: float) -> tuple[float, Samples]:
        """Return the time at which the sound after `at` begins, and that sound."""
        frames = [frame for frame in self._frames if frame.captured_at > at]
        if not frames:
            return at, np.zeros(0, np.float32)
        sound = np.concatenate([frame.samples for frame in frames])
        return frames[0].captured_at - FRAME_SECONDS, sound
