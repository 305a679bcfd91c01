"""Fill the gaps of lost packets in a voice, so that it stays continuous and in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxtui.serve.realtime.output_buffer import TRACK_RATE

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

LONGEST_GAP = TRACK_RATE
"""Maximum length of a gap in samples. After a longer one the sender has paused."""

FADE = round(TRACK_RATE * 0.06)
"""Samples over which the repetition fades, 60 ms: few sounds of speech last longer."""

STEP = 4
"""Step of the search for the period, in samples."""

SHORTEST, LONGEST = round(TRACK_RATE * 0.0025), round(TRACK_RATE * 0.015)
"""Bounds of the period in samples: voices of 66 to 400 Hz."""

COMPARED = round(TRACK_RATE * 0.02)


class Concealment:
    """Repeats the last period of the voice, fading, in the place of missing frames.

    The method is that of ITU-T G.711, Appendix I, without its overlap at the edges. All samples are
    mono, float32, at TRACK_RATE.
    """

    def __init__(self) -> None:
        self._end: int | None = None
        """the time after the last frame, in samples"""
        self._past = np.zeros(LONGEST + COMPARED, np.float32)

    def whole(self, samples: Samples, at: int) -> Samples:
        """Return the frame that begins at sample `at`, with a filling for the gap before it."""
        missing = 0 if self._end is None else at - self._end
        self._end = at + len(samples)
        if 0 < missing <= LONGEST_GAP:
            samples = np.concatenate([self._repeated(missing), samples])
        self._past = np.concatenate([self._past, samples])[-len(self._past) :]
        return samples

    def _repeated(self, count: int) -> Samples:
        fade = np.clip(1 - np.arange(count) / FADE, 0, 1)
        return (np.resize(self._past[-self._period() :], count) * fade).astype(np.float32)

    def _period(self) -> int:
        """Return the lag at which the latest sound is most similar to the sound before it."""
        past = self._past[::-STEP][::-1]
        size = COMPARED // STEP
        latest = past[-size:]
        earlier = np.lib.stride_tricks.sliding_window_view(past, size)[:-1]
        earlier = earlier[len(earlier) - LONGEST // STEP :][: (LONGEST - SHORTEST) // STEP + 1]
        likeness = earlier @ latest / (np.linalg.norm(earlier, axis=1) + 1e-6)
        return LONGEST - int(np.argmax(likeness)) * STEP
