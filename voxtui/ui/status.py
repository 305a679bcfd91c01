"""Shows the state: in the top line, the banner, the talk bar and the first lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from voxtui.controls import LocalControls
from voxtui.dialogue.events import Loaded, State
from voxtui.dialogue.level import decibels, diagnose_level
from voxtui.errors import ModelMissing, VoxtuiError
from voxtui.ui.conversation.transcript import Transcript
from voxtui.ui.menu import LOOK_AGAIN
from voxtui.ui.startup import (
    NO_SIGNAL,
    TITLE,
    Line,
    Samples,
    Steps,
    first_steps,
    microphone_line,
    summary,
)
from voxtui.ui.talkbar import TalkBar, loudness
from voxtui.ui.talkkey import Mode

LEVEL_SECONDS = 1.0
"""Seconds between two values of the level; each is the loudest since the one before."""

LEVEL_CHECK_SECONDS = 3.0
"""Seconds after which a microphone without any sound is reported."""

BADGES = {
    State.LOADING: "◌ LOADING",
    State.READY: "○ READY",
    State.LISTENING: "● LISTENING",
    State.THINKING: "◐ THINKING",
    State.SPEAKING: "♪ SPEAKING",
}

NOT_LOADED = "✗ NOT LOADED"

WITHOUT = "✗ no microphone"
"""Takes the place of the mode of talking."""

LOST = "No microphone left."

STATE_CLASSES = (*(f"-{state}" for state in State), "-failed")


class TopLine(Horizontal):
    """The name, the state, the mode of talking, and the brain."""

    def __init__(self) -> None:
        super().__init__(id="top")
        # Kept, not looked up: a look-up fails while another screen lies over this one.
        self.badge = Static(BADGES[State.LOADING], id="state", markup=False)
        self._mode = Static(id="mode", markup=False)
        self._brain = Static(id="brain", markup=False)
        self._about = Static(id="about", markup=False)
        self._muted = Static("voice muted", id="muted")

    def compose(self) -> ComposeResult:
        yield Static("voxtui", id="name")
        yield self.badge
        yield self._mode
        yield self._brain
        yield self._about
        yield self._muted

    def show_mode(self, mode: Mode | None) -> None:
        """Show the mode of talking. `mode` None: no microphone is in use."""
        text = WITHOUT if mode is None else mode.value
        if text != self._mode.content:
            self._mode.set_class(mode is None, "without")
            self._mode.update(text)

    def show_brain(self, description: str) -> None:
        name, bracket, about = description.partition(" (")
        self._brain.update(name)
        self._about.update(bracket + about)

    def show_muted(self, muted: bool) -> None:
        self._muted.set_class(muted, "shown")


class MicrophoneLevel:
    """The level of the microphone in use, and the likely cause of silence."""

    def __init__(self) -> None:
        self.name: str | None = ""
        self.loudest = 0.0
        """peak, 0..1, since the microphone was chosen"""
        self.peak: float | None = None
        """peak, 0..1, since the level was last shown"""
        self.diagnosis: str | None = None

    def use(self, name: str | None) -> None:
        self.name, self.loudest, self.peak, self.diagnosis = name, 0.0, None, None

    def hear(self, level: float) -> None:
        self.loudest = max(self.loudest, level)
        self.peak = max(self.peak or 0.0, level)
        if self.loudest:
            self.diagnosis = None

    def line(self, level: str) -> Line:
        return microphone_line(self.name, level, self.diagnosis)


class Status:
    """Keeps the widgets around the conversation in step with the controls."""

    def __init__(
        self,
        controls: LocalControls,
        transcript: Transcript,
        bar: TalkBar,
        mode: Callable[[], Mode],
        spoken_seconds: Callable[[], float],
    ) -> None:
        self.top = TopLine()
        self.banner = Static(id="banner", markup=False)
        self.samples = Samples(controls.clips.names)
        self.level = MicrophoneLevel()
        self._controls = controls
        self._transcript = transcript
        self._bar = bar
        self._mode = mode
        self._spoken_seconds = spoken_seconds
        config = controls.config
        self._key_name = config.ui.talk_key.capitalize()
        self._sends_to = config.brain.remote.hosts if config.brain.name == "remote" else ""
        self._steps = Steps()
        self._microphone_line = self.level.line("")
        self._found: Sequence[Line] = ()
        """the steps of loading, later the parts in use"""

    # Loading.

    def show_loading(self, step: str, fraction: float | None) -> None:
        self._found = self._steps.add(step, fraction)
        self.show_head()
        self.show_state()

    def show_loaded(self, loaded: Loaded) -> None:
        self._sends_to = loaded.sends_to
        self._steps, self._found = Steps(), summary(loaded)
        self.use_microphone(loaded.microphone)
        self.top.show_brain(loaded.brain)

    def show_failed(self, error: VoxtuiError) -> None:
        """Show the error of a failed start, and the keys that may help."""
        self.level.use("")
        self._bar.name_source("")
        self.samples.offer(False)
        self._transcript.show_head(TITLE, self._steps.failed())
        retry = "r: try again."
        if isinstance(error, ModelMissing):
            self._show_banner(error.message, f"f: fetch it now ({_gigabytes(error)}). {retry}")
        else:
            self._show_banner(error.message, f"{error.hint} {retry}".lstrip())
        self.show_state()

    def begin_again(self) -> None:
        """Clear what a failed start has shown."""
        self._steps = Steps()
        self.banner.remove_class("shown")
        self.show_state()

    def show_head(self) -> None:
        """Show the first lines of the screen, which scroll away."""
        mode = None if self.level.name is None else self._mode()
        steps = first_steps(mode, self._key_name, self._microphone_line, self._sends_to)
        self._transcript.show_head(TITLE, [*steps, *self._found])

    # The microphone.

    def use_microphone(self, name: str | None) -> None:
        """Show the microphone that is in use; None: no microphone."""
        before = self.level.name
        if name != before:
            self.level.use(name)
            self._bar.name_source(name or f"Ctrl+P: {LOOK_AGAIN}")
            self._microphone_line = self.level.line("")
            if name is not None:
                check = partial(self.check_level, name, bool(before))
                self.top.set_timer(LEVEL_CHECK_SECONDS, check)
        if name is None and before:
            self._show_banner(LOST, f"Plug one in, then Ctrl+P: {LOOK_AGAIN}.")
        elif name is not None:
            self.banner.remove_class("shown")
        self.samples.offer(name is None)
        self.show_head()
        self.show_mode()

    def hear(self, level: float) -> None:
        """Show a peak of 0..1 in the meter."""
        self.level.hear(level)
        self._bar.meter.show(loudness(level))

    def check_level(self, microphone: str, announce: bool) -> None:
        """Report a microphone without any sound; `announce`: report its level otherwise.

        Only digital silence is reported, because the user may not have spoken yet.
        """
        if self.level.name != microphone or not self._transcript.is_attached:
            return
        self.level.hear(self._controls.engine.level)  # a busy machine may have had no tick
        if not self.level.loudest:
            self.level.diagnosis = diagnose_level(microphone, 0.0)
            if self.level.diagnosis and self._in_conversation:
                self._transcript.note(self.level.diagnosis, "warning")
            self._show_microphone("")
        elif announce:
            level = f"{decibels(self.level.loudest)} at most in {LEVEL_CHECK_SECONDS:g} s"
            self._transcript.note(f"Level of {microphone}: {level}.")

    def show_level(self) -> None:
        """Show the microphone's level as a number."""
        if not self._transcript.is_attached:
            return
        if self.level.name and self.level.peak is not None:
            level = decibels(self.level.peak)
            self._bar.name_source(f"{self.level.name}  {level}")
            self._show_microphone(level)
        self.level.peak = None

    def _show_microphone(self, level: str) -> None:
        """Change the microphone's line at the top; after the first turn only remove a diagnosis."""
        line = self.level.line("" if self._in_conversation else level)
        reported = self._microphone_line[1].startswith(NO_SIGNAL)
        withdrawn = reported and not self.level.diagnosis
        if line != self._microphone_line and (withdrawn or not self._in_conversation):
            self._microphone_line = line
            self.show_head()

    @property
    def _in_conversation(self) -> bool:
        return self._controls.turn is not None

    # State and mode.

    def show_state(self) -> None:
        failed, state = self._controls.failed is not None, self._controls.state
        self.top.badge.update(NOT_LOADED if failed else BADGES[state], layout=False)
        shown = "-failed" if failed else f"-{state}"
        # The class is not set on the screen, because that would restyle the whole conversation.
        for widget in (self.top.badge, self._bar):
            if not widget.has_class(shown):
                widget.remove_class(*STATE_CLASSES, update=False)
                widget.add_class(shown)
        self.show_hint()

    def show_mode(self) -> None:
        if self.level.name is None:
            self.top.show_mode(None)
            self._bar.explain("type, or let it hear a sample")
        else:
            mode, key = self._mode(), self._key_name
            self.top.show_mode(mode)
            instead = f", or {'hold' if mode is Mode.HOLD else 'press'} {key} to talk"
            match mode:
                case Mode.HOLD:
                    self._bar.explain(f"hold: {key} down, speak, let go", instead)
                case Mode.TOGGLE:
                    self._bar.explain(f"toggle: {key} starts, {key} ends", instead)
                case Mode.MOUSE:
                    self._bar.explain("mouse: speak, let go of the button")
                case Mode.HANDS_FREE:
                    self._bar.explain("hands-free: just speak")
        self.show_hint()

    def show_hint(self) -> None:
        """Show the present action of the keys in the talk bar."""
        self._bar.hint(self._hint())

    def _hint(self) -> str:
        if failed := self._controls.failed:
            missing = isinstance(failed, ModelMissing)
            return f"f: fetch {_gigabytes(failed)}" if missing else "r: try again"
        key, mode, clips = self._key_name, self._mode(), len(self._controls.clips.names)
        match self._controls.state:
            case State.LOADING:
                return self._steps.latest or "Loading…"
            case State.READY if self.level.name and mode is Mode.HANDS_FREE:
                return "Speak"
            case State.READY if self.level.name:
                return f"{'Hold' if mode is Mode.HOLD else 'Press'} {key} and speak"
            case State.READY:
                return f"Press 1-{clips} or /" if clips else "Press / and type"
            case State.LISTENING if self._controls.talking is not None:
                ends = key if mode is Mode.TOGGLE else "let go"
                return f"{self._spoken_seconds():.1f} s  {ends}: send · Esc: drop"
            case State.LISTENING:
                return f"{self._spoken_seconds():.1f} s  Esc: drop"
            case State.THINKING:
                return "Esc stops"
            case State.SPEAKING:
                return f"{key} talks over it, Esc stops it"

    def _show_banner(self, message: str, hint: str) -> None:
        self.banner.update(f"✗ {message}" + (f"\n  {hint}" if hint else ""))
        self.banner.add_class("shown")


def _gigabytes(missing: ModelMissing) -> str:
    return f"{missing.size / 1e9:.1f} GB"
