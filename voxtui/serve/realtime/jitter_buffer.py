"""Put packets of sound into their order, and wait for a missing one no longer than is useful."""

from __future__ import annotations

from typing import Generic, TypeVar

LATER_PACKETS = 2
"""A packet counts as lost once so many later ones are there. A lost packet then delays the sound by
20 ms, and one that was only overtaken is still played."""

FAR = 100
"""A number so far from the expected one begins another stream."""

P = TypeVar("P")


class JitterBuffer(Generic[P]):
    """Packets by their numbers, which wrap after 16 bits."""

    def __init__(self) -> None:
        self._expected = 0
        self._waiting: dict[int, P] | None = None
        """packets by number; None: before the first one"""

    def add(self, number: int, packet: P) -> list[P]:
        """Take the packet that arrived. Returns those whose turn it is now, perhaps none."""
        if self._waiting is None:
            self._expected, self._waiting = number, {}
        ahead = self._ahead(number)
        ready: list[P] = []
        if not -FAR < ahead < FAR:
            ready += [self._waiting.pop(later) for later in sorted(self._waiting, key=self._ahead)]
            self._expected = number
        elif ahead < 0:
            return []  # too late, or a copy
        self._waiting[number] = packet
        if len(self._waiting) >= LATER_PACKETS:
            self._expected = min(self._waiting, key=self._ahead)
        while self._expected in self._waiting:
            ready.append(self._waiting.pop(self._expected))
            self._expected = (self._expected + 1) % 2**16
        return ready

    def _ahead(self, number: int) -> int:
        """Return how many packets `number` is after the expected one; negative: before it."""
        return (number - self._expected + 2**15) % 2**16 - 2**15
