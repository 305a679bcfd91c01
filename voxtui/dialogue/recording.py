"""The frames of one utterance: the engine appends them, the brain reads them."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

from voxtui.dialogue.data import FRAME_SECONDS, Frame, Origin, Utterance

LEAD_FRAMES = 6
"""Frames (192 ms) before the first speech frame: the detector finds a soft onset late."""

TRAIL_SAMPLES = 3200
"""Samples (200 ms) of digital zeros after the last speech frame. Recognisers drop or garble a last
word at the very end of their input. Unlike recorded silence, zeros need no waiting."""

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Extent:
    """The length of a recording, and the range of its speech, in frames."""

    frames: int = 0
    speech_frames: int = 0
    first_speech: int = -1
    """the index of the first speech frame; -1 without speech"""
    last_speech: int = -1
    """the index of the last speech frame; -1 without speech"""

    def with_frame(self, speech: bool) -> Extent:
        if not speech:
            return Extent(self.frames + 1, self.speech_frames, self.first_speech, self.last_speech)
        first = self.frames if self.first_speech < 0 else self.first_speech
        return Extent(self.frames + 1, self.speech_frames + 1, first, self.frames)

    @property
    def seconds(self) -> float:
        return self.frames * FRAME_SECONDS

    @property
    def speech_seconds(self) -> float:
        return self.speech_frames * FRAME_SECONDS

    @property
    def quiet_frames(self) -> int:
        """The number of frames at the end without speech."""
        return self.frames - 1 - self.last_speech


class Recording:
    """The frames of one utterance and the detector's verdict on each.

    One thread calls `append` and `cut`. Any thread may read `extent` and pass it to `utterance`:
    nothing is ever removed or changed, so no lock is needed.
    """

    def __init__(self) -> None:
        self._number = next(_numbers)
        self._frames: list[Frame] = []
        self._verdicts: list[bool] = []
        self.extent = Extent()
        """the present length and speech of the recording, an immutable value"""

    def append(self, frame: Frame, speech: bool) -> None:
        self._frames.append(frame)
        self._verdicts.append(speech)
        self.extent = self.extent.with_frame(speech)  # last: readers rely on it

    @property
    def frames(self) -> list[Frame]:
        return self._frames[: self.extent.frames]

    @property
    def verdicts(self) -> list[bool]:
        return self._verdicts[: self.extent.frames]

    def cut(self, end: int) -> list[Frame]:
        self.extent = functools.reduce(Extent.with_frame, self._verdicts[:end], Extent())
        return self._frames[end:]

    def origin(self, extent: Extent) -> Origin | None:
        """Return the utterance's range of frames; None without speech."""
        if extent.first_speech < 0:
            return None
        begin = max(0, extent.first_speech - LEAD_FRAMES)
        return Origin(self._number, begin, extent.last_speech + 1)

    def utterance(self, extent: Extent | None = None) -> Utterance | None:
        """Return the padded sound of all speech up to `extent`; None without speech."""
        import numpy as np

        origin = self.origin(extent or self.extent)
        if origin is None:
            return None
        begin, end = origin.start, origin.end
        sound = [frame.samples for frame in self._frames[begin:end]]
        samples = np.concatenate([*sound, np.zeros(TRAIL_SAMPLES, np.float32)])
        samples.flags.writeable = False
        return Utterance(
            samples=samples,
            speech=tuple(_stretches(self._verdicts[begin:end])),
            ended_at=self._frames[end - 1].captured_at,
            origin=origin,
        )


def _stretches(speech: list[bool]) -> list[tuple[float, float]]:
    runs: list[tuple[float, float]] = []
    end = 0
    for voiced, verdicts in itertools.groupby(speech):
        start, end = end, end + len(list(verdicts))
        if voiced:
            runs.append((start * FRAME_SECONDS, end * FRAME_SECONDS))
    return runs
