"""The help screen: the keys of the footer, and the terms of the panel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from textual.binding import Binding
from textual.containers import Grid
from textual.widget import Widget
from textual.widgets import Static

from voxtui.slash_commands import COMMANDS
from voxtui.ui.widgets.boxes import TextBox

PANEL: Sequence[tuple[str, str]] = (
    ("TTFT", "first word: time to the first token, a piece of a word"),
    ("First sound", "until the speaker takes it, a little before you hear it"),
    ("Total", "full answer: until it is written to its end"),
    ("✓ ✗", "within its target or over it; a typed turn may take longer, as less is ready"),
    ("p50 p95", "half, and 95 %, of the last 20 turns were as fast or faster"),
    ("cold", "the first turn after loading; the others are warm"),
    ("last word", "the same times, from when you stopped speaking"),
    ("session", "all turns since the start, oldest first"),
    ("ahead", "speech that is made and waits to be heard"),
    ("too late", "silence in the answer, as the voice fell behind"),
    ("hidden", "work done while you still spoke"),
    ("hearing", "listen, send, encode and recognise"),
    ("thinking", "skill, prefill, token and clause: until there is enough to say"),
    ("listen", "waiting for the end of your last word"),
    ("send", "sending it to the server"),
    ("encode", "your voice made readable for the model"),
    ("recognise", "your words, from the sound"),
    ("skill", "an answer without a model: clock, timers, sums"),
    ("prefill", "the model reads them"),
    ("call", "it asks for a tool"),
    ("key", "waiting for your key"),
    ("tool", "the tool does its work"),
    ("result", "the model reads what came of it"),
    ("token", "it begins to answer"),
    ("clause", "it goes on until there is enough to say"),
    ("language", "in which language that is"),
    ("voice", "that is made into speech; in the line and the summary until it sounds"),
    ("device", "the speaker takes it, and it sounds"),
    ("writing", "the text of the answer, while it is spoken already"),
    ("speaking", "from the first sound to the last"),
)


class Help(TextBox):
    TITLE = "Keys"

    def __init__(self, bindings: Iterable[Binding]) -> None:
        super().__init__()
        bindings = list(bindings)
        self._keys = [binding for binding in bindings if binding.tooltip]
        actions = {binding.action.removeprefix("app.") for binding in bindings}
        self._commands = [command for command in COMMANDS if command.name not in actions]

    def parts(self) -> Iterator[Widget]:
        does = [(binding.key_display or binding.key, binding.tooltip) for binding in self._keys]
        does += [
            *((command.usage, command.about) for command in self._commands),
            ("mouse", "hold its button on the talk bar to talk; a click selects a turn"),
            ("PgUp PgDn End", "scroll back, and to the newest again"),
            ("↑ ↓ Tab", "in the text field: earlier texts; complete a command"),
            ("Ctrl+Z", "suspend; `fg` in the shell comes back"),
        ]
        yield _table(does)
        yield Static("The panel, in ms after you let go", classes="title")
        yield _table(PANEL)


def _table(rows: Iterable[tuple[str, str]]) -> Grid:
    cells: list[Static] = []
    for name, what in rows:
        cells += [Static(name, classes="key", markup=False), Static(what, markup=False)]
    return Grid(*cells)
