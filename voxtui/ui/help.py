"""The keys, from the same list as the footer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static


class Help(ModalScreen[None]):
    """What each key does."""

    BINDINGS: ClassVar = [Binding("escape,question_mark,f1,q,enter", "dismiss", "Close")]

    def __init__(self, bindings: Iterable[Binding]) -> None:
        super().__init__()
        self._keys = [binding for binding in bindings if binding.tooltip]

    def compose(self) -> ComposeResult:
        width = max(len(binding.key_display or binding.key) for binding in self._keys)
        lines = [
            Content.assemble(
                (f"{binding.key_display or binding.key:>{width}}", "bold $text-accent"),
                f"  {binding.tooltip}",
            )
            for binding in self._keys
        ]
        box = VerticalScroll(Static(Content("\n").join(lines)))
        box.border_title = "Keys"
        box.border_subtitle = "Esc closes"
        yield box
