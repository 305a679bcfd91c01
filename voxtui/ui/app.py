"""The screen: shows the engine's events, and turns keys into commands of the session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from textual import events
from textual.app import App, ComposeResult
from textual.binding import BindingsMap
from textual.containers import Vertical
from textual.geometry import Size

from voxtui.dialogue.engine_commands import Attach, Silence
from voxtui.dialogue.events import Died, State
from voxtui.dialogue.history.attachments import Attachment
from voxtui.dialogue.protocols import Past
from voxtui.dialogue.timestamps import Milestone
from voxtui.errors import InputError
from voxtui.session.local_session import Factories, LocalSession
from voxtui.session.user_session import MakeEngine, NotAllowed, UserSessionEvent
from voxtui.settings.schema import Config
from voxtui.storage.conversation_writer import StoredConversation
from voxtui.ui.conversation.markdown import rendered
from voxtui.ui.conversation.transcript import Transcript
from voxtui.ui.conversation.turn_views import TurnViews
from voxtui.ui.driver import gc_tuning
from voxtui.ui.driver.keyboard import Key, KeyboardAnswer, KeyUp
from voxtui.ui.driver.terminal_app import TerminalApp
from voxtui.ui.driver.termination import EXIT_CODE, exit_on_signals
from voxtui.ui.event_display import EventDisplay
from voxtui.ui.event_queue import EventQueue
from voxtui.ui.footer import Footer
from voxtui.ui.keys import bindings, key_display, shown
from voxtui.ui.main_screen import MainScreen
from voxtui.ui.menu.menu import SETTINGS, Menu, in_thread
from voxtui.ui.menu.palette import Entry, Palette
from voxtui.ui.panel.panel import SIZES, LatencyPanel, size_for
from voxtui.ui.status import LEVEL_SECONDS, Status
from voxtui.ui.talk.pasted import FIELD_CHARACTERS, joined_lines
from voxtui.ui.talk.talk import PushToTalk
from voxtui.ui.talk.talkbar import TalkBar
from voxtui.ui.talk_screen import ATTACHED
from voxtui.ui.themes import theme_named
from voxtui.ui.widgets.messages import Messages
from voxtui.ui.widgets.timers import SNOOZE_KEY, Timers

TICK_SECONDS = 1 / 20


class VoxtuiApp(TerminalApp, inherit_bindings=False):
    """Talk, listen, and see how long it took."""

    TITLE = "voxtui"
    CSS_PATH = Path(__file__).with_name("voxtui.tcss")
    AUTO_FOCUS = "Transcript"
    # Textual declares these two as instance variables.
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (60, "-compact"), (110, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (16, "-medium"), (30, "-tall"), (38, "-high")]  # noqa: RUF012

    def __init__(
        self,
        make_engine: MakeEngine,
        config: Config,
        clips: Sequence[tuple[str, Path]] = (),
        factories: Factories | None = None,
    ) -> None:
        # Before anything is styled, because a change would style everything once more.
        self.set_reactive(App.theme, theme_named(config.ui.theme))
        # Without `ansi_color`, Textual writes greys where NO_COLOR forbids all colours.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self._events = EventQueue(
            lambda: self.call_later(self._take_events),
            lambda seconds, call: asyncio.get_running_loop().call_later(seconds, call),
        )
        self.session = LocalSession(make_engine, self._events.put, config, clips, factories)
        self.transcript = Transcript()
        more = f"{key_display(config.ui.keys.panel)} targets"
        self.panel = LatencyPanel(config.targets.resolved(config.brain.name), more)
        self.messages = Messages()
        self.timers = Timers()
        self.bar = TalkBar()
        self.talk = PushToTalk(self.session, self.bar)
        self.turns = TurnViews(self.transcript, self.panel)
        self.status = Status(self.session, self.talk, self.turns)
        self.keys = bindings(config.ui)
        self._bindings = BindingsMap(key for key in self.keys if key.action.startswith("app."))
        self.main = MainScreen(self.keys, self.session, self.talk, self.turns, self.status)
        self.menu = Menu(self, self.session)
        self.continues = False
        self.attachments: Sequence[Attachment] = ()
        self.words = ""
        """the user's first words, sent at the start; may be empty"""
        self.lending: AbstractContextManager[None] = nullcontext()
        """a context that lends the recogniser to other programs, entered after the first frame"""
        self._open = ExitStack()
        self.event_display = EventDisplay(self.main, self.menu, self.timers)

    def get_default_screen(self) -> MainScreen:
        return self.main

    def compose(self) -> ComposeResult:
        # What depends on the terminal is set first, because a change styles all widgets again.
        self._fit_panel(self.size)
        for breakpoints, length in (
            (self.HORIZONTAL_BREAKPOINTS or (), self.size.width),
            (self.VERTICAL_BREAKPOINTS or (), self.size.height),
        ):
            # The class that Textual gives the screen once its widgets are mounted.
            self.main.add_class(max(one for one in breakpoints if one[0] <= length)[1])
        yield self.status.top
        yield self.status.banner
        with self.main.area:
            with Vertical(id="talk"):
                yield self.transcript
                yield self.status.samples
                yield self.messages
            yield self.panel
        yield self.panel.strip
        yield self.timers
        yield self.bar
        yield Footer()

    def on_mount(self) -> None:
        ui = self.session.config.ui
        if not ui.motion:
            self.animation_level = "none"
            self.bar.field.cursor_blink = False
        self._fast = self.set_interval(TICK_SECONDS, self.tick)
        self.status.show_mode()
        self._keep_pace()
        self.main.show_state()
        if not self.is_headless:  # a test run keeps the signals of its process
            exit_on_signals(partial(self.exit, return_code=EXIT_CODE))
        self.paint_after_suspend()
        self.set_interval(LEVEL_SECONDS, self._tick_level)
        self.call_after_refresh(self._start)

    async def _start(self) -> None:
        gc_tuning.resume()
        self._open.enter_context(self.lending)
        past, stored = await self._continued() if self.continues else ((), None)
        for text in self.attachments:
            self.session.post(Attach(text))
            if self.words:  # else the welcome stays
                length = len(text.text.splitlines())
                self.transcript.add_line(ATTACHED, f"{text.name}: {length:,} lines")
        self.session.start(past, stored)
        if self.words:
            await self.main.send(self.words, None)
        # Imports its library, which takes a third of a second, while the models load.
        Thread(target=rendered, args=("",), name="voxtui-markdown", daemon=True).start()

    async def _continued(self) -> tuple[Past, StoredConversation | None]:
        try:
            past, stored = await in_thread(self.session.conversation.read)
        except InputError as error:
            self.status.show_problem(str(error))
        except NotAllowed as nothing:
            if self.session.config.session.keep is None:
                self.main.ask_to_store(lambda: None)
            else:
                self.notify(str(nothing))
        else:
            self.main.show_past(past)
            return past, stored
        return (), None

    def on_unmount(self) -> None:
        self._open.close()
        self.session.clips.stop()
        gc_tuning.restore()

    def on_resize(self, event: events.Resize) -> None:
        self._fit_panel(event.size)

    def _fit_panel(self, terminal: Size) -> None:
        size = size_for(self.session.config.ui.panel, terminal)
        if size != self.panel.chosen or not self.panel.is_mounted:
            self.panel.show_as(size)
            self.main.set_class(size != "line", "-panel")

    # Events.

    def _take_events(self) -> None:
        for event in self._events.take():
            self.take_event(event)
        self._keep_pace()

    def take_event(self, event: UserSessionEvent) -> None:
        if self._is_taken_down and not isinstance(event, Died):
            return
        self.session.take(event)
        self.talk.follow()
        self.event_display.show(event)

    @property
    def _is_taken_down(self) -> bool:
        """True after teardown. Events that still arrive must be ignored."""
        return not self.transcript.is_attached

    def post_display_hook(self) -> None:
        """Write FIRST_SHOWN once the output thread has written this frame."""
        if (timestamps := self.turns.painted()) is None:
            return

        def first_shown(at: float) -> None:
            timestamps.record(Milestone.FIRST_SHOWN, at)
            self.call_later(self.turns.first_shown, timestamps)

        self.when_written(first_shown)

    def tick(self) -> None:
        """Show values that change without events: level, milestones, seconds of speech."""
        if self.turns.words_first or self._is_taken_down:
            return
        self.status.hear(self.session.engine.level)
        listening = self.session.state is State.LISTENING
        if listening:
            self.status.show_hint()
        self.status.follow_sound()
        self.turns.tick(listening)

    def _tick_level(self) -> None:
        self.tick()  # while nobody speaks, nothing else does
        self.status.show_level()

    def _keep_pace(self) -> None:
        if self.session.state is State.READY:
            self._fast.pause()
        else:
            self._fast.resume()

    # Keys.

    async def on_event(self, event: events.Event) -> None:
        """Handle keys and pastes here, in order, because the queue of a widget would be late."""
        match event:
            case events.Key(is_forwarded=False):
                if await self._take_key(event):
                    return
            case events.Paste(is_forwarded=False):
                if len(self.screen_stack) == 1:
                    self.main.take_paste(event)
                    return
                event.text = joined_lines(event.text[:FIELD_CHARACTERS])
            case _:
                pass
        await super().on_event(event)

    async def _take_key(self, key: events.Key) -> bool:
        """Talk, silence a timer, or write. Return False if Textual should look for a binding."""
        here = len(self.screen_stack) == 1
        if here and self.main.talks(key):
            self.session.post(Silence())  # without a microphone, no turn would do so
            self.main.give_pasted()
            self.talk.press(key.time, isinstance(key, Key) and key.repeated)
            return True
        snooze = key.key.lower() == SNOOZE_KEY and self.timers.rings
        if self.session.post(Silence(snooze)) and not key.key.startswith("ctrl+"):
            return True
        return here and await self.main.take_key(key)

    def action_dismiss_timers(self) -> None:
        """Stop timers and reminders that ring, and remove missed ones."""
        self.session.post(Silence(missed=True))

    def on_key_up(self, key: KeyUp) -> None:
        if key.key == self.session.config.ui.talk_key:
            self.talk.key_up(key.time)

    def on_app_blur(self, event: events.AppBlur) -> None:
        self.talk.let_go(event.time)

    def on_keyboard_answer(self, answer: KeyboardAnswer) -> None:
        self.talk.use_keyboard(answer.releases, answer.time)
        self.status.show_mode()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "help" | "command_palette":
                return len(self.screen_stack) == 1
            case _:
                return True

    # Actions.

    def action_help_quit(self) -> None:
        self.notify(f"{shown(self.session.config.ui.keys.quit)} quits voxtui.")

    def action_look(self) -> None:
        self.menu.rescan()

    def action_choose(self, section: str) -> None:
        self.menu.open(self.commands(), section)

    def commands(self) -> Iterable[Entry]:
        shortcuts = {key.action: key.key_display or "" for key in self.keys}
        keys = Entry(SETTINGS, "Keys", "what each key does", action="app.help")
        for entry in (*self.main.commands(), keys):
            shortcut = shortcuts.get(entry.action.removeprefix("screen."), "")
            yield replace(entry, shortcut=shortcut)

    def on_menu_chosen(self, chosen: Menu.Chosen) -> None:
        if chosen.entry.key == "ui.theme":
            self.theme = theme_named(chosen.entry.value)
        else:
            self._fit_panel(self.size)

    def on_palette_previewed(self, previewed: Palette.Previewed) -> None:
        entry = previewed.entry
        self.theme = theme_named(entry.value if entry else self.session.config.ui.theme)

    def on_menu_restarted(self) -> None:
        self.main.begin_again()

    def action_command_palette(self) -> None:
        self.menu.open(self.commands())

    def action_panel(self) -> None:
        sizes = [size for size in SIZES if size_for(size, self.size) == size]
        if len(sizes) == 1:
            self.notify("This terminal has room for the line only.")
            return
        size = sizes[(sizes.index(self.panel.chosen) + 1) % len(sizes)]
        self.session.choose("ui.panel", size)
        self._fit_panel(self.size)

    def action_help(self) -> None:
        from voxtui.ui.help import Help

        self.push_screen(Help(self.keys))

    def action_suspend_process(self) -> None:
        if os.getsid(0) == os.getpgrp():
            self.notify("Not suspended: there is no shell here that could bring it back.")
            return
        self.talk.let_go()
        super().action_suspend_process()

    def exit(self, *arguments: Any, **options: Any) -> None:
        """Leave the screen. The engine closes meanwhile, because each takes a third of a second."""
        self.session.clips.stop()
        self.session.begin_closing()
        super().exit(*arguments, **options)
