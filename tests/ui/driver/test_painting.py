"""What is painted at once, past Textual's compositor, is what it would have painted."""

from __future__ import annotations

import asyncio
import re
from itertools import pairwise
from typing import Any

import pyte
import pytest
from textual._compositor import Compositor, CompositorUpdate
from textual.app import App

from tests.deadline import SECONDS
from tests.ui.conftest import Screen
from tests.ui.states import make_app
from voxtui.dialogue.events import ReplyText, State, StateChanged, UserWords

COLUMNS, ROWS = 50, 11
LONG = "It is long, and it goes on and on " * 8
"""Fills the screen, so that each further line scrolls it."""


class Terminal:
    """A terminal that shows what an app without one would have written."""

    def __init__(self) -> None:
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.Stream(self._screen)
        self.written: list[str] = []

    @property
    def cells(self) -> list[list[object]]:
        return [[self._screen.buffer[y][x] for x in range(COLUMNS)] for y in range(ROWS)]

    @property
    def text(self) -> str:
        return "\n".join(self._screen.display)

    def show(self, app: App[None], _: object, update: object) -> None:
        if isinstance(update, CompositorUpdate):
            self.written.append(update.render_segments(app.console))
            self._stream.feed(self.written[-1])
        app.post_display_hook()


@pytest.mark.parametrize("message", ["", "It lies over the conversation."])
async def test_a_growing_answer_looks_as_if_all_were_painted_again(
    monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    terminal, app = Terminal(), make_app()
    monkeypatch.setattr(App, "_display", lambda *update: terminal.show(*update))
    async with app.run_test(size=(COLUMNS, ROWS), notifications=True) as pilot:
        engine = app.session.engine
        s = Screen(app, engine, pilot)
        engine.load()
        await s.settle()
        if message:
            app.notify(message)
        engine.begin()
        engine.report(StateChanged(State.THINKING), UserWords(1, "Tell me something long."))
        await s.settle()
        for piece in (LONG, "and a ", "line", " that is too long for one\nan", "other"):
            engine.report(ReplyText(1, piece))
            await s.settle()
        terminal.written.clear()
        engine.report(ReplyText(1, " end."))
        await s.settle()
        moves = [len(re.findall(r"\x1b\[\d+;\d+H", update)) for update in terminal.written]
        assert "another end." in terminal.text
        assert message in terminal.text
        assert message or moves == [1]
        painted = terminal.cells
        app.refresh()
        await s.settle()
        assert terminal.cells == painted


async def test_changed_widgets_are_painted_one_by_one_and_as_if_all_were_painted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal, app, order = Terminal(), make_app(), list[str]()

    def show(*update: Any) -> None:
        order.append("painted")
        asyncio.get_running_loop().call_soon(order.append, "looked at what waits")
        terminal.show(*update)

    monkeypatch.setattr(App, "_display", show)
    async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
        s = Screen(app, app.session.engine, pilot)
        s.engine.load()
        app.transcript.add_line("!", "Before.")
        await s.settle()
        order.clear()
        with monkeypatch.context() as only_alone:
            only_alone.setattr(Compositor, "render_update", None)
            app.bar.hint("Another hint")
            app.bar.meter.show(0.7)
            app.bar.show_state(State.SPEAKING)
            app.transcript.add_line("!", "A line.")
            async with asyncio.timeout(SECONDS):
                while order.count("painted") < 4:
                    await asyncio.sleep(0)
        assert ("painted", "painted") not in pairwise(order)
        assert all(words in terminal.text for words in ("SPEAKING", "Another", "A line."))
        painted = terminal.cells
        monkeypatch.setattr(App, "_display", lambda *update: terminal.show(*update))
        app.refresh()
        await s.settle()
        assert terminal.cells == painted


async def test_the_scroll_bar_is_painted_only_if_it_looks_different(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal, app, moved = Terminal(), make_app(), list[float]()
    monkeypatch.setattr(App, "_display", lambda *update: terminal.show(*update))
    async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
        s = Screen(app, app.session.engine, pilot)
        s.engine.load()
        for _ in range(30):
            app.transcript.add_line("!", "A line.")
        await s.settle()
        bar = app.transcript.vertical_scrollbar
        with monkeypatch.context() as counted:
            refresh = bar.refresh
            counted.setattr(bar, "refresh", lambda: moved.append(bar.position) or refresh())
            for _ in range(20):
                app.transcript.add_line("!", "A line.")
        assert 0 < len(moved) < 20
        await s.settle()
        painted = terminal.cells
        app.refresh()
        await s.settle()
        assert terminal.cells == painted
