"""Derive the beginning and end of talking from a terminal's reports of one key. Has no clock.

If the terminal reports key releases, a press begins and the release ends. Other terminals report
only presses, and a keyboard's repeats look the same: a tap begins and the next tap ends. Presses
too fast for a finger are repeats of a held key, and talking ends with the last of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from statistics import median
from typing import TypeAlias

CONFIRM_SECONDS = 0.15
"""Maximum time between two presses that are repeats of a held key."""

LONGEST_DELAY_SECONDS = 1.1
"""Maximum delay of the first repeat of a held key; a later press is a second tap."""

SETTLE_SECONDS = 0.35
"""Time after the end of a talk in which presses are its slow or late repeats."""

LEAST_WINDOW_SECONDS, MOST_WINDOW_SECONDS = 0.12, 0.5
"""Bounds of the time after which repeats have ended: three of their own gaps."""


class Mode(StrEnum):
    HOLD = "hold"
    TOGGLE = "toggle"
    MOUSE = "mouse"
    HANDS_FREE = "hands-free"


@dataclass(frozen=True, slots=True)
class Begin:
    at: float


@dataclass(frozen=True, slots=True)
class End:
    at: float
    """the estimated time of the physical release, which may be in the past"""


Act: TypeAlias = Begin | End


class KeyPhase(Enum):
    DOWN = auto()
    """talking, and the terminal will report the release"""
    PRESSED = auto()
    """talking: a tap, or a hold that does not repeat yet"""
    AGAIN = auto()
    """talking, and pressed again: the tap that ends it, or the first repeat"""
    HELD = auto()
    """talking, and the key repeats"""
    SPENT = auto()
    """not talking; the key may still be pressed"""


class TalkKey:
    """Takes presses, releases and deadlines with their times, and returns the actions."""

    def __init__(self) -> None:
        self.releases = False
        self._phase = KeyPhase.SPENT
        self._last = float("-inf")
        self._gaps = deque([0.04], maxlen=8)

    @property
    def deadline(self) -> float | None:
        """The time at which `settle` must be called if no press comes before."""
        match self._phase:
            case KeyPhase.AGAIN:
                return self._last + CONFIRM_SECONDS
            case KeyPhase.HELD:
                window = min(MOST_WINDOW_SECONDS, 3 * median(self._gaps))
                return self._last + max(LEAST_WINDOW_SECONDS, window)
            case _:
                return None

    def press(self, at: float, repeated: bool = False) -> list[Act]:
        """Take a press. `repeated`: the terminal reports it as a repeat."""
        if self.releases:
            return self._reported(at, repeated)
        acts = self.settle(at)
        gap, self._last = at - self._last, at
        return [*acts, *self._guessed(at, gap)]

    def release(self, at: float) -> list[Act]:
        self.releases = True
        return self._over(at)

    def settle(self, at: float) -> list[Act]:
        if self.deadline is None or at < self.deadline:
            return []
        return self._over(self._last)

    def lose_focus(self, at: float) -> list[Act]:
        """End the talk, because another window will receive the release."""
        return self._over(at) if self.releases else []

    def abandon(self) -> None:
        self._phase = KeyPhase.SPENT

    def _reported(self, at: float, repeated: bool) -> list[Act]:
        if repeated:
            return []
        if self._phase is KeyPhase.SPENT:
            self._phase = KeyPhase.DOWN
            return [Begin(at)]
        return self._over(at)  # down twice: its release was lost

    def _guessed(self, at: float, gap: float) -> list[Act]:
        match self._phase:
            case KeyPhase.SPENT if gap < SETTLE_SECONDS:
                return []
            case KeyPhase.PRESSED if gap > LONGEST_DELAY_SECONDS:
                return self._over(at)
            case KeyPhase.PRESSED if gap > CONFIRM_SECONDS:
                self._phase = KeyPhase.AGAIN
                return []
            case KeyPhase.PRESSED | KeyPhase.AGAIN | KeyPhase.HELD:
                self._phase = KeyPhase.HELD
                self._gaps.append(gap)
                return []
            case _:
                self._phase = KeyPhase.PRESSED
                return [Begin(at)]

    def _over(self, at: float) -> list[Act]:
        before, self._phase = self._phase, KeyPhase.SPENT
        return [] if before is KeyPhase.SPENT else [End(at)]
