"""The entries of the conversation, one below the other, and the lines that they take."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from voxtui.ui.conversation.paragraph import Paragraph


class LineIndex:
    """Entries from top to bottom. Finds an entry by its line, whatever the length of the column."""

    def __init__(self) -> None:
        self.entries: list[Paragraph] = []
        self.height = 0
        self._tops: list[int] = []

    def arrange(self, since: int) -> int:
        """Follow a change of the entries from index `since` on. Return the first line they took."""
        start = self.top(since)
        heights = [entry.height for entry in self.entries[since:]]
        tops = [start, *accumulate(heights, initial=start)]
        self._tops[since:], self.height = tops[1:-1], tops[-1]
        return start

    def top(self, index: int) -> int:
        """Return the first line of the entry at `index`; behind the last entry: the height."""
        return self._tops[index] if index < len(self._tops) else self.height

    def end(self, index: int) -> int:
        return self.top(index) + self.entries[index].height

    def index(self, entry: Paragraph) -> int | None:
        """Return the place of `entry`, or None if it was dropped. Searches from the end."""
        for index in range(len(self.entries) - 1, -1, -1):
            if self.entries[index] is entry:
                return index
        return None

    def find(self, line: int) -> int | None:
        """Return the index of the entry with this line; None above and below the column."""
        return bisect_right(self._tops, line) - 1 if 0 <= line < self.height else None

    def between(self, first: int, end: int) -> Sequence[Paragraph]:
        begin = max(0, bisect_right(self._tops, first) - 1)
        return self.entries[begin : bisect_right(self._tops, end)]
