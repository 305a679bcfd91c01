"""The screen: shows the engine's events, and turns keys into its commands."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingsMap, BindingType
from textual.containers import Horizontal, Vertical
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Footer, Input, Static

from voxtui.dialogue.commands import ReplaceParts
from voxtui.dialogue.data import MICROPHONE, TYPED
from voxtui.dialogue.events import (
    Captured,
    ChangeFailed,
    Died,
    Event,
    Loaded,
    LoadFailed,
    Loading,
    MicrophoneLost,
    MicrophoneOpened,
    Notice,
    ReplyText,
    SpokenUpTo,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.level import decibels, diagnose_level
from voxtui.dialogue.marks import Mark, Marks, Turn
from voxtui.errors import (
    ConfigError,
    InputError,
    ModelMissing,
    VoxtuiError,
    strip_control_characters,
)
from voxtui.records.metrics import DeviceOffset
from voxtui.records.session import Record, saved_sessions
from voxtui.settings.save import save_values
from voxtui.settings.schema import Config
from voxtui.settings.sources import found_file, with_value
from voxtui.ui.conversation.markdown import rendered
from voxtui.ui.conversation.transcript import Entry, Transcript
from voxtui.ui.conversation.turn_view import TurnView
from voxtui.ui.event_queue import EventQueue
from voxtui.ui.help import Help
from voxtui.ui.menu import LOOK_AGAIN, Choice, Choices, Parts, choices
from voxtui.ui.panel.panel import LatencyPanel
from voxtui.ui.startup import (
    COMPLAINT,
    HOW_LOUD,
    TITLE,
    Line,
    Samples,
    Steps,
    ears,
    first_steps,
    summary,
)
from voxtui.ui.talkbar import TalkBar, loudness
from voxtui.ui.talkkey import Act, Begin, End, Mode, TalkKey
from voxtui.ui.terminal import gc_tuning
from voxtui.ui.terminal.keyboard import Key, KeyboardAnswer, KeyboardDriver, KeyUp
from voxtui.ui.terminal.painting import paint_now
from voxtui.ui.terminal.termination import EXIT_CODE, exit_on_signals

if TYPE_CHECKING:
    from voxtui.dialogue.engine import Engine

MakeEngine = Callable[[Callable[[Event], object]], "Engine"]

SpeakClip = Callable[["Engine", Path, threading.Event], object]
"""Speaks a clip into the engine in real time, on the calling thread, until it ends or the flag is
set. Raises InputError."""

TICK_SECONDS = 1 / 20

WORDS_FIRST_SECONDS = 1 / 60
"""For so long after an utterance nothing but words is painted: an answer that was worked out ahead
may come at once, and its first words must find the screen free."""

PANEL_WAITS_SECONDS = 0.5
"""For so long the panel, the largest thing to paint, waits for the first words."""

LEVEL_SECONDS = 1.0
"""How often the microphone's level is told as a number: the loudest since it was told last."""

LEVEL_CHECK_SECONDS = 3.0

BADGES = {
    State.LOADING: "◌ LOADING",
    State.READY: "○ READY",
    State.LISTENING: "● LISTENING",
    State.THINKING: "◐ THINKING",
    State.SPEAKING: "♪ SPEAKING",
}

WITHOUT = "✗ no microphone"
"""Stands where else it says how one talks."""

LOST = "No microphone left."

NOT_LOADED = "✗ NOT LOADED"

IN_ORDER = frozenset(("type", "new_conversation", "mute", "replay", "clip"))
"""What a letter does that must be done before the key after it is looked at."""

STATE_CLASSES = (*(f"-{state}" for state in State), "-failed")


class EventsWaiting(Message):
    """Asks the screen to take the events that wait in its queue."""


class Shown(Message):
    """The first word of an answer has been painted, which its marks say."""

    def __init__(self, marks: Marks) -> None:
        super().__init__()
        self.marks = marks


