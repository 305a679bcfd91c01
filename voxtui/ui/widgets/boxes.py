"""Boxes over the screen: a list with a search, and a text that scrolls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingsMap, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen, ScreenResultType
from textual.widget import Widget
from textual.widgets import Input, OptionList

from voxtui.ui.widgets.messages import Messages


class Box(ModalScreen[ScreenResultType]):
    """A box that closes once, even if a second Enter came before it had closed."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.app.screen is self else AwaitComplete.nothing()  # pyright: ignore[reportUnknownMemberType]


EDITING = {
    key: bindings[0].action
    for key, bindings in BindingsMap(Input.BINDINGS).key_to_bindings.items()
    if key != "enter"
}
"""The editing keys of Textual's text field, and their actions."""


class SearchField(Input):
    """Edits in the order of the keys. Textual lets a letter overtake the editing key before it."""

    async def on_key(self, key: events.Key) -> None:
        if action := EDITING.get(key.key):
            key.stop()
            await self.run_action(action)


class SearchList(Box[ScreenResultType]):
    """A list below its search words, between TITLE and SUB_TITLE. Its keys need no focus."""

    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key, f"move('{action}')", priority=True)
        for key, action in (
            ("up", "cursor_up"), ("down", "cursor_down"),
            ("pageup", "page_up"), ("pagedown", "page_down"),
        )
    ]  # fmt: skip

    def __init__(self, words: str, *below: Widget) -> None:
        """Begin with a search for `words`. `below` stands below the list."""
        super().__init__()
        self._input = SearchField(words, placeholder="Search, or ↑ ↓ and Enter", compact=True)
        self._list = OptionList(markup=False, compact=True)
        self._below = below

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            yield self._input
            yield Messages()
            yield self._list
            yield from self._below
        box.border_title, box.border_subtitle = self.TITLE, self.SUB_TITLE

    def on_mount(self) -> None:
        self._list.can_focus = False
        motion = self.app.animation_level  # pyright: ignore[reportUnknownMemberType]
        self._input.cursor_blink = motion != "none"

    def action_move(self, action: str) -> None:
        getattr(self._list, f"action_{action}")()


class TextBox(Box[None]):
    """A text with keys that scroll and close it."""

    AUTO_FOCUS = "VerticalScroll"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,q,tab,enter", "dismiss", "Close")]

    @abstractmethod
    def parts(self) -> Iterator[Widget]: ...

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            yield Messages()
            yield from self.parts()
        box.border_title, box.border_subtitle = self.TITLE, "↑ ↓ scroll, Esc closes"
