import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from textual import events
from textual._context import active_app
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.notifications import Notification
from textual.pilot import Pilot

from tests.fakes import LONG_AGO, SECONDS, ScriptedEngine
from voxtui.settings.schema import Config
from voxtui.ui.app import VoxtuiApp

MARKS = {
    "released": 0.0,
    "captured": 0.012,
    "transcribed": 0.05,
    "prefilled": 0.06,
    "first_token": 0.084,
    "first_sentence": 0.14,
    "first_audio": 0.25,
    "first_sound": 0.512,
    "last_token": 1.234,
}

CLIPS = [("a question", Path("question.wav")), ("a joke", Path("joke.wav"))]


@pytest.fixture(autouse=True)
def collect_garbage_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn garbage collection off: it would look through what every other test left, too."""
    calls = ("collect", "freeze", "unfreeze", "set_threshold", "enable")
    still = SimpleNamespace(**dict.fromkeys(calls, lambda *_: 0))
    monkeypatch.setattr("voxtui.ui.driver.gc_tuning.gc", still)


@pytest.fixture(autouse=True)
def waits_for_work_and_not_for_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual takes an app for idle once its process has used no time for a while, which costs 20
    to 60 ms at each key and pause. Here it is idle as soon as nothing in it is left to do."""
    for user in ("app", "pilot"):
        monkeypatch.setattr(f"textual.{user}.wait_for_idle", nothing_left_to_do)


PARSED: dict[tuple[object, ...], list[RuleSet]] = {}
parse_rules = Stylesheet._parse_rules


@pytest.fixture(autouse=True)
def each_style_sheet_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share the parsed rules among the apps, because each would parse all of them twice."""

    def parse(sheet: Stylesheet, *css: object, **options: object) -> list[RuleSet]:
        key = (*css, *options.items(), *sheet._variables.items())
        if key not in PARSED:
            PARSED[key] = parse_rules(sheet, *css, **options)  # type: ignore[arg-type]
        return PARSED[key]

    monkeypatch.setattr(Stylesheet, "_parse_rules", parse)


@pytest.fixture(autouse=True)
def no_level_is_told_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show no level by the clock, because most tests compare those lines."""
    monkeypatch.setattr("voxtui.ui.app.LEVEL_SECONDS", 1e6)
    monkeypatch.setattr("voxtui.ui.status.LEVEL_CHECK_SECONDS", 1e6)


@pytest.fixture(autouse=True)
def pieces_of_an_answer_wait_for_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show each piece with the next round of the event loop, because most tests look for it."""
    monkeypatch.setattr("voxtui.ui.event_queue.pause_after", lambda seconds: 0.0)


@pytest.fixture(autouse=True)
def the_terminal_has_a_dark_ground_and_all_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Describe one terminal to all tests, because the theme depends on it."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    for name in ("COLORFGBG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


async def nothing_left_to_do(_: float = 0.0) -> None:
    """Paint, until two rounds through all widgets have found no message waiting for one of them."""
    app = active_app.get()
    pilot, quiet = Pilot(app), 0
    while quiet < 2:
        await pilot._wait_for_screen()
        if not app.is_running or app._exception is not None:
            return
        app.screen._on_timer_update()
        if app._resize_event is not None:  # a new size is taken up to a tick later
            quiet = 0
            await asyncio.sleep(0.002)
            continue
        widgets = app.screen.walk_children(with_self=True)
        quiet = 0 if any(pump.message_queue_size for pump in (app, *widgets)) else quiet + 1


class Screen:
    """The real app under a scripted engine, and a hand on its keyboard."""

    def __init__(self, app: VoxtuiApp, engine: ScriptedEngine, pilot: Pilot[None]) -> None:
        self.app, self.engine, self.pilot = app, engine, pilot
        self._clock = LONG_AGO

    async def settle(self) -> None:
        await self.pilot.pause()
        while self.app.turns.words_first:
            await self.pilot.pause(0.005)
        await self.pilot.pause()  # a new place of the bar is laid out before it is painted

    async def press(self, *keys: str, after: float = 2.0) -> float:
        """Press each key `after` seconds past the one before; the time of the last."""
        for key in keys:
            self._clock += after
            event = events.Key(key, " " if key == "space" else None)
            event.time = self._clock
            self.app.post_message(event)
            await self.settle()
        return self._clock

    async def type(self, text: str) -> None:
        for character in text:
            name = "space" if character == " " else character
            self.app.post_message(events.Key(name, character))
        await self.settle()

    async def send(self, text: str) -> None:
        await self.type(text)
        await self.press("enter")

    @property
    def lines(self) -> list[str]:
        """The lines of the screen, without the empty ones at its end."""
        lines = [strip.text for strip in self.app.screen._compositor.render_strips()]
        while lines and not lines[-1].strip():
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        """What the screen shows, with the toasts, which the tests do not draw."""
        return "\n".join([*self.lines, *self.toasts])

    def line(self, containing: str) -> str:
        return next(line for line in self.lines if containing in line)

    @property
    def notifications(self) -> list[Notification]:
        return [*iter(self.app._notifications)]

    @property
    def toasts(self) -> list[str]:
        return [notification.message for notification in self.notifications]

    @property
    def commands(self) -> list[str]:
        """The commands to the engine, without start and close."""
        return [str(call[0]) for call in self.engine.calls if call[0] not in ("start", "close")]


async def until(shown: Screen, true: Callable[[], object]) -> None:
    """Wait until `true` returns true."""
    async with asyncio.timeout(SECONDS):
        while not true():
            await shown.pilot.pause(0.005)


@asynccontextmanager
async def screen(
    size: tuple[int, int] = (80, 24),
    *,
    loaded: bool = True,
    microphone: str | None = "a microphone",
    config: Config | None = None,
    open_clip=lambda path: lambda listener, stopped: None,
    clips=CLIPS,
    factories=None,
    attachments=(),
    words="",
) -> AsyncIterator[Screen]:
    app = VoxtuiApp(ScriptedEngine, config or Config(), clips, factories)
    app.attachments, app.words = attachments, words
    engine = app.session.engine
    assert isinstance(engine, ScriptedEngine)
    opened = patch("voxtui.session.clip_player.open_clip", lambda path, most: open_clip(path))
    with opened:
        async with app.run_test(size=size) as pilot:
            shown = Screen(app, engine, pilot)
            await shown.settle()
            if loaded:
                engine.load(microphone)
                await shown.settle()
            yield shown
