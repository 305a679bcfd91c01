"""The chime of a ringing timer, and its mixing over the speaker's sound."""

from __future__ import annotations

from collections.abc import Sequence

from voxtui.audio.played import PlayedSegment
from voxtui.dialogue.data import Samples, SpeechChunk

NOTES = ((0.0, 1318.5), (0.16, 1760.0), (0.32, 2217.5), (0.64, 1760.0), (0.80, 2217.5))
"""Onset in seconds, and frequency in hertz, of tones that small loudspeakers play well."""

SECONDS = 1.6
"""Length of the chime, with its decay."""

CUE_SECONDS = 0.4

PEAK = 0.5

VOICE_GAIN = 0.2
"""Gain of the voice during the chime, -14 dB: it is clear, and the words stay intelligible."""

FADE_SECONDS = 0.02

AHEAD_SECONDS = 0.9
"""Silence before a chime while nothing plays. The device starts, and polls show when it plays what;
a late start is noticed after JUDGED_SECONDS, in addition to the 200 ms that are written ahead."""


class Chime:
    """A chime at a time, mixed over whatever is written to the device. `rate` is in Hz.

    It is made on the caller's thread, so that the writer's thread only multiplies and adds.
    """

    def __init__(self, at: float, rate: float) -> None:
        import numpy as np

        self.at = at
        """the monotonic time of the chime"""
        self.rate = rate
        sound = bells(rate)
        fade = np.linspace(1.0, VOICE_GAIN, round(FADE_SECONDS * rate), dtype=np.float32)
        gain = np.full(len(sound), VOICE_GAIN, np.float32)
        gain[: len(fade)] = fade
        gain[-8 * len(fade) :] = np.linspace(VOICE_GAIN, 1.0, 8 * len(fade))
        self._wave = sound, gain
        """the chime and the voice's gain, replaced together: the writer may be mixing them"""
        self._position = 0
        """the number of samples of the chime written so far"""

    @property
    def over(self) -> bool:
        return self._position >= len(self._wave[0])

    def due(self, now: float) -> bool:
        """Return True if the device must play by now, if only silence."""
        return not self.over and now >= self.at - AHEAD_SECONDS

    def mix(self, samples: Samples, segment: PlayedSegment, now: float) -> Samples:
        """Return `samples`, which are written next, with the due part of the chime mixed in.

        Before the device has begun, nobody knows when they play. If that lasts until the chime is
        due, it begins all the same: a late chime is better than none.
        """
        start, (sound, gain) = 0, self._wave
        if not self._position:
            if segment.began_at is not None:
                start = max(0, round((self.at - segment.began_at) * self.rate) - segment.written)
            elif now < self.at:
                return samples
        count = min(len(samples) - start, len(sound) - self._position)
        if count <= 0:
            return samples
        here = slice(self._position, self._position + count)
        mixed = samples.copy()
        mixed[start : start + count] *= gain[here]
        mixed[start : start + count] += sound[here]
        self._position += count
        return mixed

    def end(self) -> None:
        import numpy as np

        position, (sound, gain) = self._position, self._wave
        end = position + round(FADE_SECONDS * self.rate) if position else 0
        sound, gain = sound[:end].copy(), gain[:end].copy()
        down = np.linspace(1.0, 0.0, len(sound) - position, dtype=np.float32)
        sound[position:] *= down
        gain[position:] = 1.0 - (1.0 - VOICE_GAIN) * down
        self._wave = sound, gain


def cue(rate: int = 48_000) -> SpeechChunk:
    """Return the two notes that announce the open microphone."""
    return SpeechChunk(bells(rate, NOTES[:2], CUE_SECONDS), rate, "")


def bells(
    rate: float, notes: Sequence[tuple[float, float]] = NOTES, seconds: float = SECONDS
) -> Samples:
    """Return notes of a small bell: each has a tone, its octave and an inharmonic partial."""
    import numpy as np

    sound = np.zeros(round(seconds * rate), np.float32)
    for onset, hertz in notes:
        first = round(onset * rate)
        t = np.arange(len(sound) - first, dtype=np.float32) / rate
        for partial, level, decay in ((1.0, 1.0, 0.30), (2.0, 0.35, 0.15), (2.76, 0.2, 0.08)):
            tone = np.sin(2 * np.pi * hertz * partial * t) * np.exp(-t / decay)
            sound[first:] += (level * tone * np.minimum(1.0, t / 0.002)).astype(np.float32)
    sound[-round(0.1 * rate) :] *= np.linspace(1.0, 0.0, round(0.1 * rate), dtype=np.float32)
    return sound * (PEAK / float(np.abs(sound).max()))
