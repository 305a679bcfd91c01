"""Show the state in the talk bar, in the top line, and in the banner if there is a problem."""

from __future__ import annotations

from functools import partial

from textual.content import Content
from textual.widgets import Static

from voxtui.dialogue.data import MICROPHONE
from voxtui.dialogue.events import Loaded, PrefillProgress, State
from voxtui.dialogue.listening.level import MONITOR, decibels, diagnose_level
from voxtui.dialogue.listening.listener import ENDING_SECONDS
from voxtui.errors import ModelMissing, VoxtuiError
from voxtui.session.local_session import LocalSession
from voxtui.ui.conversation.turn_views import TurnViews
from voxtui.ui.menu.menu import MICROPHONE as MICROPHONES
from voxtui.ui.startup import Samples, not_loaded, welcome
from voxtui.ui.talk.talk import PushToTalk
from voxtui.ui.talk.talkbar import loudness
from voxtui.ui.talk.talkkey import Mode
from voxtui.ui.widgets.banner import Banner

LEVEL_SECONDS = 1.0
"""Interval between values of the level; each is the maximum since the one before."""

STEADY = 10 ** (3 / 20)
"""Ratio of 3 dB. A level that differs by less is not painted again, because noise varies."""

LEVEL_CHECK_SECONDS = 3.0
"""Time after which a microphone without any sound counts as silent."""

SILENT = "Only silence comes from the microphone: is it muted?"
"""The problem of a silent microphone, short enough for 80 columns with its remedy."""

NO_MICROPHONE = "No microphone is in use."


class TopLine(Static):
    """The name, the model, and who receives the user's words."""

    def __init__(self) -> None:
        self._model = self._muted = Content()
        super().__init__(self._line(), id="top", markup=False)

    def _line(self) -> Content:
        parts = Content.styled("voxtui", "bold $text-primary"), self._muted, self._model
        return Content("  ").join(filter(None, parts))

    def show_model(self, loaded: Loaded) -> None:
        there = loaded.sends_to
        words = f"{there} gets your voice and words" if there else model_name(loaded.brain)
        self._model = Content.styled(words, "$text-warning" if there else "$text-muted")
        self.update(self._line(), layout=False)  # a layout paints everything

    def show_muted(self, muted: bool) -> None:
        self._muted = Content.styled("voice muted" if muted else "", "bold $text-warning")
        self.update(self._line(), layout=False)


def model_name(brain: str) -> str:
    """Return the makers' name of a model, from the description of a brain."""
    name, _, about = brain.partition(" (")
    return about.rstrip(")").partition(",")[0] or name.partition(": ")[2] or name


class MicrophoneLevel:
    """The level of the microphone in use, and the likely cause of silence."""

    def __init__(self) -> None:
        self.name: str | None = ""
        self.loudest = 0.0
        """the peak, 0 to 1, since the microphone was chosen"""
        self.peak = self.shown = 0.0
        """the peak, 0 to 1, of the second in progress, and the one on display"""
        self.silent = False
        """whether it delivered nothing but digital silence"""
        self.used = False
        """whether somebody has spoken to it, so that the banner reports its silence"""

    def use(self, name: str | None) -> None:
        self.name, self.loudest, self.silent, self.used = name, 0.0, False, False
        self.peak = self.shown = 0.0

    def hear(self, level: float) -> None:
        self.loudest = max(self.loudest, level)
        self.peak = max(self.peak, level)

    @property
    def hears(self) -> bool:
        """False without a microphone, or if it stays digitally silent while it is used.

        Before its use silence proves nothing: noise suppression also delivers it while nobody
        speaks.
        """
        return self.name is not None and not (self.silent and self.used)


