"""Whether a turn is under way, from the key's press to the last sound of the answer."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator
from threading import Event as Flag
from typing import TypeVar

from voxtui.dialogue.timestamps import Milestone, Timestamps

LONGEST_SPEECH_SECONDS = 120.0
"""Time after which speech counts as over even if no last sound was noted."""

T = TypeVar("T")


class Turns:
    """Knows when a turn is under way, so that other work begins only between two. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """guards the beginning of a turn and of other work, so that neither ends the other's"""
        self._working = 0
        """replies and transcriptions under way"""
        self._held: Flag | None = None
        """set once the utterance that is being spoken is cancelled"""
        self._sounding: tuple[Timestamps, Flag] | None = None
        """of the last turn, which may still be heard"""

    @property
    def busy(self) -> bool:
        """Return True while a turn is under way."""
        held, sounding = self._held, self._sounding
        if self._working or (held is not None and not held.is_set()):
            return True
        if sounding is None:
            return False
        timestamps, cancelled = sounding
        began = timestamps.at(Milestone.FIRST_AUDIO)
        if began is None or cancelled.is_set() or timestamps.at(Milestone.LAST_SOUND) is not None:
            return False
        return time.monotonic() - began < LONGEST_SPEECH_SECONDS

    def key_pressed(self, cancelled: Flag) -> None:
        """Note that the user talks, until the reply begins or `cancelled` is set."""
        with self._lock:
            self._held = cancelled

    @contextlib.contextmanager
    def replying(self, timestamps: Timestamps, cancelled: Flag) -> Generator[None]:
        """Count the block as a turn, which then sounds until `timestamps` or `cancelled` end it."""
        with self.working():
            self._held, self._sounding = None, (timestamps, cancelled)
            yield

    @contextlib.contextmanager
    def working(self) -> Generator[None]:
        """Count the block as a turn."""
        with self._lock:
            self._working += 1
        try:
            yield
        finally:
            with self._lock:
                self._working -= 1

    def between(self, begin: Callable[[], T]) -> T | None:
        """Return `begin()`, during which no turn begins; None while one is under way."""
        with self._lock:
            return None if self.busy else begin()
