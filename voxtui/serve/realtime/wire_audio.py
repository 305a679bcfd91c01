"""The network connection in the place of a microphone and a speaker."""

from __future__ import annotations

import time
from bisect import bisect
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from voxtui.audio.resampling import Resampler
from voxtui.dialogue.data import (
    FRAME_SAMPLES,
    FRAME_SECONDS,
    SAMPLE_RATE,
    Frame,
    SpeechChunk,
    as_pcm,
)
from voxtui.dialogue.protocols import StopFlag
from voxtui.dialogue.timestamps import Timestamps
from voxtui.serve.realtime.output_buffer import Client, Sound

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

MOST_WAITING = 4 * 2**20
"""Maximum bytes of speech that wait for a slow client before the voice waits: 87 s at 24 kHz."""

POLL_SECONDS = 0.02

MOST_PLACES = 8000
"""Number of latest messages of sound whose times are stored, some minutes."""


class Frames:
    """Turns sound of `rate` Hz into frames with their capture times.

    No frame is captured before the previous one has ended, because frames of one sound must not
    overlap. Sound that arrives faster than real time is therefore dated into the future. A client
    removes its own echo, so speech in a frame may interrupt an answer.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._ended_at = 0.0
        """the capture time of the latest frame"""
        self._arrived = 0
        """the number of samples so far"""
        self._places: deque[tuple[float, float]] = deque(maxlen=MOST_PLACES)
        """capture times, with the seconds of sound sent up to each"""
        self.reset()

    @property
    def now(self) -> float:
        """The present time, or the end of the sound if that is later."""
        return max(time.monotonic(), self._ended_at)

    def position_ms(self, captured_at: float) -> int:
        """Return the milliseconds of sound sent up to a capture time."""
        sent = self._arrived / self._rate
        if self._places:
            after = bisect(self._places, (captured_at, sent))
            since, place = self._places[max(0, after - 1)]
            if after < len(self._places):
                sent = self._places[after][1]
            sent = min(sent, place + captured_at - since)
        return max(0, round(sent * 1000))

    def reset(self) -> None:
        """Drop the samples of an incomplete frame."""
        self._resampler = Resampler(self._rate, SAMPLE_RATE)
        self._rest = np.zeros(0, np.float32)

    def feed(self, samples: Samples) -> list[Frame]:
        self._arrived += len(samples)
        self._rest = np.concatenate([self._rest, self._resampler.process(samples)])
        count = len(self._rest) // FRAME_SAMPLES
        self._ended_at = max(self._ended_at, time.monotonic() - count * FRAME_SECONDS)
        sent = self._arrived / self._rate - len(self._rest) / SAMPLE_RATE
        self._places.append((self._ended_at, sent))
        whole, self._rest = np.split(self._rest, [count * FRAME_SAMPLES])
        return self._framed(whole)

    def flush(self) -> list[Frame]:
        """Return the incomplete frame, padded. The next sound begins anew."""
        samples = np.concatenate([self._rest, self._resampler.flush()])
        self.reset()
        return self._framed(np.pad(samples, (0, -len(samples) % FRAME_SAMPLES)))

    def _framed(self, samples: Samples) -> list[Frame]:
        frames: list[Frame] = []
        for piece in samples.reshape(-1, FRAME_SAMPLES):
            self._ended_at += FRAME_SECONDS
            frames.append(Frame(piece, self._ended_at, echo_free=True))
        return frames


class WireMicrophone:
    """A microphone without frames: the session itself pushes them."""

    name = "client"
    level = 0.0

    def attend(self, attended: bool) -> None: ...

    def open(self, sink: Callable[[Frame], None], lost: Callable[[str], None]) -> None: ...

    def close(self) -> None: ...


class WireSpeaker:
    """Passes speech of `rate` Hz to `client` as fast as it is made, because the client plays it.

    It writes no FIRST_SOUND, because only the client knows when it plays. Used by the engine's
    thread.
    """

    name = "client"

    def __init__(self, client: Client, rate: int) -> None:
        self._client = client
        self._rate = rate
        self._resampler: tuple[float, Resampler] | None = None
        """the rate of the chunks of the answer in progress, and their resampler"""
        self._seconds = 0.0

    def open(self) -> None: ...

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        while self._client.waiting > MOST_WAITING:
            if stopped.is_set():
                return
            time.sleep(POLL_SECONDS)  # neither the buffer nor the flag can wake this thread
        if self._resampler is None or self._resampler[0] != chunk.rate:
            self._resampler = chunk.rate, Resampler(chunk.rate, self._rate)
        self._deliver(self._resampler[1].process(chunk.samples))

    def finish(self, timestamps: Timestamps, stopped: StopFlag) -> float:
        if self._resampler is not None and not stopped.is_set():
            self._deliver(self._resampler[1].flush())
        seconds, self._seconds, self._resampler = self._seconds, 0.0, None
        return seconds

    def _deliver(self, samples: Samples) -> None:
        if len(samples):
            sound = Sound(as_pcm(samples), len(samples) / self._rate)
            self._seconds += sound.seconds
            self._client.deliver(sound)

    def chime(self, at: float | None) -> None: ...

    def close(self) -> None: ...
