"""The keys, from the same list as the footer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Grid, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static


class Help(ModalScreen[None]):
    """What each key does."""

    BINDINGS: ClassVar = [Binding("escape,question_mark,f1,q,enter", "dismiss", "Close")]

    def __init__(self, bindings: Iterable[Binding]) -> None:
        super().__init__()
        self._keys = [binding for binding in bindings if binding.tooltip]

    def compose(self) -> ComposeResult:
        does = [(binding.key_display or binding.key, binding.tooltip) for binding in self._keys]
        does.append(("mouse", "hold its button on the bar at the bottom to talk"))
        cells: list[Static] = []
        for key, what in does:
            cells += [Static(key, classes="key", markup=False), Static(what, markup=False)]
        box = VerticalScroll(Grid(*cells))
        box.border_title = "Keys"
        box.border_subtitle = "Esc closes"
        yield box
