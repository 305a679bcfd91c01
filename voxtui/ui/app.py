"""The screen: shows the engine's events, and turns keys into commands of the controls."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import BindingsMap
from textual.containers import Horizontal, Vertical
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size
from textual.message import Message
from textual.widgets import Input

from voxtui.commands.text import clipboard_text
from voxtui.controls import (
    ClipEnded,
    ControlEvent,
    LocalControls,
    MakeEngine,
    OpenClip,
    PartMakers,
    Refused,
    Severity,
)
from voxtui.dialogue.events import (
    Caption,
    Captured,
    ChangeFailed,
    CountdownsChanged,
    Died,
    Loaded,
    LoadFailed,
    Loading,
    MicrophoneLost,
    MicrophoneOpened,
    Notice,
    Rang,
    Reading,
    Remark,
    ReplyText,
    SpokenUpTo,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.given import GivenText
from voxtui.dialogue.marks import Mark, Marks, Outcome, Turn
from voxtui.errors import InputError, ModelMissing, VoxtuiError, strip_control_characters
from voxtui.models.cuda import is_likely
from voxtui.records.metrics import DeviceOffset
from voxtui.settings.schema import Config
from voxtui.slash_commands import number, parse
from voxtui.ui.conversation.markdown import rendered
from voxtui.ui.conversation.transcript import Transcript
from voxtui.ui.event_queue import EventQueue
from voxtui.ui.footer import Footer
from voxtui.ui.help import Help
from voxtui.ui.keys import bindings, shown
from voxtui.ui.menu import CONVERSATION, MICROPHONE, SETTINGS, Menu
from voxtui.ui.palette import Entry
from voxtui.ui.panel.panel import SIZES, LatencyPanel, size_for
from voxtui.ui.startup import Samples
from voxtui.ui.status import LEVEL_SECONDS, Status
from voxtui.ui.talk import Talk
from voxtui.ui.talkbar import TalkBar
from voxtui.ui.terminal import gc_tuning
from voxtui.ui.terminal.keyboard import Key, KeyboardAnswer, KeyboardDriver, KeyUp
from voxtui.ui.terminal.notification import notification
from voxtui.ui.terminal.termination import EXIT_CODE, exit_on_signals
from voxtui.ui.themes import AUTO, THEMES, legible, theme_of_terminal
from voxtui.ui.timers import Timers
from voxtui.ui.turns import Turns

TICK_SECONDS = 1 / 20

ENTER = ("enter", "ctrl+j")
"""Carriage return, and the line feed of a program that types."""


class EventsWaiting(Message):
    """Asks the screen to take the events that wait in its queue."""


class Shown(Message):
    """The first word of a reply has been painted, as its marks say."""

    def __init__(self, marks: Marks) -> None:
        super().__init__()
        self.marks = marks


class VoxtuiApp(App[None], inherit_bindings=False):
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
        open_clip: OpenClip | None = None,
        parts: PartMakers | None = None,
        device_offset: DeviceOffset = lambda speaker: None,
        given: Sequence[GivenText] = (),
    ) -> None:
        """`given`: texts to talk about."""
        # Without this, Textual writes greys where NO_COLOR forbids all colours.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        for theme in THEMES:
            self.register_theme(theme)
        self._events = EventQueue(lambda: self.post_message(EventsWaiting()))
        self.controls = LocalControls(
            make_engine, self._events.put, config, clips, open_clip, parts
        )
        self.transcript = Transcript()
        self.panel = LatencyPanel(config.targets.resolved(config.brain.name))
        self.timers = Timers()
        self.bar = TalkBar()
        self.talk = Talk(self.controls, self.bar, self._talk_changed, self.refuse)
        self.turns = Turns(self.transcript, self.panel, self._show_state)
        self.status = Status(
            self.controls,
            self.transcript,
            self.bar,
            lambda: self.talk.mode,
            lambda: self.turns.spoken_seconds,
            self.tell,
            lambda: self.menu.rescan(),
            lambda: self.menu.open(MICROPHONE),
        )
        self.menu = Menu(
            self,
            self.controls,
            self.tell,
            self._begin_again,
            self.apply,
            self._commands,
            self.refuse,
        )
        self.device_offset = device_offset
        self._explained = False
        """a notice gave the reason why nothing was heard in this turn"""
        self._given = given
        self._frozen = False
        """`gc_tuning.freeze` was called, which must happen once"""
        self.keys = bindings(config.ui)
        self._bindings = BindingsMap(self.keys)
        self._offered: tuple[object, ...] = ()
        """what the keys do now, as the footer shows it"""

    def get_driver_class(self) -> type[Driver]:
        driver = super().get_driver_class()
        return KeyboardDriver if driver is LinuxDriver else driver

    def get_css_variables(self) -> dict[str, str]:
        self.theme_variables = legible(super().get_css_variables())
        return self.theme_variables

    def use_theme(self, name: str) -> None:
        """Show the theme of this name; `auto`: the one that suits the terminal."""
        self.theme = theme_of_terminal(self.console.color_system) if name == AUTO else name

    def compose(self) -> ComposeResult:
        yield self.status.top
        yield self.status.banner
        with Horizontal(id="main"):
            with Vertical(id="talk"):
                yield self.transcript
                yield self.status.samples
            yield self.panel
        yield self.panel.line
        yield self.timers
        yield self.bar
        yield Footer()

    def on_mount(self) -> None:
        ui = self.controls.config.ui
        known = ui.theme in (AUTO, *self.available_themes)
        self.use_theme(ui.theme if known else AUTO)
        if not known:
            self.status.show_problem(f"There is no theme {ui.theme!r} (ui.theme).")
        if not ui.motion:
            self.animation_level = "none"
            self.bar.field.cursor_blink = False
        self.status.show_mode()
        self._show_state()
        if not self.is_headless:  # a test run keeps the signals of its process
            exit_on_signals(partial(self.exit, return_code=EXIT_CODE))
        # After a suspend the terminal is empty, and Textual paints only what has changed.
        self.app_resume_signal.subscribe(self, self._paint_all)  # pyright: ignore[reportUnknownMemberType]
        self.set_interval(TICK_SECONDS, self.tick)
        self.set_interval(LEVEL_SECONDS, self.status.show_level)
        self.call_after_refresh(self._start)

    def _start(self) -> None:
        self.controls.start()
        for text in self._given:
            self.controls.give(text)

    def on_unmount(self) -> None:
        self.controls.clips.stop()
        gc_tuning.restore()

    def _paint_all(self, _: object) -> None:
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        self._fit_panel(event.size)

    def _fit_panel(self, terminal: Size) -> None:
        size = size_for(self.controls.config.ui.panel, terminal)
        if size != self.panel.chosen:
            self.panel.show_as(size)

    # Events.

    def on_events_waiting(self) -> None:
        for event in self._events.take():
            self.take_event(event)

    def take_event(self, event: ControlEvent) -> None:
        """Follow what the engine reports, and show it."""
        if self._is_taken_down and not isinstance(event, Died):
            return
        self.controls.take(event)
        self.talk.follow()
        self._show(event)

    def _show(self, event: ControlEvent) -> None:
        match event:
            case StateChanged(State.THINKING):
                self.turns.expect_reply()
            case StateChanged():
                self.turns.paint_rest()
            case Loading(step, fraction):
                self.status.show_loading(step, fraction)
            case Loaded():
                self._show_loaded(event)
            case LoadFailed(error):
                self._show_failed(error)
            case ChangeFailed():
                self.menu.take(event)
            case MicrophoneOpened(name):
                self.status.use_microphone(name)
            case MicrophoneLost():
                self.status.use_microphone(None)
            case TurnStarted():
                self._explained = False
                self.status.begin_turn()
                self.turns.begin(event)
            case Caption(turn, text, settled):
                if self.turns.caption(turn, text):
                    if self.bar.typing and self.bar.field.empty:  # as after /clip
                        self._leave_field()
                    self.bar.caption(text, settled)
            case Captured(turn, utterance):
                self.turns.show_utterance(turn, utterance)
            case UserWords(turn, text, doubtful):
                self.turns.show_words(turn, text, doubtful)
            case ReplyText(turn, text):
                self.turns.show_reply(turn, text)
            case Reading():
                self.status.show_reading(event)
            case SpokenUpTo(turn, text):
                self.turns.cut(turn, text)
            case Notice(text, "error"):
                self.status.show_problem(text)
            case Notice(text, severity):
                self._explained = True
                self.tell(text, severity)
            case Remark(sentence):
                self.transcript.add_line("!", sentence)
            case CountdownsChanged(countdowns):
                self.timers.use(countdowns)
            case Rang(sentence):
                self._show_rang(sentence)
            case ClipEnded(_, error):
                if error:
                    self.tell(error, "error")
            case TurnFinished(turn):
                self._finish_turn(turn)
            case Died(error):
                raise error

    def _show_rang(self, sentence: str) -> None:
        """Show a timer or reminder that is due, and have the terminal notify."""
        self.transcript.add_line("◔", sentence)
        if self._driver is not None and not self.is_headless:
            self._driver.write(notification("voxtui", sentence, os.environ))

    @property
    def _is_taken_down(self) -> bool:
        """True after teardown. Queued events may still arrive and must be ignored."""
        return not self.transcript.is_attached

    def _show_loaded(self, loaded: Loaded) -> None:
        self.clear_notifications()  # "still loading" is no longer true
        self.status.show_loaded(loaded)
        self.menu.take(loaded)
        self.panel.judge_by(self.controls.config.targets.resolved(loaded.brain_name))
        self.panel.devices_add(self.device_offset(loaded.speaker))
        if self.controls.models_are_new:
            self.panel.models_loaded()
        if not self._frozen:
            self._frozen = True
            rendered("")  # imports its library now and not behind the first reply
            gc_tuning.freeze()

    def _show_failed(self, error: VoxtuiError) -> None:
        fetch = isinstance(error, ModelMissing)
        self.status.show_failed(error, self.action_fetch if fetch else self.action_again)

    def _finish_turn(self, turn: Turn) -> None:
        if turn.outcome is Outcome.NO_SPEECH and not self._explained:
            self.tell("Nothing was heard.")
        elif turn.outcome is Outcome.FAILED:
            self.status.show_problem(turn.error or "The turn failed.")
        if self.turns.finish(turn):
            self.call_after_refresh(gc_tuning.collect, self.turns.over)

    def post_display_hook(self) -> None:
        """Write the time of the first word once the output thread has written this frame."""
        if (marks := self.turns.painted()) is None:
            return
        self.when_written(partial(self._first_shown, marks))
        if isinstance(self._driver, KeyboardDriver):
            self._driver.wait_written()

    def when_written(self, notify: Callable[[float], object]) -> None:
        """Call `notify` with the time at which every painted frame was written to the terminal.

        It is called on any thread.
        """
        if isinstance(self._driver, KeyboardDriver):
            self._driver.when_written(notify)
        else:
            notify(time.monotonic())

    def _first_shown(self, marks: Marks, at: float) -> None:
        marks.mark(Mark.FIRST_SHOWN, at)
        self.post_message(Shown(marks))

    def on_shown(self, shown: Shown) -> None:
        self.turns.first_shown(shown.marks)

    def tick(self) -> None:
        """Show values that change without events: the level, the marks, the seconds of speech."""
        if self.turns.words_first or self._is_taken_down:
            return
        self.status.hear(self.controls.engine.level)
        self.timers.tick()
        listening = self.controls.state is State.LISTENING
        if listening:
            self.status.show_hint()
        self.turns.tick(listening)

    def _show_state(self) -> None:
        self.status.show_state()
        self._offer_keys()

    def _offer_keys(self) -> None:
        """Make the footer show what the keys do now."""
        offered = (self._escape, self._talk_key_talks, self.bar.field.empty)
        if offered != self._offered:
            self._offered = offered
            self.refresh_bindings()

    # Keys.

    async def on_event(self, event: events.Event) -> None:
        """Obey keys and pastes here, in order. The queue of a widget would be late."""
        here = len(self.screen_stack) == 1
        match event:
            case events.Key(is_forwarded=False) if here and self._talks(event):
                self.talk.press(event.time, isinstance(event, Key) and event.repeated)
                return
            case events.Key(is_forwarded=False) if self._silences(event):
                return
            case events.Key(is_forwarded=False) if here and await self._take_key(event):
                return
            case events.Paste(is_forwarded=False):
                event.text = strip_control_characters(" ".join(event.text.splitlines()))
                if here:
                    self.bar.write(event.text)
                    return
            case _:
                pass
        await super().on_event(event)

    def _talks(self, key: events.Key) -> bool:
        return key.key == self.controls.config.ui.talk_key and self._talk_key_talks

    @property
    def _talk_key_talks(self) -> bool:
        """False while the talk key is a space in a text. It always ends a talk."""
        types = self.controls.config.ui.talk_key == "space" and not self.bar.field.empty
        return not types or self.controls.talking is not None

    def _silences(self, key: events.Key) -> bool:
        """End the sentence of a timer. Return True if the key has done that and nothing else."""
        return self.controls.silence() and not key.key.startswith("ctrl+")

    async def _take_key(self, key: events.Key) -> bool:
        """Write, send or edit. Return False if `key` does none of it."""
        if key.character is not None and key.is_printable:
            self.bar.write(key.character)
        elif key.key in ENTER and self.bar.typing:
            corrected = self.bar.corrected
            await self._send(self.bar.take(), corrected)
        else:
            bound = key.key in self._bindings.key_to_bindings
            return not bound and await self.bar.edit(key)
        return True

    def on_key_up(self, key: KeyUp) -> None:
        if key.key == self.controls.config.ui.talk_key:
            self.talk.key_up(key.time)

    def on_app_blur(self, event: events.AppBlur) -> None:
        self.talk.let_go(event.time)

    def on_keyboard_answer(self, answer: KeyboardAnswer) -> None:
        self.talk.use_keyboard(answer.releases, answer.time)
        self.status.show_mode()

    @on(TalkBar.Held)
    def _mouse_down(self, event: TalkBar.Held) -> None:
        self.talk.mouse_down(event.time)

    @on(TalkBar.LetGo)
    def _mouse_up(self, event: TalkBar.LetGo) -> None:
        self.talk.mouse_up(event.time)

    def _talk_changed(self) -> None:
        self.status.show_mode()
        if self.controls.talking is not None and self.bar.typing and self.bar.field.empty:
            self._leave_field()
        self._offer_keys()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the present actions of the keys; none of the commands below another screen."""
        match action:
            case "talk":
                return self._talk_key_talks
            case "type":
                return self.bar.field.empty
            case "escape":
                return self._escape in parameters
            case "new" | "mute" | "again" | "edit" | "copy" | "save" | "help" | "command_palette":
                return len(self.screen_stack) == 1
            case _:
                return True

    @property
    def _escape(self) -> str:
        """The present action of Esc, a key of ESCAPE; empty: none."""
        if len(self.screen_stack) > 1:
            return ""
        if self.controls.can_stop:
            return "drop" if self.controls.state is State.LISTENING else "stop"
        if self.bar.typing:
            return "leave"
        return "live" if self.turns.selected is not None else ""

    def tell(self, text: str, severity: Severity = "information") -> None:
        """Show a sentence that needs no answer. The same one is not shown twice."""
        if text not in (shown.message for shown in self._notifications):
            self.notify(text, severity=severity, markup=False)

    def refuse(self, refused: Refused) -> None:
        """Show the sentence of `refused`."""
        self.tell(str(refused), refused.severity)

    def _do(self, act: Callable[[], object]) -> None:
        """Call `act`; show the sentence if it is refused."""
        try:
            act()
        except Refused as refused:
            self.refuse(refused)
        except VoxtuiError as error:  # the models' files were not even found
            self._show_failed(error)
        self.talk.follow()

    # Actions.

    def action_mend(self) -> None:
        """Mend the problem that the banner shows."""
        self.status.banner.mend()

    def action_help_quit(self) -> None:
        self.tell(f"{shown(self.controls.config.ui.keys.quit)} quits voxtui.")

    def action_talk(self) -> None:
        self.talk.press()

    def action_escape(self, _: str) -> None:
        if self.action_stop():
            return
        if self.bar.typing:
            self._leave_field()
        else:
            self.turns.select(None)
        self._offer_keys()

    @on(Transcript.Step)
    def _step(self, event: Transcript.Step) -> None:
        self.turns.step(event.by)
        self._offer_keys()

    @on(Transcript.Picked)
    def _pick(self, event: Transcript.Picked) -> None:
        self.turns.pick(event.turn)
        self._offer_keys()

    def action_stop(self) -> bool:
        stopped = self.controls.stop()
        self.talk.follow()
        return stopped

    def action_type(self) -> None:
        self.bar.write("/")

    def _leave_field(self) -> None:
        self.bar.close_field()
        self.transcript.focus()
        self._offer_keys()

    @on(Input.Changed)
    def _text_changed(self, event: Input.Changed) -> None:
        if event.input is not self.bar.field:
            return
        self._offer_keys()
        # A slash begins a command, and a correction follows another history than the newest.
        ahead = self.bar.corrected is None and not event.value.startswith("/")
        self.controls.typing(event.value if ahead else "")

    async def _send(self, text: str, corrected: int | None) -> None:
        """Run `text` as a command, or have it answered, in place of the turn `corrected`."""
        if not (text := text.strip()):
            self.action_mend()
            return
        try:
            command = parse(text)
            if command is None and corrected is not None:
                self._correct(corrected, text)
            elif command is None:
                if self.controls.say(text) is None:
                    self._note_kept(text)
            elif command[0] == "clip":
                self.action_clip(number(command[1]))
            elif command[0] == "edit":
                self.action_edit(command[1])
            else:
                await self.run_action(command[0])
        except Refused as refused:
            self.refuse(refused)
        self.talk.follow()

    def _note_kept(self, text: str) -> None:
        self.tell(f"Kept until the models are loaded: “{text}”")

    def action_paste(self) -> None:
        self.run_worker(self._paste, thread=True, group="paste")

    def _paste(self) -> None:
        """Give what is on the clipboard. Runs on a thread of its own, because it may block."""
        try:
            given = GivenText("the clipboard", clipboard_text())
            self.call_from_thread(self.controls.give, given)
        except InputError as error:
            self._events.put(Notice(str(error), "error"))
        except Refused as refused:
            self.call_from_thread(self.refuse, refused)

    def action_page_up(self) -> None:
        self.transcript.scroll_page_up()

    def action_page_down(self) -> None:
        self.transcript.scroll_page_down()

    def action_new(self) -> None:
        if self.controls.turn is not None:
            self.notify("A new conversation. /undo brings the old one back.")
        self._do(self.controls.new_conversation)
        self.turns.forget()
        self.transcript.clear()

    def action_undo(self) -> None:
        try:
            self.controls.undo()
        except Refused as refused:
            self.refuse(refused)
        else:
            self.transcript.restore()

    def action_mute(self) -> None:
        self.status.top.show_muted(self.controls.toggle_mute())

    def _correct(self, turn: int, text: str) -> None:
        """Answer `text` in place of `turn`; if that is refused, let it be edited again."""
        try:
            self.controls.correct(turn, text)
        except Refused:
            self.bar.correct(turn, text)
            raise

    def action_again(self) -> None:
        self._retry(partial(self.controls.answer_again, turn=self.turns.selected))

    def action_edit(self, text: str = "") -> None:
        """Answer `text` in place of the selected or newest turn; empty: let its words be edited."""
        try:
            turn, words = self.controls.words_of(self.turns.selected)
            if text:
                self._correct(turn, text)
            else:
                self.bar.correct(turn, words)
        except Refused as refused:
            self.refuse(refused)
        self._offer_keys()

    def action_fetch(self) -> None:
        self._retry(self.controls.fetch)

    def _retry(self, act: Callable[[], object]) -> None:
        """Call `act`, which may load the models again after a failed start."""
        failed = self.controls.failed is not None
        self._do(act)
        if failed and self.controls.failed is None:
            self._begin_again()

    def _begin_again(self) -> None:
        """Show the loading once more."""
        for text in self.controls.kept:
            self._note_kept(text)
        self.status.begin_again()

    def action_clip(self, number: int) -> None:
        self._do(partial(self.controls.play_clip, number))

    @on(Samples.Chosen)
    def _clip_chosen(self, message: Samples.Chosen) -> None:
        self.action_clip(message.number)

    def action_copy(self) -> None:
        if text := self.screen.get_selected_text():
            self.copy_to_clipboard(text)
            self.notify("The selection was handed to the terminal's clipboard.")
            return
        finished = reversed(self.controls.record.finished)
        reply = next((t.result.reply for t in finished if t.result and t.result.reply), None)
        if reply is None:
            self.notify("There is no answer to copy yet.", severity="warning")
            return
        self.copy_to_clipboard(reply.strip())
        self.notify("The last answer was handed to the terminal's clipboard.")

    def action_save(self) -> None:
        self.run_worker(self._save, thread=True, group="save")

    def _save(self) -> None:
        """Save the session. Runs on a thread of its own, because a disk may be slow."""
        try:
            place = self.controls.save()
        except Refused as refused:
            self.call_from_thread(self.refuse, refused)
        except InputError as error:
            self._events.put(Notice(str(error), "error"))
        else:
            shown = str(place).replace(str(Path.home()), "~", 1)
            self._events.put(Notice(f"Saved, with your words:\n{shown}", "information"))

    def action_look(self) -> None:
        self.menu.rescan()

    def action_numbers(self) -> None:
        self.action_panel()

    def _commands(self) -> Iterable[Entry]:
        """Yield the entries of the menu that choose nothing."""
        yield Entry(CONVERSATION, "New conversation", self.action_new)
        yield Entry(CONVERSATION, "Answer again", self.action_again, "what was said last")
        yield Entry(CONVERSATION, "Edit", self.action_edit, "what was heard, and send it instead")
        yield Entry(CONVERSATION, "Copy", self.action_copy, "the selection, or the last answer")
        yield Entry(CONVERSATION, "Paste", self.action_paste, "talk about the clipboard's text")
        yield Entry(CONVERSATION, "Save", self.action_save, "Markdown, JSON and sound files")
        yield Entry(CONVERSATION, "Mute", self.action_mute, chosen=self.controls.muted)
        yield Entry(SETTINGS, "Keys", self.action_help, "what each key does")

    def apply(self, key: str, value: str) -> None:
        """Show a value of a key of [ui]."""
        if key == "ui.theme":
            self.use_theme(value)
        else:
            self._fit_panel(self.size)

    def action_command_palette(self) -> None:
        self.menu.open()

    def action_panel(self) -> None:
        """Show the panel in the next of its sizes that fit this terminal."""
        sizes = [size for size in SIZES if size_for(size, self.size) == size]
        if len(sizes) == 1:
            self.notify("This terminal has room for the line only.")
            return
        size = sizes[(sizes.index(self.panel.chosen) + 1) % len(sizes)]
        self.controls.choose("ui.panel", size)
        self._fit_panel(self.size)

    def action_help(self) -> None:
        self.clear_notifications()  # they would cover part of it
        self.push_screen(Help(self.keys, self._fast_paths if is_likely() else None))

    def _fast_paths(self) -> Sequence[str]:
        """Return the verdict about Voxtral's fast paths as lines. On a thread of its own."""
        from voxtui.brains.voxtral.verdict import brief_table_here

        return brief_table_here(self.controls.config.brain.voxtral.quantization)

    def action_suspend_process(self) -> None:
        if os.getsid(0) == os.getpgrp():
            self.notify("Not suspended: there is no shell here that could bring it back.")
            return
        self.talk.let_go()
        super().action_suspend_process()

    async def action_quit(self) -> None:
        self.controls.clips.stop()
        await super().action_quit()
