"""A question with two answers, such as whether conversations are stored."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import OptionList, Static

from voxtui.ui.widgets.boxes import Box
from voxtui.ui.widgets.messages import Messages

KEEP = "Store the words of your conversations on this machine, so that you can go on with them?"
KEEP_YES = "Yes, in a file that only you can read"
KEEP_NO = "No, forget each when I quit"


class Question(Box[bool | None]):
    """Dismissed with True or False, or with None by Esc."""

    AUTO_FOCUS = "OptionList"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Later")]

    def __init__(self, question: str, yes: str, no: str) -> None:
        super().__init__()
        self._question = question
        self._answers = yes, no

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            yield Messages()
            yield Static(self._question, markup=False)
            yield OptionList(*self._answers, markup=False, compact=True)
        box.border_title = "History"
        box.border_subtitle = "Esc: later"

    def on_key(self, key: events.Key) -> None:
        """Close for somebody who writes, because Enter after words would be a yes."""
        if key.is_printable and key.key != "space":
            key.stop()
            self.dismiss(None)
            self.app.post_message(events.Key(key.key, key.character))  # pyright: ignore[reportUnknownMemberType]

    @on(OptionList.OptionSelected)
    def _answer(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(event.option_index == 0)
