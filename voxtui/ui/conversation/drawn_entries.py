"""Draw the entries of the conversation in one widget, so that a long one stays fast."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from math import ceil
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.timer import Timer
from textual.widget import Widget

from voxtui.ui.conversation.line_index import LineIndex
from voxtui.ui.conversation.paragraph import KINDS, NO_LOOK, Line, Look, Paragraph
from voxtui.ui.driver.painting import paint_now

DRAWN_SCREENS = 2
"""Number of screens of drawn lines in the cache. A drawn line is about fifty objects."""

WRAP_SECONDS, WRAP_PAUSE_SECONDS = 0.006, 0.01
"""Time slice and pause for re-wrapping a long conversation, short enough not to be noticed."""

FIGURE_GAP = 2

SELECTED = "┃"


class DrawnEntries(ScrollView):
    """Entries from top to bottom, the newest in view.

    The cost of a change depends on what is in view, not on the length of the conversation.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"transcript--{kind}" for kind in KINDS),
        "transcript--muted",
        "transcript--selected",
    }

    def __init__(self) -> None:
        super().__init__()
        self._column = LineIndex()
        self._begun = False
        """whether the conversation has begun; until then `entries` are the welcome"""
        self.look = NO_LOOK
        """the look for which entries in view are wrapped; the others follow in time slices"""
        self._wrapping: Timer | None = None
        self.drawn: dict[int, Strip] = {}
        self._following = True
        """whether the end is in view and stays there"""
        self._thumb = (0, 0)
        """start and length of the scroll bar's thumb as painted, in eighths of a row"""
        self._selected_turn = 0

    @property
    def entries(self) -> list[Paragraph]:
        return self._column.entries

    @property
    def text(self) -> str:
        lines = (
            line for entry in self.entries for line in entry.lines or entry.wrapped(self.look, self)
        )
        return "\n".join("".join(segment.text for segment in line) for line in lines)

    def paint(self) -> None:
        paint_now(self)

    def to_end(self) -> None:
        self._following = True
        self._scroll(self.max_scroll_y)

    def action_scroll_end(self) -> None:
        """Jump to the end. An animated scroll would never reach the end of a growing answer."""
        self.to_end()

    def on_resize(self, event: events.Resize) -> None:
        self.drawn.clear()
        self._wrap_all()
        if self._following:
            self.to_end()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        self._move_thumb()
        if round(old_value) != round(new_value):
            self.refresh(self.size.region)
        self._following = new_value >= self.max_scroll_y

    def watch_show_vertical_scrollbar(self, shown: bool) -> None:
        """Set the position of a scroll bar that has just appeared: Textual leaves it at the top."""
        if shown:
            self._move_thumb()

    def _move_thumb(self) -> None:
        """Move the thumb of the scroll bar. Paint it only if it looks different.

        In a long conversation one more line is not visible there, and painting the bar takes longer
        than painting the line.
        """
        if not self.show_vertical_scrollbar:
            return
        bar, height = self.vertical_scrollbar, self.virtual_size.height
        rows = self.scrollable_content_region.height
        cells = max(1.0, rows / max(1, height) * bar.size.height)
        free = (bar.size.height - cells) / max(1, height - rows)
        thumb = (int(self.scroll_y * free * 8), ceil(cells * 8))  # as Textual draws it
        bar.set_reactive(ScrollBar.position, self.scroll_y)  # pyright: ignore[reportArgumentType]
        bar.set_reactive(ScrollBar.window_virtual_size, height)  # pyright: ignore[reportArgumentType]
        if thumb != self._thumb:
            self._thumb = thumb
            bar.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_mounted:
            # Later, because Textual computes the component classes after this call.
            self.call_next(self._wrap_all)

    def selection_updated(self, selection: Selection | None) -> None:
        self.drawn.clear()
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract(self.text), "\n"

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines in view, from a cache: Textual would style all again after a scroll."""
        _, ground = self.background_colors
        width, above = self.outer_size.width, self.styles.padding.top
        in_view = self.lines_in_view()
        strips = [self._drawn_line(y - above, width, in_view) for y in crop.line_range]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, ground) for strip in strips]
        if crop.column_span != (0, width):
            strips = [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        """Return line `y` in view with its offsets, which Textual needs for selection by mouse."""
        number = self._number(y)
        return self._strip(number).apply_offsets(0, number)

    def _strip(self, number: int) -> Strip:
        if (index := self._column.find(number)) is None:
            return Strip([])
        entry = self.entries[index]
        line = number - self._column.top(index)
        if not entry.lines:
            entry.lines = entry.wrapped(self.look, self)
        if line >= len(entry.lines):  # not wrapped for this width yet
            return Strip([])
        if line == len(entry.lines) - 1:
            entry.painted = True
        drawn = entry.lines[line]
        if entry.lit and (lit := entry.lit_lines()[line]):
            drawn = lighted(drawn, lit, self.look)
        return self._selected(Strip(drawn), number)

    def _drawn_line(self, y: int, width: int, in_view: range) -> Strip:
        ground = self.look.ground.rich_style
        if not 0 <= y < len(in_view):
            return Strip.blank(width, ground)
        number = in_view[y]
        if number not in self.drawn:
            if len(self.drawn) >= DRAWN_SCREENS * len(in_view):
                self.drawn = {n: self.drawn[n] for n in in_view if n in self.drawn}
            line = self._strip(number)
            before = self.styles.padding.left
            entry = self._entry(number)
            marked = entry is not None and self._is_marked(entry, number)
            margin = [Segment(" " * before, ground)]
            if marked:
                mark = Segment(SELECTED, self.look.label("you").rich_style)
                margin = [mark, Segment(" " * (before - 1), ground)]
            figure = self._figure(number, entry, line.cell_length)
            after = width - before - line.cell_length - sum(f.cell_length for f in figure)
            segments = [*margin, *line, *figure, Segment(" " * after, ground)]
            if marked:
                band = self.get_component_rich_style("transcript--selected", partial=True)
                segments = Segment.apply_style(segments, post_style=band)
            self.drawn[number] = Strip(segments, width)
        return self.drawn[number]

    def _is_marked(self, entry: Paragraph, number: int) -> bool:
        if not entry.turn or entry.turn != self._selected_turn:
            return False
        return not entry.spaced or self._entry(number - 1) is entry  # not the empty line above

    def _entry(self, number: int) -> Paragraph | None:
        index = self._column.find(number)
        return None if index is None else self.entries[index]

    def _figure(self, number: int, entry: Paragraph | None, used: int) -> list[Segment]:
        """Return the figure of line `number`, aligned right after `used` cells of text."""
        if entry is None or not entry.figure or not entry.lines:
            return []
        room = self.look.width - 1 - used - cell_len(entry.figure)
        if self._entry(number + 1) is entry or room < FIGURE_GAP:  # not its last line
            return []
        gap = Segment(" " * room, self.look.ground.rich_style)
        return [gap, Segment(entry.figure, self.look.muted.rich_style)]

    def _number(self, y: int) -> int:
        """Return the line number at row `y`; negative above the welcome."""
        return y + self.scroll_offset.y - self._space_above()

    def lines_in_view(self) -> range:
        first = self._number(0)
        return range(first, first + self.scrollable_content_region.height)

    def _selected(self, strip: Strip, number: int) -> Strip:
        selection = self.text_selection
        span = selection.get_span(number) if selection else None
        if span is None:
            return strip
        start, end = span
        end = strip.cell_length if end == -1 else end
        style = self.screen.get_component_rich_style("screen--selection")
        inside = strip.crop(start, end).apply_style(style)
        return Strip.join([strip.crop(0, start), inside, strip.crop(end)])

    def _space_above(self) -> int:
        """Return the number of empty rows above: a short conversation stands next to the talk bar.

        The welcome stands in the upper part.
        """
        room = max(0, self.scrollable_content_region.height - self._column.height)
        return room if self._begun else room // 3

    def _wrap_all(self) -> None:
        """Wrap all entries for the present look: those in view now, the rest in time slices."""
        look = self._present_look()
        if look == self.look:
            return
        self.look = look
        self.drawn.clear()
        while stale := [entry for entry in self.in_view() if entry.look is not look]:
            with self._rearranging():
                for entry in stale:
                    entry.wrap(self.look, self)
        self._wrap_more()

    def _wrap_more(self) -> None:
        """Wrap stale entries for one time slice, the newest first."""
        until = time.monotonic() + WRAP_SECONDS
        stale = (entry for entry in reversed(self.entries) if entry.look is not self.look)
        entry = next(stale, None)
        if entry is None:
            return
        with self._rearranging():
            while entry is not None and time.monotonic() < until:
                at_hand = bool(entry.lines)
                entry.wrap(self.look, self)
                if not at_hand:
                    entry.lines = []
                entry = next(stale, None)
        if self._wrapping is not None:
            self._wrapping.stop()
        self._wrapping = self.set_timer(WRAP_PAUSE_SECONDS, self._wrap_more)

    def in_view(self) -> Sequence[Paragraph]:
        top = 0 if self._space_above() else self.scroll_offset.y
        return self._column.between(top, top + self.scrollable_content_region.height)

    def _show_lines(self, entry: Paragraph, first: int, before: Sequence[Line]) -> None:
        """Draw the lines of `entry` from `first` on that differ from `before`."""
        index = self._column.index(entry)
        if index is None:
            return
        lines = entry.lines[first:]
        if len(before) != len(lines):
            with self._rearranging(index):
                pass
            return
        top = self._column.top(index) + first
        for i, (old, new) in enumerate(zip(before, lines, strict=True)):
            if old != new:
                self._redraw(top + i)

    def _redraw(self, number: int) -> None:
        self.drawn.pop(number, None)
        self.refresh_lines(number + self._space_above())

    def _present_look(self) -> Look:
        ground = self.visual_style

        def component(name: str) -> Style:
            return ground + self.get_visual_style(f"transcript--{name}", partial=True)

        return Look(
            self.scrollable_content_region.width,
            ground,
            component("muted"),
            tuple(component(kind) for kind in KINDS),
        )

    @contextmanager
    def _rearranging(self, since: int = 0) -> Generator[None, None, None]:
        """Lay out the entries from index `since` on after the context has changed them.

        Keeps the same line in view: the end, or the line to which the user scrolled.
        """
        top = self.scroll_offset.y
        at = None if self._following else self._column.find(top)
        anchor = None if at is None else self.entries[at]
        line = 0 if at is None else top - self._column.top(at)
        yield
        start = self._column.arrange(since)
        for number in [number for number in self.drawn if number >= start]:
            del self.drawn[number]
        self._grow(Size(self.look.width, self._column.height))
        if self._following:
            self.to_end()
        elif anchor and (at := self._column.index(anchor)) is not None and since <= at:
            self._scroll(self._column.top(at) + min(line, max(0, anchor.height - 1)))
        self._move_thumb()
        self.refresh()

    def _scroll(self, y: int) -> None:
        self.scroll_to(y=y, animate=False, force=True, immediate=True)

    def _grow(self, size: Size) -> None:
        """Set the height. Lay out the screen only if a scroll bar appears or disappears."""
        if self.show_vertical_scrollbar != (size.height > self.scrollable_content_region.height):
            self.virtual_size = size
        else:
            self.set_reactive(Widget.virtual_size, size)  # pyright: ignore[reportArgumentType]


def lighted(line: Line, lit: int, look: Look) -> Line:
    """Return `line` with the first `lit` characters after its label not muted."""
    label, *rest = line
    text = "".join(segment.text for segment in rest)
    lit_part = Segment(text[:lit], look.ground.rich_style)
    return [label, lit_part, Segment(text[lit:], look.muted.rich_style)]