class VoxtuiApp(App[None], inherit_bindings=False):
    """Talk, listen, and see how long it took."""

    TITLE = "voxtui"
    CSS_PATH = Path(__file__).with_name("voxtui.tcss")
    AUTO_FOCUS = "Transcript"
    COMMANDS = App.COMMANDS | {Choices}
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
        Binding("question_mark,f1", "help", "Keys", key_display="?", tooltip="this list (or F1)"),
        Binding("ctrl+p", "command_palette", "Menu", key_display="^p",
                tooltip="choose microphone, speaker, brain, voice, preset, theme"),
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
        speak_clip: SpeakClip | None = None,
        parts: Parts | None = None,
        device_offset: DeviceOffset = lambda speaker: None,
    ) -> None:
        super().__init__()
        self._events = EventQueue(lambda: self.post_message(EventsWaiting()))
        self.engine = make_engine(self._events.put)
        self._config = config
        self._parts = parts
        self._device_offset = device_offset
        self._chosen: dict[str, Any] = {}
        """what was chosen here, by key, and is not saved"""
        self._choice: Choice | None = None
        """what is being changed to, until it is in use"""
        self._models_are_new = True
        self._loudest = 0.0
        """of the microphone, since it was chosen"""
        self._silence: str | None = None
        """what is probably wrong with it, until something is heard"""
        self._peak: float | None = None
        """of the microphone, since its level was told"""
        self._clips = clips if speak_clip else ()
        self._speak_clip = speak_clip
        self._clip_stopped = threading.Event()
        self._state = State.LOADING
        self._failed = False
        self._missing = ""
        """how large what can be fetched is, if the start failed for the want of it"""
        self._fetches = False
        """somebody has said that the chat model is to be fetched"""
        self._microphone: str | None = ""
        """its name, empty until it is known; None: there is none"""
        self._known: frozenset[str] | None = None
        """the devices there were when others were last looked for, until they are found"""
        self._muted = False
        self._talk_key = TalkKey()
        self._key_name = config.ui.talk_key.capitalize()
        self._settling: Timer | None = None
        self._rest: Timer | None = None
        """runs while nothing but words is painted"""
        self._words_due = 0.0
        """until when the panel waits for the first words of an answer"""
        self._talking: int | None = None
        """the turn for which the key or the mouse button is down"""
        self._by_mouse = False
        self._record = Record(datetime.now())
        self._number = 0
        self._turns_over = 0
        self._view: TurnView | None = None
        self._marks: Marks | None = None
        """of the turn under way"""
        self._began_at = 0.0
        self._first: tuple[Entry, Marks] | None = None
        """the beginning of a reply, until it is painted, and its turn's marks"""
        self._waiting: deque[str] = deque()
        """typed before the models were loaded"""
        # Kept, not looked up: a look-up fails while another screen lies over this one.
        self._badge = Static(BADGES[State.LOADING], id="state", markup=False)
        self._mode_badge = Static(id="mode", markup=False)
        self._brain = Static(id="brain", markup=False)
        self._about = Static(id="about", markup=False)
        self._mute_badge = Static("voice muted", id="muted")
        self._banner = Static(id="banner", markup=False)
        self._steps = Steps()
        self._ears: Line = ("Mic", HOW_LOUD)
        self._sends_to = config.brain.remote.hosts if config.brain.name == "remote" else ""
        self._parts_found: Sequence[Line] = ()
        self._samples = Samples([name for name, _ in self._clips])
        self._transcript = Transcript()
        self._panel = LatencyPanel(config.targets.resolved(config.brain.name))
        self._bar = TalkBar()
        talk = Binding(
            config.ui.talk_key, "talk", "Talk", key_display=self._key_name,
            tooltip="talk: hold it, or tap before and after; cuts an answer off",
        )  # fmt: skip
        self._keys = [talk, *self.KEYS]
        self._bindings = BindingsMap(self._keys)

    def get_driver_class(self) -> type[Driver]:
        driver = super().get_driver_class()
        return KeyboardDriver if driver is LinuxDriver else driver

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static("voxtui", id="name")
            yield self._badge
            yield self._mode_badge
            yield self._brain
            yield self._about
            yield self._mute_badge
        yield self._banner
        with Horizontal(id="main"):
            with Vertical(id="talk"):
                yield self._transcript
                yield self._samples
            yield self._panel
        yield self._bar
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        if self._config.ui.theme in self.available_themes:
            self.theme = self._config.ui.theme
        else:
            self._transcript.note(f"There is no theme {self._config.ui.theme!r} (ui.theme).")
        self._show_mode()
        self._show_head()
        self._show_state()
        if not self.is_headless:  # a test run keeps the signals of its process
            exit_on_signals(partial(self.exit, return_code=EXIT_CODE))
        # After a suspend the terminal shows nothing, and Textual paints what has changed only.
        self.app_resume_signal.subscribe(self, self._paint_all)  # pyright: ignore[reportUnknownMemberType]
        self.set_interval(TICK_SECONDS, self._tick)
        self.set_interval(LEVEL_SECONDS, self._show_level)
        self.call_after_refresh(self.engine.start)

    def _paint_all(self, _: object) -> None:
        self.refresh()

    def on_unmount(self) -> None:
        self._clip_stopped.set()
        gc_tuning.restore()

    # What the engine reports.

    def on_events_waiting(self) -> None:
        for event in self._events.take():
            self._take_event(event)

    def _take_event(self, event: Event) -> None:
        if self._is_taken_down and not isinstance(event, Died):
            return
        self._record.take(event)
        match event:
            case StateChanged(state):
                self._change_state(state)
            case Loading(step, fraction):
                self._show_loading(step, fraction)
            case Loaded() as loaded:
                self._show_loaded(loaded)
            case LoadFailed(error):
                self._show_failed(error)
            case ChangeFailed(error):
                self._choice = None
                self._transcript.note(f"Nothing was changed. {error}", "error")
            case MicrophoneOpened(name):
                self._use_microphone(name)
            case MicrophoneLost():
                self._lose_microphone()
            case TurnStarted(turn, source, marks):
                self._begin_turn(turn, source, marks)
            case Captured(turn, said):
                if view := self._view_of(turn):
                    view.show_utterance(said)
            case UserWords(turn, text):
                if view := self._view_of(turn):
                    view.show_words(text)
            case ReplyText(turn, text):
                if view := self._view_of(turn):
                    self._show_reply(view, text)
            case SpokenUpTo(turn, text):
                if view := self._view_of(turn):
                    view.cut(text)
            case Notice(text, severity):
                self._transcript.note(text, severity)
            case TurnFinished(turn):
                self._finish_turn(turn)
            case Died(error):
                raise error

    @property
    def _is_taken_down(self) -> bool:
        """There is nothing left to draw on; what was under way comes all the same."""
        return not self._transcript.is_attached

    def _view_of(self, turn: int) -> TurnView | None:
        """Where this turn is shown; None for one that is over or not on screen any more."""
        return self._view if turn == self._number else None

    def _change_state(self, state: State) -> None:
        self._state = state
        if state is State.THINKING:
            if self._talking == self._number:
                self._stop_talking()
            self._show_spoken()
            if self._view:
                self._view.expect_reply()
            self._words_due = time.monotonic() + PANEL_WAITS_SECONDS
            self._rest = self.set_timer(WORDS_FIRST_SECONDS, self._show_rest)
        else:
            self._show_rest()
        if state is State.READY and self._waiting and self._talking is None:
            self._say(self._waiting.popleft())

    def _show_rest(self) -> None:
        if self._rest is not None:
            self._rest.stop()
            self._rest = None
        self._show_state()

    def _show_loading(self, step: str, fraction: float | None) -> None:
        self._parts_found = self._steps.add(step, fraction)
        self._show_head()
        self._show_state()

    def _show_failed(self, error: VoxtuiError) -> None:
        self._failed = True
        self._microphone = ""
        self._bar.name_source("")
        self._samples.offer(False)
        self._transcript.show_head(TITLE, self._steps.failed())
        if isinstance(error, ModelMissing):
            self._missing = f"{error.size / 1e9:.1f} GB"
            hint = f"f: fetch it now ({self._missing}). r: try again."
        else:
            self._missing = ""
            hint = f"{error.hint} r: try again.".lstrip()
        self._show_banner(error.message, hint)
        self._show_state()

    def _show_head(self) -> None:
        mode = None if self._microphone is None else self._mode
        steps = first_steps(mode, self._key_name, self._ears, self._sends_to)
        self._transcript.show_head(TITLE, [*steps, *self._parts_found])

    def _show_loaded(self, loaded: Loaded) -> None:
        self.clear_notifications()  # "still loading" is no longer true
        if self._choice is not None and loaded.changed:
            self._keep(self._choice)
            self._transcript.note(f"{self._choice.title}.")
            self._choice = None
        self._sends_to = loaded.sends_to
        self._steps, self._parts_found = Steps(), summary(loaded)
        before = self._microphone
        self._use_microphone(loaded.microphone)
        self._tell_found(loaded.microphone != before)
        name, bracket, about = loaded.brain.partition(" (")
        self._brain.update(name)
        self._about.update(bracket + about)
        self._panel.judge_by(self._config.targets.resolved(loaded.brain_name))
        self._panel.devices_add(self._device_offset(loaded.speaker))
        if self._models_are_new:
            self._panel.models_loaded()
            self._models_are_new = False
            rendered("")  # its library is imported now and not behind the first answer
            gc_tuning.freeze()

    def _use_microphone(self, name: str | None) -> None:
        """It is listened to from now on; None: there is none any more, or never was."""
        before, self._microphone = self._microphone, name
        if name != before:
            self._loudest, self._peak, self._silence = 0.0, None, None
            self._bar.name_source(name or f"Ctrl+P: {LOOK_AGAIN}")
            self._ears = ears(name, "", None)
            if name is not None:
                check = partial(self._check_level, name, bool(before))
                self.set_timer(LEVEL_CHECK_SECONDS, check)
        if name is None and before:
            self._show_banner(LOST, f"Plug one in, then Ctrl+P: {LOOK_AGAIN}.")
        elif name is not None:
            self._banner.remove_class("shown")
        self._samples.offer(name is None)
        self._show_head()
        self._show_mode()

    def _check_level(self, microphone: str, tell: bool) -> None:
        """Nobody may have spoken yet, so only what is no sound at all is complained of."""
        if self._microphone != microphone or self._is_taken_down:
            return
        self._loudest = max(self._loudest, self.engine.level)  # a busy machine may have no tick
        if not self._loudest:
            self._silence = diagnose_level(microphone, 0.0)
            if self._silence and self._number:
                self._transcript.note(self._silence, "warning")
            self._show_ears("")
        elif tell:
            level = f"{decibels(self._loudest)} at most in {LEVEL_CHECK_SECONDS:g} s"
            self._transcript.note(f"Level of {microphone}: {level}.")

    def _show_level(self) -> None:
        if self._is_taken_down:
            return
        if self._microphone and self._peak is not None:
            level = decibels(self._peak)
            self._bar.name_source(f"{self._microphone}  {level}")
            self._show_ears(level)
        self._peak = None

    def _show_ears(self, level: str) -> None:
        """In the first lines of the screen. Behind the first turn only a complaint is withdrawn."""
        if self._loudest:
            self._silence = None
        said = ears(self._microphone, "" if self._number else level, self._silence)
        withdrawn = self._ears[0] == COMPLAINT and not self._silence
        if said != self._ears and (withdrawn or not self._number):
            self._ears = said
            self._show_head()

    def _lose_microphone(self) -> None:
        if self._talking is not None:
            self._stop_talking()
        self._use_microphone(None)

    def _show_banner(self, message: str, hint: str) -> None:
        self._banner.update(f"✗ {message}" + (f"\n  {hint}" if hint else ""))
        self._banner.add_class("shown")

    def _begin_turn(self, turn: int, source: str, marks: Marks) -> None:
        self._number, self._marks = turn, marks
        self._panel.begin()
        self._began_at = time.monotonic()
        self._first = None
        self._view = TurnView(self._transcript, source)
        if source != TYPED:
            self._view.show_speaking(0.0)

    def _show_reply(self, view: TurnView, text: str) -> None:
        begins = view.append(text)
        if begins and view.latest and self._marks:
            self._first = (view.latest, self._marks)
            paint_now(self._transcript)

    def _finish_turn(self, turn: Turn) -> None:
        if self._talking == turn.number:
            self._stop_talking()
        view = self._view_of(turn.number)
        if view is None:
            return
        self._show_spoken()
        view.finish(turn)
        self._panel.finish(turn)
        if self._marks and self._marks.at(Mark.FIRST_SHOWN):
            self._panel.complete(self._marks)  # painted after the engine had written the turn down
        self._marks = None
        self._turns_over += 1
        self.call_after_refresh(gc_tuning.collect, self._turns_over)

    def post_display_hook(self) -> None:
        """Textual has just handed what it painted to the thread that writes it."""
        if self._first is None or not self._first[0].painted:
            return
        _, marks = self._first
        self._first, self._words_due = None, 0.0
        self.when_written(partial(self._first_shown, marks))
        if isinstance(self._driver, KeyboardDriver):
            self._driver.wait_written()

    def when_written(self, tell: Callable[[float], object]) -> None:
        """Call `tell` with the time at which what was painted so far has left for the terminal.

        On any thread.
        """
        if isinstance(self._driver, KeyboardDriver):
            self._driver.when_written(tell)
        else:
            tell(time.monotonic())

    def _first_shown(self, marks: Marks, at: float) -> None:
        marks.mark(Mark.FIRST_SHOWN, at)
        self.post_message(Shown(marks))

    def on_shown(self, shown: Shown) -> None:
        if self._marks is None:  # a short answer is over before its first word is painted
            self._panel.complete(shown.marks)

    # What is shown of it.

    def _show_state(self) -> None:
        text = NOT_LOADED if self._failed else BADGES[self._state]
        self._badge.update(text, layout=False)
        shown = "-failed" if self._failed else f"-{self._state}"
        # Not on the screen: a class there restyles the whole conversation.
        for widget in (self._badge, self._bar):
            if not widget.has_class(shown):
                widget.remove_class(*STATE_CLASSES, update=False)
                widget.add_class(shown)
        self._bar.hint(self._hint())

    @property
    def _mode(self) -> Mode:
        if self._by_mouse:
            return Mode.MOUSE
        if self._config.vad.hands_free:
            return Mode.HANDS_FREE
        return Mode.HOLD if self._talk_key.releases else Mode.TOGGLE

    def _show_mode(self) -> None:
        self._mode_badge.set_class(self._microphone is None, "without")
        self._mode_badge.update(self._mode if self._microphone is not None else WITHOUT)
        self._bar.hint(self._hint())
        if self._microphone is None:
            self._bar.explain("type, or let it hear a sample")
            return
        key = self._key_name
        instead = f", or {'hold' if self._mode is Mode.HOLD else 'press'} {key} to talk"
        match self._mode:
            case Mode.HOLD:
                self._bar.explain(f"hold: {key} down, speak, let go", instead)
            case Mode.TOGGLE:
                self._bar.explain(f"toggle: {key} starts, {key} ends", instead)
            case Mode.MOUSE:
                self._bar.explain("mouse: speak, let go of the button")
            case Mode.HANDS_FREE:
                self._bar.explain("hands-free: just speak")

    def _hint(self) -> str:
        if self._failed:
            return f"f: fetch {self._missing}" if self._missing else "r: try again"
        key = self._key_name
        match self._state:
            case State.LOADING:
                return self._steps.latest or "Loading…"
            case State.READY if self._microphone and self._mode is Mode.HANDS_FREE:
                return "Speak"
            case State.READY if self._microphone:
                return f"{'Hold' if self._mode is Mode.HOLD else 'Press'} {key} and speak"
            case State.READY:
                return f"Press 1-{len(self._clips)} or /" if self._clips else "Press / and type"
            case State.LISTENING if self._talking is not None:
                ends = key if self._mode is Mode.TOGGLE else "let go"
                return f"{self._spoken_seconds():.1f} s  {ends}: send · Esc: drop"
            case State.LISTENING:
                return f"{self._spoken_seconds():.1f} s  Esc: drop"
            case State.THINKING:
                return "Esc stops"
            case State.SPEAKING:
                return f"{key} talks over it, Esc stops it"

    def _spoken_seconds(self) -> float:
        released = self._marks.at(Mark.RELEASED) if self._marks else None
        return max(0.0, (released or time.monotonic()) - self._began_at)

    def _show_spoken(self) -> None:
        if self._view is not None and self._view.source != TYPED:
            self._view.show_spoken(self._spoken_seconds())

    def _tick(self) -> None:
        if self._rest is not None or self._is_taken_down:
            return
        level = self.engine.level
        self._loudest = max(self._loudest, level)
        self._peak = max(self._peak or 0.0, level)
        self._bar.meter.show(loudness(level))
        now = time.monotonic()
        if self._marks is not None and now >= self._words_due:
            self._panel.follow(self._marks, now)
        if self._state is State.LISTENING:
            self._bar.hint(self._hint())
            if self._view is not None:
                self._view.show_speaking(self._spoken_seconds())

    # What keys do.

    async def on_event(self, event: events.Event) -> None:
        """Takes the talk key first: by way of the focus it would arrive after its own release."""
        if isinstance(event, events.Key) and not event.is_forwarded and self._talks(event):
            repeated = isinstance(event, Key) and event.repeated
            self._obey(self._talk_key.press(event.time, repeated), event.time)
            return
        if isinstance(event, events.Key) and event.is_printable:
            self._bar.begun = self._bar.typing
        if isinstance(event, events.Paste):
            self._bar.begun = self._bar.typing
            # The field would take its first line only, and show whatever commands are in it.
            event.text = strip_control_characters(" ".join(event.text.splitlines()))
        await super().on_event(event)

    def _talks(self, key: events.Key) -> bool:
        if key.key != self._config.ui.talk_key or len(self.screen_stack) > 1:
            return False
        types = isinstance(self.focused, Input) and self._bar.begun
        return not (key.is_printable and types)

    def on_key_up(self, key: KeyUp) -> None:
        if key.key == self._config.ui.talk_key:
            self._obey(self._talk_key.release(key.time), key.time)

    def on_app_blur(self, event: events.AppBlur) -> None:
        self._let_go(event.time)

    def on_keyboard_answer(self, answer: KeyboardAnswer) -> None:
        self._let_go(answer.time)
        self._talk_key.releases = answer.releases
        self._show_mode()
        if not self._failed:
            self._show_head()

    def _let_go(self, at: float) -> None:
        """Nobody will say when the key or the button comes up."""
        self._obey(self._talk_key.lose_focus(at), at)
        self._mouse_up(at)

    def _obey(self, acts: Sequence[Act], now: float) -> None:
        for act in acts:
            match act:
                case Begin(at):
                    self._begin_talk(at)
                case End(at):
                    self._end_talk(at)
        if self._settling is not None:
            self._settling.stop()
            self._settling = None
        if (deadline := self._talk_key.deadline) is not None:
            settle = partial(self._settle, deadline)
            self._settling = self.set_timer(max(0.001, deadline - now), settle)

    def _settle(self, deadline: float) -> None:
        self._obey(self._talk_key.settle(deadline), deadline)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Esc belongs to whatever lies over the screen, a letter also to the text field."""
        if action in IN_ORDER:
            return len(self.screen_stack) == 1 and not self._bar.typing
        return action != "cancel" or len(self.screen_stack) == 1

    def action_talk(self) -> None:
        now = time.monotonic()
        self._obey(self._talk_key.press(now), now)

    def action_suspend_process(self) -> None:
        if os.getsid(0) == os.getpgrp():
            self.notify("Not suspended: there is no shell here that could bring it back.")
            return
        self._let_go(time.monotonic())
        super().action_suspend_process()

    @on(TalkBar.Held)
    def _mouse_down(self, event: TalkBar.Held) -> None:
        if self._talking is None:
            self._by_mouse = True
            self._show_mode()
            self._begin_talk(event.time)

    @on(TalkBar.LetGo)
    def _mouse_let_go(self, event: TalkBar.LetGo) -> None:
        self._mouse_up(event.time)

    def _mouse_up(self, at: float) -> None:
        if self._by_mouse:
            self._by_mouse = False
            self._end_talk(at)
            self._show_mode()

    def _begin_talk(self, at: float) -> None:
        if self._listens_by_itself():
            self._stop_talking()
            self.engine.release(at, self._number)
        elif self._talking is None and self._may_talk():
            self._clip_stopped.set()
            self._talking = self.engine.talk(at)
            if self._bar.typing and not self._bar.begun:
                self._leave_field()
        else:
            self._talk_key.abandon()
            if not self._by_mouse:
                self._end_talk(at)

    def _end_talk(self, at: float) -> None:
        if self._talking is not None:
            self.engine.release(at, self._talking)
            self._talking = None

    def _stop_talking(self) -> None:
        """The key or the button may still be down, but its talk is over."""
        self._talking = None
        self._talk_key.abandon()
        if self._by_mouse:
            self._by_mouse = False
            self._show_mode()

    def _listens_by_itself(self) -> bool:
        """Whether hands-free has begun an utterance, which the key then ends."""
        return (
            self._config.vad.hands_free
            and self._talking is None
            and self._state is State.LISTENING
            and self._view is not None
            and self._view.source == MICROPHONE
        )

    def _may_talk(self) -> bool:
        """Whether there is somebody to talk to, and something to talk into; says so where not."""
        if not self._can_answer():
            return False
        if self._microphone is None:
            offer = f"press 1-{len(self._clips)} for a sample, or " if self._clips else ""
            self.notify(f"There is no microphone: {offer}type with /.", severity="warning")
        return self._microphone is not None

    def _can_answer(self) -> bool:
        """Whether there is somebody to talk to; says so where not."""
        if self._failed:
            self.notify("No model is loaded, so there is nobody to answer.", severity="error")
        elif self._state is State.LOADING:
            self.notify("Still loading. You can type already: it is answered once that is done.")
        else:
            return True
        return False

    def action_cancel(self) -> None:
        if self._talking is not None or self._state is State.LISTENING:
            self._stop_talking()
            self._clip_stopped.set()
            self.engine.cancel()
        elif self._state in (State.THINKING, State.SPEAKING):
            self.engine.cancel()
        elif self._bar.typing:
            self._leave_field()

    def action_type(self) -> None:
        self._bar.open_field()

    def _leave_field(self) -> None:
        self._bar.close_field()
        self._transcript.focus()

    @on(Input.Submitted)
    def _send(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        self._bar.begun = False
        if not text:
            return
        if self._failed:
            self.notify("Not sent: no model is loaded, so nobody can answer.", severity="error")
            return
        self._bar.field.clear()
        if self._state is State.LOADING:
            self._waiting.append(text)
            self._note_kept(text)
            return
        self._say(text)

    def _note_kept(self, text: str) -> None:
        self._transcript.note(f"Kept until the models are loaded: “{text}”")

    def _say(self, text: str) -> None:
        self._clip_stopped.set()
        self._stop_talking()
        self.engine.send_text(text)

    def action_page_up(self) -> None:
        self._transcript.scroll_page_up()

    def action_page_down(self) -> None:
        self._transcript.scroll_page_down()

    def action_new_conversation(self) -> None:
        self._clip_stopped.set()
        self._stop_talking()
        self._view = self._marks = self._first = None
        self.engine.new_conversation()
        self._transcript.clear()

    def action_mute(self) -> None:
        self._muted = not self._muted
        self.engine.mute(self._muted)
        self._mute_badge.set_class(self._muted, "shown")

    def action_fetch(self) -> None:
        if self._failed and self._missing:
            self._fetches = True
            self._try_again()

    def _try_again(self) -> None:
        try:
            self._start_again(self._config)
        except VoxtuiError as error:
            self._show_failed(error)

    def _start_again(self, config: Config, **devices: Any) -> None:
        """Nothing could be loaded: now as `config` wants it, with `devices` if they are new."""
        assert self._parts is not None
        change = self._parts.anew(config, self._inform, self._fetches)
        self._failed, self._steps = False, Steps()
        self._transcript.clear()  # what was told of the first try is told again
        for text in self._waiting:
            self._note_kept(text)
        self._banner.remove_class("shown")
        self._show_state()
        self.engine.replace_parts(replace(change, **devices))

    def action_replay(self) -> None:
        if self._failed:
            self._try_again()
        elif self._can_answer():
            self._clip_stopped.set()
            self._stop_talking()
            self.engine.replay()

    def action_copy(self) -> None:
        if text := self.screen.get_selected_text():
            self.copy_to_clipboard(text)
            self.notify("The selection was handed to the terminal's clipboard.")
            return
        reply = next(
            (
                t.result.reply
                for t in reversed(self._record.finished)
                if t.result and t.result.reply
            ),
            None,
        )
        if reply is None:
            self.notify("There is no answer to copy yet.", severity="warning")
            return
        self.copy_to_clipboard(reply.strip())
        self.notify("The last answer was handed to the terminal's clipboard.")

    def action_save(self) -> None:
        if not self._record.finished:
            self.notify("There is nothing to save yet.", severity="warning")
            return
        save = partial(self._save, saved_sessions(self._config.ui.save_dir))
        self.run_worker(save, thread=True, group="save")

    def _save(self, folder: Path) -> None:
        """On a thread of its own: a disk may be slow."""
        try:
            place = self._record.save(folder)
        except InputError as error:
            self._events.put(Notice(str(error), "error"))
            return
        self._events.put(Notice(f"Saved, with your words: {place}", "information"))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        yield SystemCommand("Keys", "what each key does", self.action_help)
        yield SystemCommand("Quit", "end voxtui", self.action_quit)

    def offered(self) -> Sequence[tuple[Choice, bool]]:
        """What the palette offers, and whether it is in force."""
        found = choices(self._config, self._parts, sorted(self.available_themes))
        return [(choice, choice.chosen(self._config)) for choice in found]

    def choose(self, choice: Choice) -> None:
        """Use it from now on, in this session."""
        try:
            config = with_value(self._config, choice.key, choice.value)
            if choice.key == "ui.theme":
                self.theme = choice.value
            elif self._failed:
                self._start_again(config, **self._device(choice.key, config))
            elif self._can_answer():
                self.engine.replace_parts(self._change(choice.key, config))
                self._choice = choice
                self._change_state(State.LOADING)  # nothing else is chosen meanwhile
                return
            else:
                return
        except VoxtuiError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self._keep(choice)

    def _keep(self, choice: Choice) -> None:
        """It is in force."""
        self._config = with_value(self._config, choice.key, choice.value)
        self._chosen[choice.key] = choice.value

    def rescan_devices(self) -> None:
        """Find what was plugged in since PortAudio began."""
        if not self._can_answer():
            return
        if self._state is not State.READY:
            self.notify("Devices are looked for between turns: Esc ends this one.")
            return
        self._clip_stopped.set()
        self._stop_talking()
        self._known = self._devices()
        self.engine.rescan_devices()

    def _devices(self) -> frozenset[str]:
        found = (choice for choice, _ in self.offered())
        return frozenset(choice.title for choice in found if choice.key.startswith("audio."))

    def _tell_found(self, in_use: bool) -> None:
        """What looking for devices has found; `in_use`: it is used already."""
        if self._known is None:
            return
        new = sorted(self._devices() - self._known)
        self._known = None
        if new:
            self._transcript.note(f"New: {'; '.join(new)}. Ctrl+P uses it.")
        elif not in_use:
            self._transcript.note("No other device was found.")

    def _change(self, key: str, config: Config) -> ReplaceParts:
        parts = self._parts
        assert parts is not None
        self._clip_stopped.set()
        self._stop_talking()
        match key.split("."):
            case ["audio", _]:
                return ReplaceParts(config, **self._device(key, config))
            case ["voice", _]:
                self._models_are_new = True
                return ReplaceParts(config, voice=parts.voice(config, self._inform) or "none")
            case _:
                self._models_are_new = True
                return ReplaceParts(config, brain=parts.brain(config, self._inform))

    def _device(self, key: str, config: Config) -> dict[str, Any]:
        """The one that `key` chooses, as an argument of ReplaceParts; nothing for other keys."""
        assert self._parts is not None
        match key:
            case "audio.input":
                return {"microphone": self._parts.microphone(config)}
            case "audio.output":
                return {"speaker": self._parts.speaker(config)}
            case _:
                return {}

    def _inform(self, sentence: str) -> None:
        """From any thread."""
        self._events.put(Notice(sentence, "information"))

    def action_save_settings(self) -> None:
        if not self._chosen:
            self.notify("Nothing was changed here that could be saved.")
            return
        try:
            path = save_values(self._chosen)
            used = found_file()
        except ConfigError as error:
            self._transcript.note(str(error), "error")
            return
        keys = ", ".join(self._chosen)
        self._chosen.clear()
        hidden = "" if used == path else f" ./{used} is used instead of it here."
        self._transcript.note(f"Saved {keys} to {path}.{hidden}")

    def action_help(self) -> None:
        self.push_screen(Help(self._keys))

    async def action_quit(self) -> None:
        self._clip_stopped.set()  # the app waits for its workers
        await super().action_quit()

    @on(Samples.Chosen)
    def _clip_chosen(self, message: Samples.Chosen) -> None:
        self.action_clip(message.number)

    def action_clip(self, number: int) -> None:
        if number > len(self._clips):
            if self._clips:
                self.notify(f"There are samples 1-{len(self._clips)}.", severity="warning")
            return
        if not self._can_answer():
            return
        self._clip_stopped.set()
        self._clip_stopped = threading.Event()
        self._stop_talking()
        _, path = self._clips[number - 1]
        self.run_worker(partial(self._speak, path, self._clip_stopped), thread=True, group="clip")

    def _speak(self, path: Path, stopped: threading.Event) -> None:
        """On a thread of its own."""
        assert self._speak_clip is not None
        try:
            self._speak_clip(self.engine, path, stopped)
        except InputError as error:
            self._events.put(Notice(str(error), "error"))
