"""Reorder packets of sound, and wait for a missing one only as long as that is useful."""

from __future__ import annotations

from typing import Generic, TypeVar

LATER_PACKETS = 2
"""Number of later packets after which a packet counts as lost. A lost packet then delays the sound
by 20 ms, and an overtaken one is still played."""

FAR = 100
"""Distance from the expected number at which another stream begins."""

P = TypeVar("P")


class JitterBuffer(Generic[P]):
    """Packets by their 16-bit sequence numbers."""

    def __init__(self) -> None:
        self._expected = 0
        self._waiting: dict[int, P] | None = None

    def add(self, number: int, packet: P) -> list[P]:
        """Add the packet that arrived. Return the packets that are in order now."""
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
        """Return the distance of `number` from the expected one; negative if it is before it."""
        return (number - self._expected + 2**15) % 2**16 - 2**15
