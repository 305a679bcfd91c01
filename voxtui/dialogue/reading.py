"""Estimate the rest of the time in which a model reads a long prompt."""

from __future__ import annotations

import time

from voxtui.dialogue.events import Reading

LEAST_TOKENS = 80
"""A prompt with fewer tokens left is not reported: it is read within some seconds."""


class ReadingProgress:
    """Turns counts of tokens into events. Its method is called on one thread at a time."""

    def __init__(self) -> None:
        self._began: tuple[float, int] | None = None
        """when (monotonic seconds) the prompt in progress began, and the tokens known then"""

    def take(self, done: int, total: int) -> Reading | None:
        """Take note that `done` of `total` tokens were evaluated; None: there is nothing to say."""
        now = time.monotonic()
        if self._began is not None and done < self._began[1]:
            self._began = None  # another prompt
        if self._began is None:
            if total - done < LEAST_TOKENS:
                return None
            self._began = now, done
        began, known = self._began
        if done >= total:
            self._began = None
        new = done - known
        left = (total - done) * (now - began) / new if new else None
        return Reading(new, total - known, left)
