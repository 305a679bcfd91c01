"""The positions of the conversation's entries, one below the other, in lines."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from voxtui.ui.conversation.paragraph import Paragraph


class LineIndex:
    """Finds entries by line, quickly even in a long conversation."""

    def __init__(self) -> None:
        self.entries: list[Paragraph] = []
        self.height = 0
        self._tops: list[int] = []

    def arrange(self, since: int) -> int:
        """Update the positions from index `since` on. Return the first line that may differ."""
        start = self.top(since)
        heights = [entry.height for entry in self.entries[since:]]
        tops = [start, *accumulate(heights, initial=start)]
        self._tops[since:], self.height = tops[1:-1], tops[-1]
        return start

    def top(self, index: int) -> int:
        """Return the first line of the entry at `index`; after the last entry, the height."""
        return self._tops[index] if index < len(self._tops) else self.height

    def end(self, index: int) -> int:
        return self.top(index) + self.entries[index].height

    def index(self, entry: Paragraph) -> int | None:
        """Return the index of `entry`, or None if it was dropped. Searches from the end."""
        for index in range(len(self.entries) - 1, -1, -1):
            if self.entries[index] is entry:
                return index
        return None

    def find(self, line: int) -> int | None:
        """Return the index of the entry with this line, or None outside all entries."""
        return bisect_right(self._tops, line) - 1 if 0 <= line < self.height else None

    def between(self, first: int, end: int) -> Sequence[Paragraph]:
        begin = max(0, bisect_right(self._tops, first) - 1)
        return self.entries[begin : bisect_right(self._tops, end)]
