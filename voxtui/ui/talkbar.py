"""The bottom line: how loud it is, what a key does now, or the text field."""

from __future__ import annotations

import math

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static

from voxtui.ui.bars import bar

QUIETEST_DB = -60.0

TOGGLE = "toggle: Space starts, Space ends"
TYPING = "type: Enter sends, Esc leaves"


def loudness(level: float) -> float:
    """A peak of 0..1 as a share of the meter: 0 at -60 dBFS, 1 at full scale."""
    if level <= 0:
        return 0.0
    return max(0.0, min(1.0, 1 - 20 * math.log10(level) / QUIETEST_DB))


class Meter(Widget):
    """A bar from 0 to 1 that repaints only when it would look different."""

    eighths = reactive(0)

    def show(self, share: float) -> None:
        self.eighths = round(share * self.size.width * 8)

    def render_line(self, y: int) -> Strip:
        width, style = self.size.width, self.rich_style
        ground = [Segment("─", style + Style(dim=True))] * width
        return Strip(bar(0, self.eighths / 8, style, ground), width)


class TalkBar(Horizontal):
    """Meter and hint; or, while text is typed, the field."""

    class Pressed(Message):
        """The bar was clicked."""

    def __init__(self) -> None:
        super().__init__()
        self.border_title = TOGGLE
        self.meter = Meter()
        self.field = Input(placeholder="Ask something", compact=True)
        self._hint = Static(markup=False)

    def compose(self) -> ComposeResult:
        yield self.meter
        yield self._hint
        yield self.field

    def hint(self, text: str) -> None:
        if text != self._hint.content:
            self._hint.update(text, layout=False)

    @property
    def typing(self) -> bool:
        return self.has_class("typing")

    def open_field(self) -> None:
        self.add_class("typing")
        self.border_title = TYPING
        self.field.focus()

    def close_field(self) -> None:
        self.remove_class("typing")
        self.border_title = TOGGLE
        self.field.clear()

    def on_click(self) -> None:
        if not self.typing:
            self.post_message(self.Pressed())
