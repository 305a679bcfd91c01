"""Decide how long the voice may wait for more text without a gap in the speech."""

from __future__ import annotations

MARGIN_SECONDS = 0.2
"""Time between the moment at which a clause should be ready and the end of the speech before it.
The chat model uses the same cores, so a clause may take longer than the one before."""

BURST_SECONDS = 0.02
"""Minimum wait for more text, because the tokens of one word come almost together."""


class SpeechPacing:
    """Predicts when the speech ends, and how long a clause takes. `now` is in monotonic seconds."""

    def __init__(self) -> None:
        self._ends: float | None = None
        self._characters = 0
        self._making_s = 0.0

    def made(self, characters: int, seconds: float) -> None:
        """Take note that the first speech of a clause of `characters` took `seconds`."""
        self._characters += characters
        self._making_s += seconds

    def queued(self, seconds: float, now: float) -> None:
        self._ends = max(now, self._ends or now) + seconds

    def patience(self, characters: int, now: float) -> float | None:
        """Return the longest wait in seconds while `characters` wait; None if nothing is spoken."""
        if self._ends is None:
            return None
        making_s = characters * self._making_s / max(1, self._characters)
        return max(BURST_SECONDS, self._ends - now - making_s - MARGIN_SECONDS)
