"""A paragraph of the conversation, wrapped to lines of a width."""

from __future__ import annotations

from dataclasses import dataclass

from rich.segment import Segment
from textual.content import Content
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual
from textual.widget import Widget

LONGEST_LINE = 2000
"""Characters after which a line is broken even if it is not full.

Zero-width characters never fill a line. Wrapping such a line again for each token would take time
quadratic in its length."""

FIGURE_CELLS = 10
"""Cells at the right of the text, for the figure of an answer and a gap before it."""

FIGURE_WIDTH = 60
"""Width from which a conversation reserves space for figures."""

LABEL_CELLS = 5
TAB = Content(" " * 4)

KINDS = ("you", "vox", "head")

Line = list[Segment]
"""Segments, not a Strip, because a Strip caches everything derived from it."""


@dataclass(frozen=True, slots=True)
class Look:
    """Everything on which the lines of an entry depend, except its content."""

    width: int
    ground: Style
    muted: Style
    labels: tuple[Style, ...]

    def label(self, kind: str) -> Style:
        return self.labels[KINDS.index(kind)]


NO_LOOK = Look(0, Style(), Style(), (Style(),) * len(KINDS))


class Paragraph:
    def __init__(
        self, kind: str, label: str, content: Content, spaced: bool = True, muted: bool = False
    ) -> None:
        """`kind` is one of KINDS and sets the style of the label. `spaced`: an empty line above."""
        self.kind = kind
        self.turn = 0
        self.figure = ""
        """the text at the right of the last line, if there is space"""
        self.label = label
        self.spaced = spaced
        self.muted = muted
        self.lit: int | None = None
        """the number of first characters of a muted entry that are drawn not muted"""
        self.lines: list[Line] = []
        """the wrapped lines; empty if they must be wrapped before the next drawing"""
        self.height = 0
        """the number of lines, valid even while `lines` is empty"""
        self.tail = ""
        self.look = NO_LOOK
        self.painted = False
        """whether the last line has been drawn since the last change"""
        self.content = content

    @property
    def content(self) -> Content:
        if self._added:
            self._content = Content(self._content.plain + "".join(self._added))
            self._added.clear()
        return self._content

    @content.setter
    def content(self, content: Content) -> None:
        self._content = TAB.join(content.split("\t", allow_blank=True))
        self._added: list[str] = []
        """text not yet in `_content`, because joining it for each token would be quadratic"""

    def append(self, text: str, look: Look, widget: Widget) -> tuple[int, list[Line]]:
        """Append unstyled `text`; return the first changed line's index, and the replaced lines.

        Wraps only the last line again: lines break at the first place that fits, so later text
        cannot move an earlier break. The cost of an answer is thus linear in its length.
        """
        text = text.replace("\t", TAB.plain)
        self._added.append(text)
        before = self.lines
        if not before or self.look is not look:
            self.wrap(look, widget)
            return 0, before
        first = len(before)
        if len(self.tail) < LONGEST_LINE:
            first -= 1
            text = self.tail + text
        labelled = first == (1 if self.spaced else 0)
        before = self.lines[first:]
        self.lines[first:], self.tail = self._wrapped(Content(text), look, widget, labelled)
        self.height = len(self.lines)
        self.painted = False
        return first, before

    def wrap(self, look: Look, widget: Widget) -> None:
        self.look, self.painted = look, False
        self.lines = self.wrapped(look, widget)
        self.height = len(self.lines)

    def wrapped(self, look: Look, widget: Widget) -> list[Line]:
        """Return the whole content as lines, and set `tail`."""
        if look.width <= 0:
            return []
        lines, self.tail = self._wrapped(self.content, look, widget)
        return [[], *lines] if self.spaced else lines

    def lit_lines(self) -> list[int]:
        if not self.lit:
            return [0] * len(self.lines)
        text, found, begin = self.content.plain, list[int](), 0
        for line in self.lines:
            shown = "".join(segment.text for segment in line[1:]).rstrip()
            begin = max(begin, text.find(shown, begin))
            found.append(min(max(0, self.lit - begin), len(shown)))
            begin += len(shown)
        return found

    def _wrapped(
        self, content: Content, look: Look, widget: Widget, labelled: bool = True
    ) -> tuple[list[Line], str]:
        """Wrap `content` in the style of this entry; return the lines and the text of the last one.

        The first line has the label if `labelled`.
        """
        label_style = look.label(self.kind)
        style = look.muted if self.muted else look.ground
        if self.kind == "head" and not self.muted:
            style = label_style
        margin = FIGURE_CELLS if look.width >= FIGURE_WIDTH else 1
        indent = 0 if self.kind == "head" else min(LABEL_CELLS, look.width // 3)
        strips = Visual.to_strips(
            widget,
            content,
            max(1, look.width - indent - margin),
            None,
            style,
            apply_selection=False,
        )
        labels = [Segment(self.label[:indent].ljust(indent), label_style.rich_style)]
        blanks = [Segment(" " * indent, look.ground.rich_style)]
        tail = content.plain.rpartition("\n")[2][_column(strips[-1]) :]
        # Without the offsets, because they make every segment's style unique.
        lines = [
            [*(labels if labelled and not i else blanks), *strip.discard_meta()]
            for i, strip in enumerate(strips)
        ]
        return lines, tail


def _column(strip: Strip) -> int:
    """Return the column where a wrapped strip begins in its line of text, as Textual notes it."""
    for segment in strip:
        if segment.style is not None:
            return segment.style.meta["offset"][0]
    return 0
