"""`input_audio_buffer`: what a client has said and has not committed yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxtui.dialogue.commands import Cancel, Release, Talk
from voxtui.dialogue.data import FRAME_SECONDS, Frame
from voxtui.serve.realtime.wire_audio import Frames

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples
    from voxtui.session.user_session import UserSession

MUTED = 1e-3
"""Peak of a microphone that is off, with the noise of the codec. The buffer begins above it."""

LEAD_FRAMES = 8
"""A quarter of a second, kept from before the buffer begins."""


class InputBuffer:
    """Gives sound to the engine while more of it arrives. Used by the event loop's thread.

    `rate`: Hz of the sound. `live`: it comes from a microphone that never stops. Then muted sound
    is dropped, and a too long utterance keeps its newest part.
    """

    def __init__(self, controls: UserSession, longest: float, rate: int, live: bool) -> None:
        self._controls = controls
        self._longest = longest
        self._rate = rate
        self._live = live
        self._line = Frames(rate)
        self._arrived = 0
        """samples in all"""
        self._begun = not live
        self._frames: list[Frame] = []
        self._pushed = 0
        """of the frames"""
        self._recording: int | None = None
        """the turn that the engine records them for"""
        self._turns: set[int] = set()
        """begun here, not by the engine"""

    @property
    def seconds(self) -> float:
        """Return how much has not been committed."""
        return len(self._frames) * FRAME_SECONDS

    @property
    def arrived_ms(self) -> int:
        """Return how much has arrived in this session."""
        return self._arrived * 1000 // self._rate

    def feed(self, samples: Samples) -> list[Frame]:
        """Return the frames that `samples` complete."""
        self._arrived += len(samples)
        return list(self._line.feed(samples))

    def keep(self, frames: list[Frame]) -> None:
        self._frames += frames
        if not self._begun:
            self._begun = any(np.abs(frame.samples).max() > MUTED for frame in frames)
            if not self._begun:
                self._frames = self._frames[-LEAD_FRAMES:]
        if self._live and self.seconds > self._longest - 1:  # before the engine ends it
            self.forget_recording()
            self._frames = self._frames[len(self._frames) // 2 :]

    def record(self) -> None:
        """Let the engine have what it has not got yet."""
        if not self._frames or not self._begun:
            return
        if self._recording is None:
            self._recording = self._talk(self._frames)
            self._pushed = 0
        self.push(self._frames[self._pushed :])
        self._pushed = len(self._frames)

    def push(self, frames: list[Frame]) -> None:
        for frame in frames:
            self._controls.push(frame)

    def began(self, turn: int) -> bool:
        """Return True if this buffer began the turn, and not the engine."""
        return turn in self._turns

    def _talk(self, frames: list[Frame]) -> int:
        turn = self._controls.post(Talk(frames[0].captured_at - FRAME_SECONDS))
        self._turns.add(turn)
        return turn

    def forget_recording(self) -> None:
        """Let the engine drop it. The buffer stays."""
        if self._recording is not None:
            self._controls.post(Cancel(self._recording))
        self._recording = None

    def clear(self) -> None:
        self.forget_recording()
        self._empty()
        self._line.reset()

    def commit(self, at: float) -> tuple[int, float]:
        """End the utterance at `at`. Returns its turn and its seconds."""
        self._begun = True  # also of silence
        self._frames += self._line.rest(at)
        self.record()
        turn, seconds = self._recording, self.seconds
        assert turn is not None
        self._controls.post(Release(at, turn, answers=False))
        self._empty()
        return turn, seconds

    def take(self, at: float) -> list[Frame]:
        """Take out what was said until `at`, for `commit_taken`."""
        frames = self._frames + self._line.rest(at)
        self.forget_recording()
        self._empty()
        return frames

    def commit_taken(self, frames: list[Frame], at: float) -> tuple[int, float]:
        """Commit what was taken out. Returns its turn and its seconds."""
        turn = self._talk(frames)
        self.push(frames)
        self._controls.post(Release(at, turn, answers=False))
        return turn, len(frames) * FRAME_SECONDS

    def _empty(self) -> None:
        self._frames, self._recording, self._begun = [], None, not self._live
