"""An utterance while it is being spoken: when to answer what is there so far."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event as Flag

from voxtui.dialogue.data import FRAME_SECONDS
from voxtui.dialogue.protocols import Past, ReplyOptions
from voxtui.dialogue.recording import Extent, Recording

SCHEDULE_SECONDS = 0.5
"""Speech without a pause after which the utterance so far is answered anyway: this keeps the GPU
from lowering its clocks, and encodes each complete window early."""

SLOW_SECONDS = 0.25
"""A machine that takes longer for an utterance prefills only the history, because a speculative
reply would still be running at the release."""

SHARE = 0.25
"""Largest share of the key's hold time that speculative replies may take."""


@dataclass(slots=True)
class LiveUtterance:
    """An utterance while it is being spoken."""

    past: Past
    recording: Recording
    cancelled: Flag
    options: ReplyOptions
    speculated_frames: int = 0
    """frames that the latest speculative reply covers"""

    def is_time(self, extent: Extent, took: float, least_speech: float) -> bool:
        """Return True at a pause, and after speech without one, if the machine is fast enough.

        `took`: seconds of this machine for an utterance. `least_speech`: seconds of an utterance.
        """
        if extent.speech_seconds < least_speech or took > SLOW_SECONDS:
            return False
        new = extent.frames - self.speculated_frames
        if new * FRAME_SECONDS < took / SHARE:
            return False
        if not extent.quiet_frames:
            return new * FRAME_SECONDS >= SCHEDULE_SECONDS
        return new >= extent.quiet_frames  # once in a pause
