"""The conversation: one widget that draws its own lines, so that its length costs nothing."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.content import Content
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.timer import Timer
from textual.visual import Visual
from textual.widget import Widget

KEPT_ENTRIES = 2500
"""Older ones are forgotten, so that memory has a limit: about a thousand turns stay."""

FORGOTTEN_AT_ONCE = 100
"""So that forgetting, which moves every line, is rare."""

WRAPPED_ENTRIES = 200
"""As many of the newest keep their lines; an older one is wrapped when it is looked at."""

DRAWN_SCREENS = 2
"""As many lines are kept as they were drawn last: each is some fifty objects."""

WRAP_SECONDS, WRAP_PAUSE_SECONDS = 0.006, 0.01
"""A long conversation takes a new width or new colours in slices: the screen must not stall."""

LABEL_CELLS = 5

SIGNS = {"information": "·", "warning": "!", "error": "✗"}

KINDS = ("you", "vox", "information", "warning", "error", "head")


@dataclass(frozen=True, slots=True)
class Look:
    """What the lines of an entry depend on, beside its content."""

    width: int
    ground: Style
    muted: Style
    labels: tuple[Style, ...]
    """in the order of KINDS"""

    def label(self, kind: str) -> Style:
        return self.labels[KINDS.index(kind)]


NO_LOOK = Look(0, Style(), Style(), (Style(),) * len(KINDS))


@dataclass(slots=True, eq=False)
class Entry:
    """A paragraph, what stands before it, and the lines it takes."""

    kind: str
    """one of KINDS: the look of the label"""
    label: str
    content: Content
    spaced: bool = True
    """an empty line above it"""
    muted: bool = False
    lines: list[list[Segment]] = field(default_factory=list[list[Segment]])
    """not strips, which keep all that was ever made of them; empty where they are not at hand"""
    height: int = 0
    """how many they are"""
    look: Look = NO_LOOK
    """that of `lines`"""
    painted: bool = False
    """whether its end has been drawn since it last changed"""


class Transcript(ScrollView, can_focus=True):
    """Entries from top to bottom, the newest in view; a short conversation stands at the bottom.

    Work on it is in proportion to what is in view, however long the conversation is.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"transcript--{kind}" for kind in KINDS),
        "transcript--muted",
    }

    def __init__(self) -> None:
        super().__init__()
        self._head: list[Entry] = []
        self._entries: list[Entry] = []
        self._tops: list[int] = []
        """the first line of each entry"""
        self._total = 0
        self._look = NO_LOOK
        self._wrapping: Timer | None = None
        self._drawn: dict[int, Strip] = {}
        """lines as they were drawn last"""
        self._following = True
        """the end is in view, and is kept there"""

    def show_head(self, title: str, lines: Iterable[tuple[str, str]]) -> None:
        """What stands above the conversation: a title, then a label and a sentence each."""
        conversation = self._entries[len(self._head) :]
        head = [Entry("head", "", Content(title))]
        head += [
            Entry("information", label, Content(line), spaced=not i, muted=True)
            for i, (label, line) in enumerate(lines)
        ]
        for entry in head:
            self._wrap(entry)
        with self._rearranging():
            self._head = head
            self._entries = [*head, *conversation]

    def add(self, entry: Entry) -> None:
        self._wrap(entry)
        with self._rearranging(len(self._entries)):
            self._entries.append(entry)
        for old in self._entries[-WRAPPED_ENTRIES - 1 : -WRAPPED_ENTRIES]:
            old.lines = []
        if len(self._entries) - len(self._head) >= KEPT_ENTRIES + FORGOTTEN_AT_ONCE:
            with self._rearranging():
                del self._entries[len(self._head) : -KEPT_ENTRIES]

    def note(self, message: str, severity: str = "information") -> None:
        """A sentence that belongs to no reply."""
        self.add(Entry(severity, SIGNS[severity], Content(message), muted=True))

    def change(self, entry: Entry, content: Content) -> None:
        """Show `content` in it; an entry that has been forgotten is not shown again."""
        entry.content = content
        before = entry.lines
        self._wrap(entry)
        index = self._index(entry)
        if index is None:
            return
        if len(before) != len(entry.lines):
            with self._rearranging(index):
                pass
            return
        top = self._tops[index]
        for i, (old, new) in enumerate(zip(before, entry.lines, strict=True)):
            if old != new:
                self._drawn.pop(top + i, None)
                self.refresh_lines(top + i + self._space_above())

    def join(self, entries: Sequence[Entry], content: Content) -> None:
        """Make of `entries` one, the first, with this content."""
        first, *rest = entries
        gone = {id(entry) for entry in rest}
        first.content = content
        self._wrap(first)
        with self._rearranging(self._index(first) or 0):
            self._entries = [entry for entry in self._entries if id(entry) not in gone]

    def clear(self) -> None:
        """Forget the conversation; what stands above it stays."""
        self._entries = list(self._head)
        self._following = True
        with self._rearranging():
            pass

    def to_end(self) -> None:
        self._following = True
        self._scroll(self.max_scroll_y)

    def action_scroll_end(self) -> None:
        """At once: an answer that grows would run away from a slow scroll."""
        self.to_end()

    @property
    def text(self) -> str:
        lines = (line for entry in self._entries for line in entry.lines or self._lines(entry))
        return "\n".join("".join(segment.text for segment in line) for line in lines)

    def on_resize(self, event: events.Resize) -> None:
        self._drawn.clear()
        self._wrap_all()
        if self._following:
            self.to_end()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._following = new_value >= self.max_scroll_y

    def watch_show_vertical_scrollbar(self, shown: bool) -> None:
        """A bar that comes only now was not there to be told of the place."""
        if shown:
            self.vertical_scrollbar.position = self.scroll_y

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_mounted:
            self._wrap_all()

    def selection_updated(self, selection: Selection | None) -> None:
        self._drawn.clear()
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract(self.text), "\n"

    def render_lines(self, crop: Region) -> list[Strip]:
        """Textual's own way would style each line anew whenever the conversation moves."""
        _, ground = self.background_colors
        width, above = self.outer_size.width, self.styles.padding.top
        strips = [self._drawn_line(y - above, width) for y in crop.line_range]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, ground) for strip in strips]
        if crop.column_span != (0, width):
            strips = [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        """As it is drawn, with the places in it: Textual asks for it where the mouse selects."""
        number = self._number(y)
        return self._strip(number).apply_offsets(0, number)

    def _strip(self, number: int) -> Strip:
        """Line `number` of the conversation."""
        index = bisect_right(self._tops, number) - 1
        if not 0 <= number < self._total or index < 0:
            return Strip([])
        entry = self._entries[index]
        line = number - self._tops[index]
        if not entry.lines:
            entry.lines = self._lines(entry)
        if line >= len(entry.lines):  # not wrapped for this width yet
            return Strip([])
        if line == len(entry.lines) - 1:
            entry.painted = True
        return self._selected(Strip(entry.lines[line]), number)

    def _drawn_line(self, y: int, width: int) -> Strip:
        """Line `y` of what is in view, with the empty cells around it."""
        ground = self._look.ground.rich_style
        if not 0 <= y < self.scrollable_content_region.height:
            return Strip.blank(width, ground)
        number = self._number(y)
        if number not in self._drawn:
            in_view = self._numbers()
            if len(self._drawn) >= DRAWN_SCREENS * len(in_view):
                self._drawn = {n: self._drawn[n] for n in in_view if n in self._drawn}
            line = self._strip(number)
            before = self.styles.padding.left
            after = width - before - line.cell_length
            segments = [Segment(" " * before, ground), *line, Segment(" " * after, ground)]
            self._drawn[number] = Strip(segments, width)
        return self._drawn[number]

    def _number(self, y: int) -> int:
        """Of the line at `y` in view: less than 0 above a conversation that is shorter."""
        return y + self.scroll_offset.y - self._space_above()

    def _numbers(self) -> range:
        """Of the lines in view."""
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
        """Empty lines above a conversation that is shorter than the widget."""
        return max(0, self.scrollable_content_region.height - self._total)

    def _index(self, entry: Entry) -> int | None:
        """None for an entry that has been forgotten."""
        for index in range(len(self._entries) - 1, -1, -1):
            if self._entries[index] is entry:
                return index
        return None

    def _wrap_all(self) -> None:
        """What is in view takes the present look now, the rest in slices."""
        look = self._present_look()
        if look == self._look:
            return
        self._look = look
        self._drawn.clear()
        while stale := [entry for entry in self._in_view() if entry.look is not look]:
            with self._rearranging():
                for entry in stale:
                    self._wrap(entry)
        self._wrap_more()

    def _wrap_more(self) -> None:
        """From the newest to the oldest."""
        until = time.monotonic() + WRAP_SECONDS
        stale = (entry for entry in reversed(self._entries) if entry.look is not self._look)
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

    def _in_view(self) -> Sequence[Entry]:
        top = 0 if self._space_above() else self.scroll_offset.y
        first = max(0, bisect_right(self._tops, top) - 1)
        last = bisect_right(self._tops, top + self.scrollable_content_region.height)
        return self._entries[first:last]

    def _wrap(self, entry: Entry) -> None:
        entry.look, entry.painted = self._look, False
        entry.lines = self._lines(entry)
        entry.height = len(entry.lines)

    def _lines(self, entry: Entry) -> list[list[Segment]]:
        look = self._look
        if look.width <= 0:
            return []
        label_style = look.label(entry.kind)
        style = look.muted if entry.muted else look.ground
        if entry.kind == "head" and not entry.muted:
            style = label_style
        indent = 0 if entry.kind == "head" else min(LABEL_CELLS, look.width // 3)
        text = Visual.to_strips(
            self,
            entry.content,
            max(1, look.width - indent - 1),
            None,
            style,
            apply_selection=False,
        )
        labels = [Segment(entry.label[:indent].ljust(indent), label_style.rich_style)]
        blanks = [Segment(" " * indent, look.ground.rich_style)]
        above = [list[Segment]()] if entry.spaced else []
        # Without the places of its characters, which make a style of its own of each piece.
        text = [strip.discard_meta() for strip in text]
        return above + [[*(blanks if i else labels), *line] for i, line in enumerate(text)]

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
        """Within, entries from index `since` on come, go, or change their height.

        What is in view stays there: the end, or what the user has scrolled to.
        """
        top = self.scroll_offset.y
        at = bisect_right(self._tops, top) - 1
        anchor = None if self._following or at < 0 else self._entries[at]
        line = top - self._tops[at] if anchor else 0
        yield
        start = self._tops[since] if since < len(self._tops) else self._total
        heights = [entry.height for entry in self._entries[since:]]
        tops = [start, *accumulate(heights, initial=start)]
        self._tops[since:], self._total = tops[1:-1], tops[-1]
        for number in [number for number in self._drawn if number >= start]:
            del self._drawn[number]
        self._grow(Size(self._look.width, self._total))
        if self._following:
            self.to_end()
        elif anchor is not None and (at := self._index(anchor)) is not None and since <= at:
            self._scroll(self._tops[at] + min(line, max(0, anchor.height - 1)))
        self.refresh()

    def _scroll(self, y: int) -> None:
        self.scroll_to(y=y, animate=False, force=True, immediate=True)

    def _grow(self, size: Size) -> None:
        """Take a new height; the screen is laid out anew only where a scroll bar comes or goes."""
        if self.show_vertical_scrollbar != (size.height > self.scrollable_content_region.height):
            self.virtual_size = size
            return
        self.set_reactive(Widget.virtual_size, size)  # pyright: ignore[reportArgumentType]
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.window_virtual_size = size.height
