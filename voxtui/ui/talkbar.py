"""The bottom line: the microphone's level and a hint, or the text field. Held, it talks."""

from __future__ import annotations

import math

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static

from voxtui.dialogue.events import State
from voxtui.ui.bars import bar

QUIETEST_DB = -60.0

LEFT_BUTTON = 1

BADGES = {
    State.LOADING: "◌ LOADING",
    State.READY: "○ READY",
    State.LISTENING: "● LISTENING",
    State.THINKING: "◐ THINKING",
    State.SPEAKING: "♪ SPEAKING",
}

NOT_LOADED = "✗ NOT LOADED"

TYPING = "type: Enter sends, Esc "


def loudness(level: float) -> float:
    """Convert a peak of 0..1 to a share of the meter: 0 at -60 dBFS, 1 at full scale."""
    if level <= 0:
        return 0.0
    return max(0.0, min(1.0, 1 - 20 * math.log10(level) / QUIETEST_DB))


class Meter(Widget):
    """A bar from 0 to 1. It repaints only when it would look different."""

    ALLOW_SELECT = False

    eighths = reactive(0)

    def show(self, share: float) -> None:
        self.eighths = round(share * self.size.width * 8)

    def render_line(self, y: int) -> Strip:
        width, style = self.size.width, self.rich_style
        ground = [Segment("─", style + Style(dim=True))] * width
        return Strip(bar(0, self.eighths / 8, style, ground), width)


class Hint(Static):
    """The action of the talk key, or progress."""

    ALLOW_SELECT = False


class TalkBar(Horizontal):
    """Shows meter and hint, or the text field while the user types."""

    ALLOW_SELECT = False

    class Held(Message):
        """The mouse button went down on the bar, at `time`."""

    class LetGo(Message):
        """The mouse button came up again, anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self._usage = self._title = ""
        self._source = ""
        self.begun = False
        """a key was sent to the text field, which may not have taken it yet"""
        self.meter = Meter()
        self.field = Input(compact=True)
        self._badge = Static(BADGES[State.LOADING], id="badge", markup=False)
        self._hint = Hint(markup=False)

    def compose(self) -> ComposeResult:
        yield self._badge
        yield self._hint
        yield self.field
        yield self.meter

    def explain(self, usage: str, instead_of_typing: str = "") -> None:
        """Show how to talk; `instead_of_typing` stands in an empty field."""
        self._usage = usage
        self.field.placeholder = f"Ask something{instead_of_typing}"
        self._show_title()

    def name_source(self, text: str) -> None:
        """Show the microphone and its level."""
        if text != self._source:
            self._source = text
            self.border_subtitle = Content(text)  # pyright: ignore[reportAttributeAccessIssue]

    def show_state(self, state: State | None) -> None:
        """Show the badge of `state`; None: no model is loaded."""
        badge = NOT_LOADED if state is None else BADGES[state]
        if badge != self._badge.content:
            self._badge.update(badge, layout=False)

    def hint(self, text: str) -> None:
        self._show_title()
        if text != self._hint.content:
            self._hint.update(text, layout=False)

    @property
    def typing(self) -> bool:
        return self.has_class("typing")

    def open_field(self) -> None:
        self.add_class("typing")
        self._show_title()
        self.screen.set_focus(self.field)  # now: the next key is the first letter

    def close_field(self) -> None:
        self.remove_class("typing")
        self._show_title()
        self.begun = False
        self.field.clear()

    def _show_title(self) -> None:
        esc = "stops" if self.has_class("-thinking") or self.has_class("-speaking") else "leaves"
        title = TYPING + esc if self.typing else self._usage
        if title != self._title:  # each time it is set, all of the bar is painted
            self._title = self.border_title = title

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if self.typing or event.button != LEFT_BUTTON:
            return
        event.stop()
        self.capture_mouse()  # the button may come up elsewhere
        self._post(self.Held(), event)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self.release_mouse()
        self._post(self.LetGo(), event)

    def _post(self, message: Message, event: events.MouseEvent) -> None:
        message.time = event.time
        self.post_message(message)