class Status:
    """Keeps the widgets around the conversation in step with the session."""

    def __init__(self, session: LocalSession, talk: PushToTalk, turns: TurnViews) -> None:
        self.top = TopLine()
        self.banner = Banner()
        self.samples = Samples(session.clips.names)
        self.level = MicrophoneLevel()
        self._session = session
        self._talk = talk
        self._turns = turns
        self._transcript = turns.transcript
        self._bar = talk.bar
        self._reason = ""
        config = session.config
        self._key_name = config.ui.talk_key.capitalize()
        self._sends_to = config.brain.remote.hosts if config.brain.name == "remote" else ""
        self._model = ""
        self._step = ""
        """the loading step in progress, with its percentage"""
        self._reading = ""
        """the progress of reading a long text; empty for none"""
        self.tokens_per_second: float | None = None
        self._stalls = False

    # Loading.

    def show_loading(self, step: str, fraction: float | None) -> None:
        self._step = step if fraction is None else f"{step} {fraction:.0%}"
        self.show_hint()

    def show_loaded(self, loaded: Loaded) -> None:
        self._sends_to, self._step, self._model = loaded.sends_to, "", model_name(loaded.brain)
        self.use_microphone(loaded.microphone)
        self._show_silence()  # hands-free may be new
        self.top.show_model(loaded)
        self.show_welcome()

    def show_failed(self, error: VoxtuiError) -> None:
        self.level.use("")
        self._bar.name_source("")
        self.samples.offer(False)
        if isinstance(error, ModelMissing):
            size = f"{error.size / 1e9:.1f} GB"
            self.banner.show(error.message, f"fetch it ({size})", "screen.fetch")
        else:
            self.banner.show(f"{error.message} {error.hint}".rstrip(), "try again", "screen.again")
        self.show_mode()
        self.show_state()

    def begin_again(self) -> None:
        self._step = ""
        self.banner.withdraw()
        self.show_mode()
        self.show_state()

    def show_welcome(self) -> None:
        if self._session.failed:
            entries = not_loaded()
        else:
            mode = self._talk.mode if self.level.hears else None
            samples = self.level.name is None and bool(self._session.clips.names)
            entries = welcome(mode, self._session.config, self._model, self._sends_to, samples)
        self._transcript.show_welcome(entries)

    def begin_conversation(self) -> None:
        self.samples.offer(self.level.name is None)
        self.show_welcome()

    # Problems.

    def show_problem(self, message: str) -> None:
        """Show a problem for which there is no key. The next turn removes it."""
        self._reason = message
        if self.level.name is None:
            self._show_no_microphone()
        else:
            self.banner.show(message)

    def begin_turn(self, source: str) -> None:
        """Remove an outdated problem. Report a microphone that is silent although it is used."""
        self.samples.offer(False)
        self._reason = ""
        self.level.used |= source == MICROPHONE
        if self.level.name is not None:
            self.banner.withdraw()
            self._show_silence()
            self.show_mode()
        else:
            self._show_no_microphone()

    # The microphone.

    def use_microphone(self, name: str | None) -> None:
        before, mended = self.level.name, self.level.name is None or self.level.silent
        if name != before:
            self.level.use(name)
            self._bar.name_source(name or "")
            if name is not None:
                check = partial(self.check_level, name, bool(before))
                self.top.set_timer(LEVEL_CHECK_SECONDS, check)
        if name is None:
            self._show_no_microphone()
        elif (mended and name != before) or repr(name) in self._reason:
            self.banner.withdraw()  # it is back, maybe at once and under the same name
        self.samples.offer(name is None and not self._turns.number)
        self.show_mode()

    def _show_no_microphone(self) -> None:
        self.banner.show(self._reason or NO_MICROPHONE, "look again", "app.look")

    def hear(self, level: float) -> None:
        """Take a peak from 0 to 1. Show it at once while somebody speaks, else once a second."""
        self.level.hear(level)
        if self.level.silent and level:
            self.level.silent = False
            if not self._reason:
                self.banner.withdraw()
            self.show_mode()
        if self._session.state is State.LISTENING:
            self._show_peak(level)

    def check_level(self, microphone: str, announce: bool) -> None:
        """Detect a digitally silent microphone; report the level of any other if `announce`."""
        if self.level.name != microphone or not self._transcript.is_attached:
            return
        self.level.hear(self._session.engine.level)  # a busy machine may have had no tick
        if not self.level.loudest:
            self.level.silent = True
            self._show_silence()
            self.show_mode()
        elif announce:
            level = f"{decibels(self.level.loudest)} at most in {LEVEL_CHECK_SECONDS:g} s"
            self.top.notify(f"Level of {microphone}: {level}.")

    def _show_silence(self) -> None:
        """Report a silent microphone once somebody speaks to it; typing does not need it."""
        if self.level.silent and (self.level.used or self._talk.mode is Mode.HANDS_FREE):
            name = self.level.name or ""
            why = diagnose_level(name, 0.0) if MONITOR in name.lower() else SILENT
            choose = f"app.choose({MICROPHONES!r})"
            self.banner.show(why or SILENT, "choose another", choose, error=False)

    def show_level(self) -> None:
        peak, self.level.peak = self.level.peak, 0.0
        steady = self.level.shown / STEADY < peak < self.level.shown * STEADY
        if not steady and self._session.state is not State.LISTENING:
            self._show_peak(peak)

    def _show_peak(self, peak: float) -> None:
        self.level.shown = peak
        self._bar.meter.show(loudness(peak))

    # State and mode.

    def show_state(self) -> None:
        self._bar.show_state(None if self._session.failed else self._session.state, self._stalls)
        self.show_hint()

    def follow_sound(self) -> None:
        """Show whether the speaker takes the sound of an answer."""
        stalls = self._session.state is State.SPEAKING and self._turns.stalls
        if stalls != self._stalls:
            self._stalls = stalls
            self.show_state()

    def show_mode(self) -> None:
        """Show another way of talking after a change of terminal, microphone or setting."""
        instead, mode = "", self._talk.mode
        if self.level.hears and not self._session.failed:
            if mode is Mode.HANDS_FREE:
                name = self._session.config.vad.name
                instead = f', or say "{name}"' if name else ", or speak"
            elif mode is not Mode.MOUSE:
                press = "hold" if mode is Mode.HOLD else "press"
                instead = f", or {press} {self._key_name} to talk"
        self._bar.explain(instead)
        self.show_welcome()
        self.show_hint()

    def show_hint(self) -> None:
        hint = self._hint()
        self._bar.hint(hint, progress=bool(hint) and hint == self._reading)

    def show_reading(self, reading: PrefillProgress) -> None:
        left = "" if reading.seconds_left is None else f", {reading.seconds_left:.0f} s left"
        progress = f"{reading.done:,} of {reading.total:,} tokens read{left}"
        self._reading = "" if reading.ended else progress
        if reading.seconds_left:
            self.tokens_per_second = (reading.total - reading.done) / reading.seconds_left
        self.show_hint()

    def _hint(self) -> str:
        if self._session.failed:
            return "What you type is kept"
        if self._reading and self._session.state in (State.READY, State.THINKING):
            return self._reading
        key, mode, state = self._key_name, self._talk.mode, self._session.state
        match state:
            case State.LOADING:
                return f"{self._step} · you can type already" if self._step else ""
            case State.READY if self.level.hears and mode is Mode.HANDS_FREE:
                name = self._session.config.vad.name
                return f'Say "{name}", or type' if name else "Speak, or type"
            case State.READY if self.level.hears:
                return f"{'Hold' if mode is Mode.HOLD else 'Press'} {key} and speak, or type"
            case State.READY:
                return "Type"
            case State.LISTENING if self._session.talking is not None:
                ends = "let go" if self._talk.is_held else key
                return f"{self._recorded()}{ends}: send · Esc: drop"
            case State.LISTENING:
                return f"{self._recorded()}Esc: drop"
            case State.THINKING:
                return "Esc: stop"
            case State.SPEAKING if self._stalls:
                return "The speaker takes no sound · Esc: stop"
            case State.SPEAKING if (
                mode is Mode.HANDS_FREE and not self._session.hears_over_an_answer
            ):
                return f"Not listening · {key}: talk over it · Esc: stop"
            case State.SPEAKING:
                return f"{key}: talk over it · Esc: stop"

    def _recorded(self) -> str:
        """Return the seconds of speech so far and, near the end of a recording, those left."""
        left = self._session.engine.seconds_left
        ending = left is not None and left <= ENDING_SECONDS
        return f"{self._turns.spoken_seconds:.1f} s{f', {left:.0f} s left' if ending else ''}  "
