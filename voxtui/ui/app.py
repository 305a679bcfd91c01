"""The screen: shows the engine's events, and turns keys into commands of the controls."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingsMap, BindingType
from textual.containers import Horizontal, Vertical
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size
from textual.message import Message
from textual.widgets import Footer, Input

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
    Remark,
    ReplyText,
    SpokenUpTo,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.marks import Mark, Marks, Outcome, Turn
from voxtui.errors import InputError, ModelMissing, VoxtuiError, strip_control_characters
from voxtui.records.metrics import DeviceOffset
from voxtui.settings.schema import Config
from voxtui.ui.conversation.markdown import rendered
from voxtui.ui.conversation.transcript import Transcript
from voxtui.ui.event_queue import EventQueue
from voxtui.ui.help import Help
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

IN_ORDER = frozenset(("type", "new_conversation", "mute", "replay", "clip"))
"""Actions of a letter that must be done before the next key is looked at."""


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

    KEYS: ClassVar[Sequence[Binding]] = [
        Binding("slash", "type", "Type", key_display="/", priority=True,
                tooltip="type instead; Enter sends, Esc leaves"),
        Binding("escape", "cancel", "Stop", key_display="Esc", priority=True,
                tooltip="drop what you say; then stop the answer; then leave the field"),
        Binding("n", "new_conversation", "New", priority=True, tooltip="start a new conversation"),
        Binding("m", "mute", "Mute", priority=True,
                tooltip="turn the voice off or on; the text goes on"),
        Binding("r", "replay", "Again", show=False, priority=True,
                tooltip="answer what was said last once more, to compare settings"),
        # Also from the text field, which has no use for them.
        Binding("pageup", "page_up", show=False),
        Binding("pagedown", "page_down", show=False),
        Binding("f", "fetch", "Fetch", show=False),  # the banner names it where it does something
        Binding("c", "copy", "Copy", show=False,
                tooltip="copy the selected text, or the last answer"),
        Binding("s", "save", "Save", show=False,
                tooltip="save the session: Markdown, JSON and WAV files"),
        Binding("1", "clip(1)", "Clip", key_display="1-9", priority=True,
                tooltip="let it hear a sample clip"),
        *(Binding(f"{n}", f"clip({n})", show=False, priority=True) for n in range(2, 10)),
        Binding("ctrl+l", "panel", "Panel", key_display="^l", show=False, priority=True,
                tooltip="show the times as one line, at a glance or as a laboratory"),
        Binding("question_mark,f1", "help", "Keys", key_display="?", tooltip="this list (or F1)"),
        Binding("ctrl+p", "command_palette", "Menu", key_display="^p",
                tooltip="choose microphone, speaker, brain, voice, preset, theme"),
        Binding("enter", "mend", show=False),  # the banner names it where it does something
        Binding("ctrl+c", "help_quit", show=False, system=True),
        Binding("ctrl+z", "suspend_process", show=False, system=True),
        Binding("ctrl+q", "quit", "Quit", key_display="^q", priority=True, tooltip="quit"),
    ]  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [*KEYS]

    def __init__(
        self,
        make_engine: MakeEngine,
        config: Config,
        clips: Sequence[tuple[str, Path]] = (),
        open_clip: OpenClip | None = None,
        parts: PartMakers | None = None,
        device_offset: DeviceOffset = lambda speaker: None,
    ) -> None:
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
        """a notice told why nothing was heard in this turn"""
        self._frozen = False
        """`gc_tuning.freeze` was called, which must happen once"""
        talk = Binding(
            config.ui.talk_key, "talk", "Talk", key_display=config.ui.talk_key.capitalize(),
            tooltip="talk: hold it, or tap before and after; cuts an answer off",
        )  # fmt: skip
        self.keys = [talk, *self.KEYS]
        self._bindings = BindingsMap(self.keys)

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
        yield Footer(show_command_palette=False)

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
        self.call_after_refresh(self.controls.start)

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
            case Captured(turn, utterance):
                self.turns.show_utterance(turn, utterance)
            case UserWords(turn, text):
                self.turns.show_words(turn, text)
            case ReplyText(turn, text):
                self.turns.show_reply(turn, text)
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
        self.status.show_failed(error, self.action_fetch if fetch else self.action_replay)

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

    # Keys.

    async def on_event(self, event: events.Event) -> None:
        """Take the talk key first: it would reach the focus after its own release."""
        if isinstance(event, events.Key) and not event.is_forwarded and self._talks(event):
            repeated = isinstance(event, Key) and event.repeated
            self.talk.press(event.time, repeated)
            return
        if isinstance(event, events.Key) and self._silences(event):
            return
        if isinstance(event, events.Key) and event.is_printable:
            self.bar.begun = self.bar.typing
        if isinstance(event, events.Paste):
            self.bar.begun = self.bar.typing
            # The field would keep only the first line, and control characters with it.
            event.text = strip_control_characters(" ".join(event.text.splitlines()))
        await super().on_event(event)

    def _silences(self, key: events.Key) -> bool:
        """End the sentence of a timer. Return True if the key has done that and nothing else."""
        chord = key.key.startswith("ctrl+")
        return not key.is_forwarded and self.controls.silence() and not chord

    def _talks(self, key: events.Key) -> bool:
        if key.key != self.controls.config.ui.talk_key or len(self.screen_stack) > 1:
            return False
        types = isinstance(self.focused, Input) and self.bar.begun
        return not (key.is_printable and types)

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
        if self.controls.talking is not None and self.bar.typing and not self.bar.begun:
            self._leave_field()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave Esc to a screen on top of this one, and a letter also to the text field."""
        if action in IN_ORDER:
            return len(self.screen_stack) == 1 and not self.bar.typing
        return action != "cancel" or len(self.screen_stack) == 1

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
        self.tell("Ctrl+Q quits voxtui.")

    def action_talk(self) -> None:
        self.talk.press()

    def action_cancel(self) -> None:
        if self.controls.stop():
            self.talk.follow()
        elif self.bar.typing:
            self._leave_field()
        else:
            self.turns.select(None)

    @on(Transcript.Step)
    def _step(self, event: Transcript.Step) -> None:
        self.turns.step(event.by)

    @on(Transcript.Picked)
    def _pick(self, event: Transcript.Picked) -> None:
        self.turns.pick(event.turn)

    def action_type(self) -> None:
        self.bar.open_field()

    def _leave_field(self) -> None:
        self.bar.close_field()
        self.transcript.focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self.controls.typing(event.value)

    @on(Input.Submitted)
    def _send(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        self.bar.begun = False
        if not text:
            self.action_mend()
            return
        self.bar.field.clear()
        if self.controls.say(text) is None:
            self._note_kept(text)
        self.talk.follow()

    def _note_kept(self, text: str) -> None:
        self.tell(f"Kept until the models are loaded: “{text}”")

    def action_page_up(self) -> None:
        self.transcript.scroll_page_up()

    def action_page_down(self) -> None:
        self.transcript.scroll_page_down()

    def action_new_conversation(self) -> None:
        self._do(self.controls.new_conversation)
        self.turns.forget()
        self.transcript.clear()

    def action_mute(self) -> None:
        self.status.top.show_muted(self.controls.toggle_mute())

    def action_replay(self) -> None:
        self._retry(self.controls.answer_again)

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

    def _commands(self) -> Iterable[Entry]:
        """Yield the entries of the menu that choose nothing."""
        yield Entry(CONVERSATION, "New conversation", self.action_new_conversation)
        yield Entry(CONVERSATION, "Answer again", self.action_replay, "what was said last")
        yield Entry(CONVERSATION, "Copy", self.action_copy, "the selection, or the last answer")
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
        self.push_screen(Help(self.keys))

    def action_suspend_process(self) -> None:
        if os.getsid(0) == os.getpgrp():
            self.notify("Not suspended: there is no shell here that could bring it back.")
            return
        self.talk.let_go()
        super().action_suspend_process()

    async def action_quit(self) -> None:
        self.controls.clips.stop()
        await super().action_quit()
