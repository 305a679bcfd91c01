from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from voxtui.dialogue.data import SAMPLE_RATE, Samples

PERIOD_SECONDS = 0.01
"""Interval at which the device takes sound, if it can be set. A sound server begins to play at the
end of a period: PortAudio's default of 50 ms would add 25 ms to every first sound."""

JUDGED_SECONDS = 0.3
"""Length of sound during which at least one poll is on time, even on a busy machine."""

PAUSE_SECONDS = 0.01
"""Minimum pause of a sound server that got no sound in time: one period."""

PIECES = 512
"""Maximum number of stored pieces: more than a second, besides the 200 ms written ahead."""


@dataclass(slots=True)
class PlayedSegment:
    """Sound that the device plays without a break, from when it takes the first of it."""

    rate: float
    written: int = 0
    """the number of samples passed to the device"""
    began_at: float | None = None
    """the monotonic time of its beginning, or None until the device has taken some"""
    dropped_at: float | None = None
    """the monotonic time at which the device dropped the rest, or None if it plays all"""
    taken: int = 0
    """the number of samples that the device has taken"""
    period: float = PERIOD_SECONDS
    """the interval in seconds at which the device takes them; assumed until it is known"""
    _least: float = float("inf")
    """the least number of samples that it took at once"""
    _judged: int = 0
    """the number of samples at the last check for a pause of the device"""
    _earliest: float = float("inf")
    """the earliest beginning that a poll has shown since that check"""

    def took(self, samples: int, now: float) -> None:
        """Note that the device took `samples` since the last poll; the latest of them play now.

        A poll may be late but never early, so the earliest beginning that any poll shows is right.
        If no poll shows it for a while, the device has paused.
        """
        if not self.written:
            return
        self.taken += samples
        if self.taken < self.written:  # else it may be a rest
            self._least = min(self._least, samples)
        shown = now - max(0.0, self.taken / self.rate - self.period)
        self._earliest = min(self._earliest, shown)
        if self.began_at is None or shown < self.began_at:
            self.began_at = shown
        if self.taken - self._judged > JUDGED_SECONDS * self.rate:
            if self._earliest > self.began_at + PAUSE_SECONDS:
                self.began_at = self._earliest
            self._judged, self._earliest = self.taken, float("inf")

    def following(self) -> PlayedSegment:
        """Return the next segment of the same stream, which knows the period from this one.

        Some devices take sound at a longer interval than was asked for.
        """
        period = max(PERIOD_SECONDS, self._least / self.rate) if self._judged else self.period
        return PlayedSegment(self.rate, period=period)


class Played:
    """The latest sound of the speaker, by the time at which it is audible.

    The speaker's writer adds to it and the microphone's thread reads it. Each takes single steps
    on a deque, so there is no lock.
    """

    def __init__(self) -> None:
        self._pieces: deque[tuple[PlayedSegment, int, Samples]] = deque(maxlen=PIECES)

    def add(self, segment: PlayedSegment, samples: Samples) -> None:
        self._pieces.append((segment, segment.written, samples))

    def between(self, begin: float, end: float) -> tuple[float, Samples, float | None]:
        """Return the rate, the sound from `begin` to `end`, and the start of its segment.

        All times are monotonic seconds. The sound is zero while nothing is played. The rate is that
        of the newest piece. The segment is the newest in that time; None if nothing is played.
        """
        import numpy as np

        pieces = list(self._pieces)
        rate = pieces[-1][0].rate if pieces else float(SAMPLE_RATE)
        count = last = round((end - begin) * rate)
        sound, playing = np.zeros(count, np.float32), None
        of, offset = None, 0
        for segment, first, samples in reversed(pieces):
            began = segment.began_at
            if began is None or segment.rate != rate:
                continue
            if segment is not of:
                of, offset = segment, round((began - begin) * rate)
                dropped = segment.dropped_at
                last = count if dropped is None else min(count, round((dropped - begin) * rate))
            at = offset + first
            if at >= last:
                continue  # most pieces are not heard yet
            if at + len(samples) <= 0:
                break  # the pieces before it are older
            start, stop = max(at, 0), min(at + len(samples), last)
            if start < stop:
                sound[start:stop] = samples[start - at : stop - at]
                playing = playing or began
        return rate, sound, playing


PLAYED = Played()
"""The sound of this process, one for all its speakers, because a microphone hears each of them."""
