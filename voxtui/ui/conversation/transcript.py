"""The conversation: one widget that draws its own lines, so that a long one stays fast."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.timer import Timer
from textual.visual import Visual
from textual.widget import Widget

KEPT_ENTRIES = 2500
"""Bounds memory: about a thousand turns. Older entries are dropped."""

DROPPED_ENTRIES = 100
"""Entries dropped at a time. Dropping moves every line, so it must be rare."""

WRAPPED_ENTRIES = 200
"""The newest entries keep their lines. Older ones are wrapped again when they come into view."""

DRAWN_SCREENS = 2
"""Screens of drawn lines that are cached. A drawn line is about fifty objects."""

WRAP_SECONDS, WRAP_PAUSE_SECONDS = 0.006, 0.01
"""Time slice and pause for wrapping a long conversation again, because a stall would show."""

LONGEST_LINE = 2000
"""Characters after which a line is broken even if it is not full.

Zero-width characters never fill a line. Wrapping such a line again for each token would take time
quadratic in its length.
"""

SELECTED = "▎"
"""Left of each line of the selected turn."""

FIGURE_GAP = 2
"""Cells between a text and the figure behind it."""

LABEL_CELLS = 5
TAB_CELLS = 8

KINDS = ("you", "vox", "head")

Line = list[Segment]
"""Segments, not a Strip, because a Strip caches everything derived from it."""


@dataclass(frozen=True, slots=True)
class Look:
    """Everything the lines of an entry depend on, except its content."""

    width: int
    ground: Style
    muted: Style
    attention: Style
    labels: tuple[Style, ...]
    """in the order of KINDS"""

    def label(self, kind: str) -> Style:
        return self.labels[KINDS.index(kind)]


NO_LOOK = Look(0, Style(), Style(), Style(), (Style(),) * len(KINDS))


@dataclass(frozen=True, slots=True)
class Figure:
    """A number at the end of an entry."""

    text: str
    bad: bool = False
    """asks for attention; the text says so, too"""


class Entry:
    """A paragraph with its label, and the lines it was wrapped to."""

    __slots__ = (
        "_added",
        "_content",
        "column",
        "figure",
        "height",
        "kind",
        "label",
        "lines",
        "lit",
        "look",
        "muted",
        "painted",
        "spaced",
        "tail",
        "turn",
    )

    def __init__(
        self, kind: str, label: str, content: Content, spaced: bool = True, muted: bool = False
    ) -> None:
        """`kind` is one of KINDS and sets the look of the label. `spaced`: an empty line above."""
        self.kind = kind
        self.turn = 0
        """the number of its turn; 0: of none"""
        self.figure: Figure | None = None
        """stands at the right of the last line"""
        self.label = label
        self.spaced = spaced
        self.muted = muted
        self.lit: int | None = None
        """of a muted entry: how many characters at its beginning are not muted"""
        self.lines: list[Line] = []
        """empty if the entry has to be wrapped again before it is drawn"""
        self.height = 0
        """the number of lines, also while `lines` is empty"""
        self.tail = ""
        """the text of the last line, tabs expanded"""
        self.column = 0
        """characters since the last line break in the content, tabs expanded"""
        self.look = NO_LOOK
        """the look that `lines` were wrapped for"""
        self.painted = False
        """True once the last line has been drawn since the last change"""
        self._content = content
        self._added: list[str] = []
        """text not yet in `_content`: joining it for each token would be quadratic"""

    @property
    def content(self) -> Content:
        if self._added:
            self._content = Content(self._content.plain + "".join(self._added))
            self._added.clear()
        return self._content

    @content.setter
    def content(self, content: Content) -> None:
        self._content = content
        self._added.clear()

    def add(self, text: str) -> str:
        """Add unstyled `text` at the end; return it with tabs expanded. Does not wrap."""
        self._added.append(text)
        stop = self.column % TAB_CELLS
        expanded = (" " * stop + text).expandtabs(TAB_CELLS)[stop:]
        _, line_break, last = expanded.rpartition("\n")
        self.column = len(last) + (0 if line_break else self.column)
        return expanded


class Transcript(ScrollView, can_focus=True):
    """Entries from top to bottom, the newest in view. A short conversation stands at the bottom.

    The cost of a change depends on what is in view, not on the length of the conversation.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"transcript--{kind}" for kind in KINDS),
        "transcript--muted",
        "transcript--attention",
    }

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", show=False),
        Binding("down", "step(1)", show=False),
    ]

    class Step(Message):
        """Up or Down was pressed: select the turn before (-1) or after (1) the selected one."""

        def __init__(self, by: int) -> None:
            super().__init__()
            self.by = by

    class Picked(Message):
        """The turn of this number was clicked."""

        def __init__(self, turn: int) -> None:
            super().__init__()
            self.turn = turn

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self._begun = False
        """something was said; until then, `entries` are the welcome"""
        self._tops: list[int] = []
        """the first line of each entry"""
        self._total = 0
        self.look = NO_LOOK
        """what entries in view are wrapped for; the others follow in time slices"""
        self._wrapping: Timer | None = None
        self.drawn: dict[int, Strip] = {}
        """cache of drawn lines, by line number"""
        self._following = True
        """True while the end is in view and is kept there"""
        self._selected_turn = 0
        """the number of the marked turn; 0: none"""
        self._dropped: list[Entry] = []
        """the entries that `restore` brings back"""

    def show_welcome(self, lines: Sequence[str]) -> None:
        """Show `lines` until the first entry is added, which removes them for good."""
        if self._begun:
            return
        self.entries = [
            Entry("head", "", Content(line), muted=i > 0) for i, line in enumerate(lines)
        ]
        for entry in self.entries:
            self._wrap(entry)
        with self._rearranging():
            pass

    def add(self, entry: Entry) -> None:
        if not self._begun:
            self._begun = True
            self.clear()
            self._dropped = []
        self._wrap(entry)
        with self._rearranging(len(self.entries)):
            self.entries.append(entry)
        for old in self.entries[-WRAPPED_ENTRIES - 1 : -WRAPPED_ENTRIES]:
            old.lines = []
        if len(self.entries) >= KEPT_ENTRIES + DROPPED_ENTRIES:
            with self._rearranging():
                del self.entries[:-KEPT_ENTRIES]

    def add_line(self, label: str, sentence: str) -> None:
        """Add a sentence that neither side said."""
        self.add(Entry("vox", label, Content(sentence)))

    def change(self, entry: Entry, content: Content) -> None:
        """Replace the content of `entry`. Draws nothing if the entry was dropped."""
        entry.content = content
        before = entry.lines
        self._wrap(entry)
        self._show_lines(entry, 0, before)

    def show_figure(self, entry: Entry, figure: Figure | None) -> None:
        """Show a number at the end of `entry`, in a line of its own if there is no room."""
        entry.figure = figure
        before = entry.lines
        self._wrap(entry)
        self._show_lines(entry, 0, before)
        if (index := self._index(entry)) is not None:
            last = self._tops[index] + entry.height - 1
            self.drawn.pop(last, None)
            self.refresh_lines(last + self._space_above())

    def select(self, turn: int) -> None:
        """Mark the entries of `turn` and bring them into view; 0: mark none and show the end."""
        if turn == self._selected_turn:
            return
        self._selected_turn = turn
        self.drawn.clear()
        self.refresh()
        own = [index for index, entry in enumerate(self.entries) if entry.turn == turn]
        if not turn:
            self.to_end()
        elif own:
            top, end = self._tops[own[0]], self._tops[own[-1]] + self.entries[own[-1]].height
            in_view = self.lines_in_view()
            if top < in_view.start or end > in_view.stop:
                self._scroll(top)

    def action_step(self, by: int) -> None:
        self.post_message(self.Step(by))

    def on_click(self, event: events.Click) -> None:
        """Pick the turn below the mouse, unless text was selected with it."""
        entry = self._entry(self._number(event.y - self.styles.padding.top))
        if entry is not None and entry.turn and not self.text_selection:
            self.post_message(self.Picked(entry.turn))

    def append(self, entry: Entry, text: str) -> None:
        """Add unstyled `text` at the end of `entry`. Draws nothing if the entry was dropped.

        Wraps the last line again, not the lines above: lines break at the first place that fits,
        so later text cannot move a break. An answer thus costs its length, not its square.
        """
        expanded = entry.add(text)
        before = entry.lines
        if not before or entry.look is not self.look or entry.lit is not None:
            self._wrap(entry)
            self._show_lines(entry, 0, before)
            return
        first = len(before)
        if len(entry.tail) < LONGEST_LINE:
            first -= 1
            expanded = entry.tail + expanded
        labelled = first == (1 if entry.spaced else 0)
        before = entry.lines[first:]
        entry.lines[first:], entry.tail = self._wrapped(entry, Content(expanded), labelled)
        entry.height = len(entry.lines)
        entry.painted = False
        self._show_lines(entry, first, before)

    def join(self, entries: Sequence[Entry], content: Content) -> None:
        """Merge `entries` into the first of them, with this content."""
        first, *rest = entries
        first.content = content
        self._wrap(first)
        self.drop(rest, since=self._index(first) or 0)

    def drop(self, entries: Sequence[Entry], since: int = 0) -> None:
        """Remove `entries`, none of which is before index `since`."""
        gone = {id(entry) for entry in entries}
        with self._rearranging(since):
            self.entries = [entry for entry in self.entries if id(entry) not in gone]

    def clear(self) -> None:
        """Drop the conversation. `restore` brings it back."""
        self._dropped = self.entries or self._dropped
        self.entries = []
        self._following = True
        with self._rearranging():
            pass

    def restore(self) -> None:
        """Bring back what `clear` dropped, above what was added since."""
        for entry in self._dropped:
            if entry.look is not self.look:
                self._wrap(entry)
        with self._rearranging():
            self.entries[:0] = self._dropped
        self._dropped = []

    def to_end(self) -> None:
        self._following = True
        self._scroll(self.max_scroll_y)

    def action_scroll_end(self) -> None:
        """Jump to the end. An animated scroll would never reach the end of a growing answer."""
        self.to_end()

    @property
    def text(self) -> str:
        lines = (line for entry in self.entries for line in entry.lines or self._lines(entry))
        return "\n".join("".join(segment.text for segment in line) for line in lines)

    def on_resize(self, event: events.Resize) -> None:
        self.drawn.clear()
        self._wrap_all()
        if self._following:
            self.to_end()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._following = new_value >= self.max_scroll_y

    def watch_show_vertical_scrollbar(self, shown: bool) -> None:
        """Set the position of a scroll bar that has just appeared: Textual leaves it at the top."""
        if shown:
            self.vertical_scrollbar.position = self.scroll_y

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
        strips = [self._drawn_line(y - above, width) for y in crop.line_range]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, ground) for strip in strips]
        if crop.column_span != (0, width):
            strips = [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        """Return line `y` in view with its offsets. Textual needs them to select with the mouse."""
        number = self._number(y)
        return self._strip(number).apply_offsets(0, number)

    def _strip(self, number: int) -> Strip:
        """Return line `number` of the conversation."""
        index = bisect_right(self._tops, number) - 1
        if not 0 <= number < self._total or index < 0:
            return Strip([])
        entry = self.entries[index]
        line = number - self._tops[index]
        if not entry.lines:
            entry.lines = self._lines(entry)
        if line >= len(entry.lines):  # not wrapped for this width yet
            return Strip([])
        if line == len(entry.lines) - 1:
            entry.painted = True
        return self._selected(Strip(entry.lines[line]), number)

    def _drawn_line(self, y: int, width: int) -> Strip:
        """Return line `y` in view, padded to `width`."""
        ground = self.look.ground.rich_style
        if not 0 <= y < self.scrollable_content_region.height:
            return Strip.blank(width, ground)
        number = self._number(y)
        if number not in self.drawn:
            in_view = self.lines_in_view()
            if len(self.drawn) >= DRAWN_SCREENS * len(in_view):
                self.drawn = {n: self.drawn[n] for n in in_view if n in self.drawn}
            line = self._strip(number)
            before = self.styles.padding.left
            entry = self._entry(number)
            margin = [Segment(" " * before, ground)]
            if entry is not None and before and entry.turn and entry.turn == self._selected_turn:
                mark = self.look.label("you").rich_style
                margin = [Segment(SELECTED, mark), Segment(" " * (before - 1), ground)]
            figure = self._figure(number, entry, line.cell_length)
            after = width - before - line.cell_length - sum(f.cell_length for f in figure)
            segments = [*margin, *line, *figure, Segment(" " * after, ground)]
            self.drawn[number] = Strip(segments, width)
        return self.drawn[number]

    def _entry(self, number: int) -> Entry | None:
        """Return the entry of line `number`; None above and below the conversation."""
        index = bisect_right(self._tops, number) - 1
        return self.entries[index] if 0 <= number < self._total and index >= 0 else None

    def _figure(self, number: int, entry: Entry | None, used: int) -> list[Segment]:
        """Return the figure of line `number`, moved right beside `used` cells of text."""
        if entry is None or entry.figure is None or not entry.lines:
            return []
        index = bisect_right(self._tops, number) - 1
        room = self.look.width - 1 - used - cell_len(entry.figure.text)
        if number != self._tops[index] + entry.height - 1 or room < 0:
            return []
        style = self.look.attention if entry.figure.bad else self.look.muted
        gap = Segment(" " * room, self.look.ground.rich_style)
        return [gap, Segment(entry.figure.text, style.rich_style)]

    def _number(self, y: int) -> int:
        """Return the line number at row `y`; negative above a conversation that is shorter."""
        return y + self.scroll_offset.y - self._space_above()

    def lines_in_view(self) -> range:
        """Return the line numbers in view."""
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
        """Return how many rows are empty above a conversation that is shorter than the widget.

        A conversation stands at the bottom, the welcome in the middle.
        """
        room = max(0, self.scrollable_content_region.height - self._total)
        return room if self._begun else room // 2

    def _index(self, entry: Entry) -> int | None:
        """Return the place of `entry`, or None if it was dropped. Searches from the end."""
        for index in range(len(self.entries) - 1, -1, -1):
            if self.entries[index] is entry:
                return index
        return None

    def _wrap_all(self) -> None:
        """Wrap for the present look: what is in view now, the rest in time slices."""
        look = self._present_look()
        if look == self.look:
            return
        self.look = look
        self.drawn.clear()
        while stale := [entry for entry in self.in_view() if entry.look is not look]:
            with self._rearranging():
                for entry in stale:
                    self._wrap(entry)
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
                self._wrap(entry)
                if not at_hand:
                    entry.lines = []
                entry = next(stale, None)
        if self._wrapping is not None:
            self._wrapping.stop()
        self._wrapping = self.set_timer(WRAP_PAUSE_SECONDS, self._wrap_more)

    def in_view(self) -> Sequence[Entry]:
        """Return the entries in view."""
        top = 0 if self._space_above() else self.scroll_offset.y
        first = max(0, bisect_right(self._tops, top) - 1)
        last = bisect_right(self._tops, top + self.scrollable_content_region.height)
        return self.entries[first:last]

    def _wrap(self, entry: Entry) -> None:
        entry.look, entry.painted = self.look, False
        entry.lines = self._lines(entry)
        entry.height = len(entry.lines)

    def _lines(self, entry: Entry) -> list[Line]:
        """Wrap the whole content of `entry`; sets its `tail` and `column`."""
        if self.look.width <= 0:
            return []
        content = entry.content
        if entry.lit is not None:
            content = content.stylize("$text", 0, entry.lit)
        lines, entry.tail = self._wrapped(entry, content)
        entry.column = len(content.plain.rpartition("\n")[2].expandtabs(TAB_CELLS))
        if entry.figure is not None:
            used = sum(segment.cell_length for segment in lines[-1])
            if used + FIGURE_GAP + cell_len(entry.figure.text) >= self.look.width:
                lines.append([])
        return [[], *lines] if entry.spaced else lines

    def _wrapped(
        self, entry: Entry, content: Content, labelled: bool = True
    ) -> tuple[list[Line], str]:
        """Wrap `content`, styled as `entry`; return the lines and the text of the last one.

        `labelled`: the first line carries the label.
        """
        look = self.look
        label_style = look.label(entry.kind)
        style = look.muted if entry.muted else look.ground
        if entry.kind == "head" and not entry.muted:
            style = label_style
        indent = 0 if entry.kind == "head" else min(LABEL_CELLS, look.width // 3)
        strips = Visual.to_strips(
            self,
            content,
            max(1, look.width - indent - 1),
            None,
            style,
            apply_selection=False,
        )
        labels = [Segment(entry.label[:indent].ljust(indent), label_style.rich_style)]
        blanks = [Segment(" " * indent, look.ground.rich_style)]
        tail = content.plain.rpartition("\n")[2].expandtabs(TAB_CELLS)[_column(strips[-1]) :]
        # Without the offsets, because they make every segment's style unique.
        lines = [
            [*(labels if labelled and not i else blanks), *strip.discard_meta()]
            for i, strip in enumerate(strips)
        ]
        return lines, tail

    def _show_lines(self, entry: Entry, first: int, before: Sequence[Line]) -> None:
        """Draw the lines of `entry` from `first` on that differ from `before`."""
        index = self._index(entry)
        if index is None:
            return
        lines = entry.lines[first:]
        if len(before) != len(lines):
            with self._rearranging(index):
                pass
            return
        top = self._tops[index] + first
        for i, (old, new) in enumerate(zip(before, lines, strict=True)):
            if old != new:
                self.drawn.pop(top + i, None)
                self.refresh_lines(top + i + self._space_above())

    def _present_look(self) -> Look:
        ground = self.visual_style

        def component(name: str) -> Style:
            return ground + self.get_visual_style(f"transcript--{name}", partial=True)

        return Look(
            self.scrollable_content_region.width,
            ground,
            component("muted"),
            component("attention"),
            tuple(component(kind) for kind in KINDS),
        )

    @contextmanager
    def _rearranging(self, since: int = 0) -> Generator[None, None, None]:
        """Lay out the entries from index `since` on after the block has changed them.

        Keeps the same line in view: the end, or the line that the user scrolled to.
        """
        top = self.scroll_offset.y
        at = bisect_right(self._tops, top) - 1
        anchor = None if self._following or at < 0 else self.entries[at]
        line = top - self._tops[at] if anchor else 0
        yield
        start = self._tops[since] if since < len(self._tops) else self._total
        heights = [entry.height for entry in self.entries[since:]]
        tops = [start, *accumulate(heights, initial=start)]
        self._tops[since:], self._total = tops[1:-1], tops[-1]
        for number in [number for number in self.drawn if number >= start]:
            del self.drawn[number]
        self._grow(Size(self.look.width, self._total))
        if self._following:
            self.to_end()
        elif anchor is not None and (at := self._index(anchor)) is not None and since <= at:
            self._scroll(self._tops[at] + min(line, max(0, anchor.height - 1)))
        self.refresh()

    def _scroll(self, y: int) -> None:
        self.scroll_to(y=y, animate=False, force=True, immediate=True)

    def _grow(self, size: Size) -> None:
        """Set the height. Lays out the screen only where a scroll bar appears or disappears."""
        if self.show_vertical_scrollbar != (size.height > self.scrollable_content_region.height):
            self.virtual_size = size
            return
        self.set_reactive(Widget.virtual_size, size)  # pyright: ignore[reportArgumentType]
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.window_virtual_size = size.height


def _column(strip: Strip) -> int:
    """Return where in its line of text a wrapped strip begins: Textual notes it for selections."""
    for segment in strip:
        if segment.style is not None:
            return segment.style.meta["offset"][0]
    return 0
