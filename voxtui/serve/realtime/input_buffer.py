"""`input_audio_buffer`: the client's sound that is not committed yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxtui.dialogue.data import FRAME_SECONDS, Frame
from voxtui.dialogue.engine_commands import Cancel, Release, Talk
from voxtui.serve.realtime.protocol import Item

if TYPE_CHECKING:
    from voxtui.dialogue.engine import Engine
    from voxtui.serve.realtime.wire_audio import Frames

MUTED = 1e-3
"""Peak of a muted microphone, with noise of the codec. Only louder sound begins the buffer."""

LEAD_FRAMES = 8
"""Frames (a quarter of a second) from before the buffer begins."""


class InputBuffer:
    """Passes sound to the engine while it arrives. Used by the event loop's thread.

    `line` makes its frames. `live` sound comes from a microphone that never stops: muted sound is
    then dropped, and a too long utterance is reduced to its newest part.
    """

    def __init__(self, engine: Engine, line: Frames, longest: float, live: bool) -> None:
        self._engine = engine
        self._longest = longest
        self._live = live
        self._line = line
        self._begun = not live
        self._frames: list[Frame] = []
        self._pushed = 0
        self._recording: int | None = None
        self._turns: set[int] = set()
        """the turns that this buffer began, and not the engine"""

    @property
    def seconds(self) -> float:
        """Return the seconds that are not committed."""
        return len(self._frames) * FRAME_SECONDS

    def add(self, frames: list[Frame]) -> None:
        self._frames += frames
        if not self._begun:
            self._begun = any(np.abs(frame.samples).max() > MUTED for frame in frames)
            if not self._begun:
                self._frames = self._frames[-LEAD_FRAMES:]
        if self._live and self.seconds > self._longest - 1:  # before the engine ends it
            self.forget_recording()
            self._frames = self._frames[len(self._frames) // 2 :]

    def record(self) -> None:
        """Push the frames that the engine does not have yet."""
        if not self._frames or not self._begun:
            return
        if self._recording is None:
            self._recording = self._talk(self._frames)
            self._pushed = 0
        self.push(self._frames[self._pushed :])
        self._pushed = len(self._frames)

    def push(self, frames: list[Frame]) -> None:
        for frame in frames:
            self._engine.push(frame)

    def began(self, turn: int) -> bool:
        """Return True if this buffer began the turn, and not the engine."""
        return turn in self._turns

    def _talk(self, frames: list[Frame]) -> int:
        turn = self._engine.post(Talk(frames[0].captured_at - FRAME_SECONDS))
        self._turns.add(turn)
        return turn

    def forget_recording(self) -> None:
        """Have the engine drop the recording. The buffer stays."""
        if self._recording is not None:
            self._engine.post(Cancel(self._recording))
        self._recording = None

    def clear(self) -> None:
        self.forget_recording()
        self._empty()
        self._line.reset()

    def commit(self) -> Item:
        """End the utterance. Return its item."""
        self._begun = True  # also of silence
        self._frames += self._line.flush()
        self.record()
        item = self._release(self._recording, self._frames)
        self._empty()
        return item

    def take(self) -> list[Frame]:
        """Remove and return the frames, for `commit_taken`."""
        frames = self._frames + self._line.flush()
        self.forget_recording()
        self._empty()
        return frames

    def commit_taken(self, frames: list[Frame]) -> Item:
        """Commit frames of `take`. Return their item."""
        turn = self._talk(frames)
        self.push(frames)
        return self._release(turn, frames)

    def _release(self, turn: int | None, frames: list[Frame]) -> Item:
        self._engine.post(Release(self._line.now, turn, answers=False))
        return Item("user", "audio", turn=turn, seconds=len(frames) * FRAME_SECONDS)

    def _empty(self) -> None:
        self._frames, self._recording, self._begun = [], None, not self._live
