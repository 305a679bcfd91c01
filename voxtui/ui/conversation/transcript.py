from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content

from voxtui.ui.conversation.drawn_entries import DrawnEntries
from voxtui.ui.conversation.paragraph import Paragraph
from voxtui.ui.keys import SELECT

KEPT_ENTRIES = 2500
"""Maximum number of entries, about a thousand turns. Older ones are dropped."""

DROPPED_ENTRIES = 100
"""Number of entries dropped at a time. Dropping moves every line, so it must be rare."""

WRAPPED_ENTRIES = 200
"""Number of newest entries that stay wrapped. Older ones are wrapped when they are in view."""


class Transcript(DrawnEntries, can_focus=True):
    """The welcome, then the entries of the turns. Up, Down and the mouse select a turn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", SELECT, "Select", key_display="↑"),
        Binding("down", "screen.step(1)", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._dropped: list[Paragraph] = []

    def show_welcome(self, entries: Sequence[Paragraph]) -> None:
        """Show `entries` until the first other entry replaces them."""
        if self._begun:
            return
        for entry in entries:
            entry.wrap(self.look, self)
        self._replace(entries)

    def _replace(self, entries: Sequence[Paragraph]) -> None:
        """Show `entries` instead of all others, with their end in view."""
        self._following = True
        with self._rearranging():
            self.entries[:] = entries

    def add(self, entry: Paragraph) -> None:
        if not self._begun:
            self._begun = True
            self._replace(())
            self._dropped = []
        entry.wrap(self.look, self)
        with self._rearranging(len(self.entries)):
            self.entries.append(entry)
        for old in self.entries[-WRAPPED_ENTRIES - 1 : -WRAPPED_ENTRIES]:
            old.lines = []
        if len(self.entries) >= KEPT_ENTRIES + DROPPED_ENTRIES:
            with self._rearranging():
                del self.entries[:-KEPT_ENTRIES]

    def add_line(self, label: str, sentence: str) -> None:
        self.add(Paragraph("vox", label, Content(sentence)))

    def change(self, entry: Paragraph, content: Content) -> None:
        """Replace the content of `entry`. Draws nothing if the entry was dropped."""
        entry.content = content
        before = entry.lines
        entry.wrap(self.look, self)
        self._show_lines(entry, 0, before)

    def light(self, entry: Paragraph, lit: int) -> None:
        """Draw the first `lit` characters of an unstyled `entry` brighter than the rest."""
        if not entry.muted:
            entry.muted = True
            self.change(entry, entry.content)
        before = entry.lit_lines()
        entry.lit = lit
        if (index := self._column.index(entry)) is None:
            return
        for i, (old, new) in enumerate(zip(before, entry.lit_lines(), strict=True)):
            if old != new:
                self._redraw(self._column.top(index) + i)

    def show_figure(self, entry: Paragraph, figure: str) -> None:
        """Show a number at the end of `entry` if there is space; empty shows none."""
        entry.figure = figure
        if (index := self._column.index(entry)) is not None:
            self._redraw(self._column.end(index) - 1)

    def select(self, turn: int) -> None:
        """Mark the entries of `turn` and bring them into view; 0 marks none and shows the end."""
        if turn == self._selected_turn:
            return
        self._selected_turn = turn
        self.drawn.clear()
        self.refresh()
        own = [index for index, entry in enumerate(self.entries) if entry.turn == turn]
        if not turn:
            self.to_end()
        elif own:
            top, end = self._column.top(own[0]), self._column.end(own[-1])
            in_view = self.lines_in_view()
            if top < in_view.start or end > in_view.stop:
                self._scroll(top)

    async def on_click(self, event: events.Click) -> None:
        entry = self._entry(self._number(event.y - self.styles.padding.top))
        if entry is not None and entry.turn and not self.text_selection:
            await self.run_action(f"screen.pick({entry.turn})")

    def append(self, entry: Paragraph, text: str) -> None:
        first, before = entry.append(text, self.look, self)
        self._show_lines(entry, first, before)

    def place(self, entry: Paragraph) -> int:
        """Return the index of `entry`, or the end if it was dropped."""
        index = self._column.index(entry)
        return len(self.entries) if index is None else index

    def insert(self, place: int, entries: Sequence[Paragraph]) -> None:
        for entry in entries:
            entry.wrap(self.look, self)
        with self._rearranging(min(place, len(self.entries))):
            self.entries[place:place] = entries

    def drop(self, entries: Sequence[Paragraph]) -> None:
        gone = {id(entry) for entry in entries}
        with self._rearranging():
            self.entries[:] = [entry for entry in self.entries if id(entry) not in gone]

    def clear(self) -> bool:
        """Drop all entries. A welcome may be shown again. Return True if `restore` undoes that."""
        begun, self._begun = self._begun, False
        if begun:
            self._dropped = [*self.entries]
        self._replace(())
        return begun

    def restore(self) -> None:
        if self._dropped:
            self._begun = True
            self._replace(())
            self.insert(0, self._dropped)
            self._dropped = []
