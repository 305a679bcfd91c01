"""Decide how long the voice may wait for more text, so that speech has no hole."""

from __future__ import annotations

MARGIN_SECONDS = 0.2
"""Seconds between the moment at which a clause should be ready and the end of the speech before it.
The chat model takes the cores while a clause is made, so making it may take longer than before."""

BURST_SECONDS = 0.02
"""The shortest wait for more text, because the tokens of one word come at once."""


class SpeechPacing:
    """Predicts when speech ends, and how long a clause takes. `now` is in monotonic seconds."""

    def __init__(self) -> None:
        self._ends: float | None = None
        self._characters = 0
        self._making_s = 0.0

    def made(self, characters: int, seconds: float) -> None:
        """Note that the first speech of a clause of `characters` took `seconds` to make."""
        self._characters += characters
        self._making_s += seconds

    def queued(self, seconds: float, now: float) -> None:
        self._ends = max(now, self._ends or now) + seconds

    def patience(self, characters: int, now: float) -> float | None:
        """Return the longest wait in seconds while `characters` wait; None: nothing is spoken."""
        if self._ends is None:
            return None
        making_s = characters * self._making_s / max(1, self._characters)
        return max(BURST_SECONDS, self._ends - now - making_s - MARGIN_SECONDS)
