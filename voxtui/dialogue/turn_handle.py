"""The part of a turn that several threads share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from voxtui.dialogue.timestamps import Milestone, Timestamps


@dataclass(slots=True)
class TurnHandle:
    """The part of a turn that several threads share: its number, its cancel flag and its marks."""

    number: int
    cancelled: threading.Event = field(default_factory=threading.Event)
    timestamps: Timestamps = field(default_factory=Timestamps)
    over: bool = False
    """the turn has finished; only its idle transcript may still run"""
    kept: bool = False
    """the utterance enters the history without an answer"""
    asked: bool = False
    """an answer to it was asked for"""

    decided: threading.Event = field(default_factory=threading.Event)
    """set once a key has confirmed or refused the call of a tool"""
    confirmed: bool = False
    """the key confirmed it"""

    detected: bool = False
    """Its speech began by itself, hands-free."""

    @property
    def is_detecting(self) -> bool:
        """True while its speech, which was detected, has not ended."""
        return self.detected and not (self.kept or self.over or self.cancelled.is_set())

    def cancel(self) -> None:
        """Set the cancel flag, and write CANCELLED unless the turn is over. Any thread.

        Ignored for an utterance that is only kept: the next turn does not take it back.
        """
        if not self.cancelled.is_set() and (self.asked or not self.kept):
            if not self.over:
                self.timestamps.record(Milestone.CANCELLED)
            self.cancelled.set()
