"""The talk bar: the state, a hint or the text field, and the level. Holding it talks."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
from textual.widgets import Static

from voxtui.dialogue.events import State
from voxtui.dialogue.history.attachments import Attachment
from voxtui.slash_commands import matching
from voxtui.ui.bars import HALF_LINE, LINE
from voxtui.ui.talk.field import Field
from voxtui.ui.talk.pasted import PastedTexts

QUIETEST_DB = -60.0

LEFT_BUTTON = 1

BADGES = {
    State.LOADING: "◌ LOADING",
    State.READY: "○ READY",
    State.LISTENING: Content.styled("● LISTENING", "$text-error"),  # red, as what records is
    State.THINKING: "◐ THINKING",
    State.SPEAKING: "♪ SPEAKING",
}

NOT_LOADED, NO_SOUND = "✗ NOT LOADED", "✗ NO SOUND"


def loudness(level: float) -> float:
    """Convert a peak from 0 to 1 to a share of the meter: 0 at -60 dBFS, 1 at full scale."""
    if level <= 0:
        return 0.0
    return max(0.0, min(1.0, 1 - 20 * math.log10(level) / QUIETEST_DB))


class Meter(Widget):
    """A line from 0 to 1, repainted only if it would look different."""

    ALLOW_SELECT = False

    halves = reactive(0)

    def show(self, share: float) -> None:
        self.halves = round(share * self.size.width * 2)

    def render_line(self, y: int) -> Strip:
        width, style = self.size.width, self.rich_style
        line = LINE * (self.halves // 2) + HALF_LINE * (self.halves % 2)
        ground = Segment("─" * (width - len(line)), style + Style(dim=True))
        return Strip([Segment(line, style), ground], width)


class Hint(Static):
    """The action of the talk key, or progress."""

    ALLOW_SELECT = False


class TalkBar(Horizontal):
    """Shows the state, a hint or the text being written, and the level."""

    ALLOW_SELECT = False

    class Held(Message):
        """The mouse button was pressed on the talk bar, at `time`."""

    class LetGo(Message):
        """The mouse button was released, anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self._title = self._source = self._usage = ""
        self.corrected: int | None = None
        """the number of the turn whose words are being corrected in the field"""
        self._progress = False
        """whether the hint shows the progress of reading, which an open field shows as its title"""
        self.meter = Meter()
        self.field = Field()
        self.pasted = PastedTexts()
        self._badge = Static(BADGES[State.LOADING], id="badge", markup=False)
        self._hint = Hint(markup=False)

    def compose(self) -> ComposeResult:
        yield self._badge
        yield self.pasted
        yield self._hint
        yield self.field
        yield self.meter

    def explain(self, instead_of_typing: str) -> None:
        self.field.placeholder = f"Ask something{instead_of_typing}"

    def name_source(self, text: str) -> None:
        if text != self._source:
            self._source = text
            self.border_subtitle = Content(text)  # pyright: ignore[reportAttributeAccessIssue]

    def show_state(self, state: State | None, stalls: bool = False) -> None:
        """Show the badge of `state`; None: no model is loaded. `stalls`: no sound is played."""
        badge = NOT_LOADED if state is None else NO_SOUND if stalls else BADGES[state]
        # Not a class for each state: a change of classes styles all of the bar again, for 5 ms.
        self.set_class(state is State.LOADING, "-loading")
        self.set_class(state is None, "-failed")
        if badge != self._badge.content:
            self._badge.update(badge, layout=False)

    def hint(self, text: str, progress: bool = False) -> None:
        self._usage, self._progress = text, progress
        if text != self._hint.content:
            self._hint.update(text, layout=False)
        self._show_title()

    @property
    def typing(self) -> bool:
        return self.has_class("typing")

    def write(self, text: str) -> None:
        if not self.typing:
            self.add_class("typing")
        if not self.field.has_focus:
            self.screen.set_focus(self.field)
        self.field.write(text)
        self._show_title()

    def paste(self, text: str, room: int, tokens_per_second: float | None) -> None:
        self.pasted.add(text, room, tokens_per_second)
        self.write("")

    def take_pasted(self) -> Sequence[Attachment]:
        texts = self.pasted.take()
        self._show_title()
        return texts

    def correct(self, turn: int, words: str) -> None:
        self._empty_field()
        self.corrected = turn
        self.write(words)

    def take(self) -> str:
        self.corrected = None
        return self.field.take()

    def close_field(self) -> None:
        """Close the text field. Up recalls its text, unless that is a correction."""
        self.remove_class("typing")
        self._empty_field()
        self._show_title()

    def _empty_field(self) -> None:
        if self.corrected is None:
            self.field.take(draft=True)
        else:
            self.field.clear()
        self.corrected = None

    async def edit(self, key: events.Key) -> bool:
        """Apply an editing key if the field is open or Up opens it. Return False for other keys.

        With a pasted text, Backspace at the beginning removes it, and Tab opens it.
        """
        at_begin = self.field.cursor_position == 0 and self.field.selection.is_empty
        if self.pasted.waiting and key.key == "backspace" and at_begin:
            self.pasted.take_back()
            self._show_title()
            return True
        if self.pasted.waiting and key.key == "tab" and not self.field.value.startswith("/"):
            await self.run_action("screen.open_pasted")
            return True
        if not self.typing:
            if key.key != "up" or not self.field.recall.draft:
                return False
            self.write("")
        return await self.field.edit(key)

    def on_input_changed(self) -> None:
        self._show_title()

    def _show_title(self) -> None:
        progress = self._usage if self._progress and self.typing else ""
        title = progress
        if found := matching(self.field.value):
            names = "  ".join(command.usage for command in found)
            title = f"{found[0].usage}: {found[0].about}" if len(found) == 1 else names
        elif self.pasted.waiting:
            title = f"{self.pasted.room_used} · Enter sends · Tab opens · Backspace removes"
        elif self.corrected is not None:
            title = "Enter: answer this instead"
        elif not self.field.empty:
            title = f"Enter sends · {progress}" if progress else "Enter sends"
        if title != self._title:  # each time it is set, all of the bar is painted
            self._title = title
            self.border_title = Content(title)  # pyright: ignore[reportAttributeAccessIssue]

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
