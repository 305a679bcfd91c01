"""The part of a turn that several threads share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from voxtui.dialogue.timestamps import Milestone, Timestamps


@dataclass(slots=True)
class TurnHandle:
    number: int
    cancelled: threading.Event = field(default_factory=threading.Event)
    timestamps: Timestamps = field(default_factory=Timestamps)
    over: bool = False
    """whether the turn has finished; its idle transcript may still run"""
    committed: bool = False
    """whether the utterance enters the history without an answer"""
    answer_requested: bool = False
    """whether an answer to the committed utterance was requested"""
    decided: threading.Event = field(default_factory=threading.Event)
    """the event that is set once a key confirmed or refused the call of a tool"""
    confirmed: bool = False
    detected: bool = False
    """whether its speech was detected, hands-free"""

    def cancel(self) -> None:
        """Set the cancel flag, and write CANCELLED unless the turn is over. Any thread.

        Ignored for a committed utterance, which stays in the history.
        """
        if not self.cancelled.is_set() and (self.answer_requested or not self.committed):
            if not self.over:
                self.timestamps.record(Milestone.CANCELLED)
            self.cancelled.set()
