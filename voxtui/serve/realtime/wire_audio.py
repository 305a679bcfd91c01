"""The wire in the place of a microphone and a speaker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxtui.audio.pcm import as_pcm
from voxtui.audio.resampling import Resampler, resample
from voxtui.dialogue.data import FRAME_SAMPLES, FRAME_SECONDS, SAMPLE_RATE, Frame, SpeechChunk
from voxtui.dialogue.timestamps import Timestamps
from voxtui.serve.realtime.session_settings import RATE

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

MOST_WAITING = 4 * 2**20
"""Bytes of speech that wait for a slow client, about 90 s. More makes the voice wait."""

POLL_SECONDS = 0.02


class Frames:
    """Turns sound of `rate` Hz into frames with the time at which they arrived.

    A client removes its own echo, so speech in a frame may interrupt an answer.
    """

    def __init__(self, rate: int = RATE) -> None:
        self._rate = rate
        self.reset()

    def reset(self) -> None:
        """Drop what is not a whole frame yet."""
        self._resampler = Resampler(self._rate, SAMPLE_RATE)
        self._rest = np.zeros(0, np.float32)

    def feed(self, samples: Samples) -> Iterator[Frame]:
        """Yield the frames that `samples` complete.

        Sound that comes faster than it was spoken is dated back by its length.
        """
        now = time.monotonic()
        self._rest = np.concatenate([self._rest, self._resampler.process(samples)])
        count = len(self._rest) // FRAME_SAMPLES
        for number in range(count):
            samples = self._rest[number * FRAME_SAMPLES : (number + 1) * FRAME_SAMPLES]
            captured_at = now - (count - 1 - number) * FRAME_SECONDS
            yield Frame(samples, captured_at, echo_free=True)
        self._rest = self._rest[count * FRAME_SAMPLES :]

    def rest(self, at: float) -> list[Frame]:
        """Return what is no whole frame yet, padded, as if it had arrived at `at`."""
        samples, self._rest = self._rest, self._rest[:0]
        if not len(samples):
            return []
        padded = np.pad(samples, (0, FRAME_SAMPLES - len(samples)))
        return [Frame(padded, at, echo_free=True)]


class WireMicrophone:
    """A microphone whose frames are pushed by the session itself."""

    name = "client"
    level = 0.0

    def attend(self, attended: bool) -> None: ...

    def open(self, sink: Callable[[Frame], None], lost: Callable[[str], None]) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Sound:
    """The next piece of the spoken answer."""

    pcm: bytes
    """16 bit, mono, at RATE"""

    @property
    def seconds(self) -> float:
        return len(self.pcm) / 2 / RATE


class WireSpeaker:
    """Hands speech to `deliver` as fast as it is made, because the client plays it.

    It marks no first sound, because only the client knows when it plays. `waiting` returns the
    bytes that the client has not taken yet. Used by the engine's thread.
    """

    name = "client"

    def __init__(self, deliver: Callable[[Sound], object], waiting: Callable[[], int]) -> None:
        self._deliver = deliver
        self._waiting = waiting
        self._seconds = 0.0

    def open(self) -> None: ...

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: Callable[[], bool]) -> None:
        while self._waiting() > MOST_WAITING:
            if stopped():
                return
            time.sleep(POLL_SECONDS)  # neither the buffer nor the flag can wake this thread
        sound = Sound(as_pcm(resample(chunk.samples, chunk.rate, RATE)))
        self._seconds += sound.seconds
        self._deliver(sound)

    def finish(self, timestamps: Timestamps, stopped: Callable[[], bool]) -> float:
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def close(self) -> None: ...
