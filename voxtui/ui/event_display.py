"""Shows each event of the engine in the part of the screen that it concerns."""

from __future__ import annotations

from collections.abc import Sequence

from voxtui.dialogue.data import ToolCall, Utterance
from voxtui.dialogue.events import Countdown, Loaded, PrefillProgress, State, TurnStarted
from voxtui.dialogue.timestamps import Outcome, Turn
from voxtui.dialogue.tools import CallReport
from voxtui.errors import RestartNeeded, VoxtuiError
from voxtui.session.event_view import EventView
from voxtui.session.tool_lines import call_line, call_text
from voxtui.session.user_session import Severity
from voxtui.storage.turn_metrics import DeviceOffset
from voxtui.ui.main_screen import MainScreen
from voxtui.ui.menu.menu import Menu
from voxtui.ui.terminal import gc_tuning
from voxtui.ui.terminal.terminal_app import TerminalNotification
from voxtui.ui.timers import Timers


class EventDisplay(EventView):
    """The screen's side of the engine's events. UI thread."""

    def __init__(self, main: MainScreen, menu: Menu, timers: Timers) -> None:
        self.device_offset: DeviceOffset = lambda speaker: None
        """the measured delay of a speaker"""
        self._main = main
        self._menu = menu
        self._timers = timers
        self._turns = main.turns
        self._status = main.status
        self._explained = False
        """a notice gave the reason why nothing was heard in this turn"""
        self._frozen = False
        """`gc_tuning.freeze` was called, which must happen once"""

    # Start, devices and changes.

    def state_changed(self, state: State) -> None:
        if state is State.THINKING:
            self._turns.expect_reply()
        else:
            self._turns.wait_no_more()
            self._main.show_state()

    def loading(self, step: str, fraction: float | None) -> None:
        self._status.show_loading(step, fraction)

    def loaded(self, loaded: Loaded) -> None:
        session, panel = self._main.session, self._turns.panel
        self._main.program.clear_notifications()  # "still loading" is no longer true
        self._status.show_loaded(loaded)
        self._main.offer_keys()
        self._menu.loaded(loaded)
        panel.judge_by(session.config.targets.resolved(loaded.brain_name))
        panel.devices_add(self.device_offset(loaded.speaker))
        if session.models_are_new:
            panel.models_loaded()
        if not self._frozen:
            self._frozen = True
            gc_tuning.freeze()

    def load_failed(self, error: VoxtuiError) -> None:
        if isinstance(error, RestartNeeded):  # which `ui_command.run` raises again
            self._main.app.exit()  # pyright: ignore[reportUnknownMemberType]
        else:
            self._status.show_failed(error)
            self._main.offer_keys()

    def change_failed(self, error: VoxtuiError) -> None:
        self._menu.change_failed(error)

    def microphone_opened(self, name: str) -> None:
        self._status.use_microphone(name)
        self._main.offer_keys()

    def microphone_lost(self) -> None:
        self._status.use_microphone(None)
        self._main.offer_keys()

    # Turns.

    def turn_started(self, started: TurnStarted) -> None:
        self._explained = False
        self._status.begin_turn(started.source)
        self._turns.begin(started)

    def caption(self, turn: int, text: str, settled: int) -> None:
        self._turns.caption(turn, text, settled)

    def captured(self, turn: int, utterance: Utterance) -> None:
        self._turns.show_utterance(turn, utterance)

    def user_words(self, turn: int, text: str, doubtful: Sequence[int]) -> None:
        self._turns.show_words(turn, text, doubtful)

    def reading(self, reading: PrefillProgress) -> None:
        self._status.show_reading(reading)

    def reply_text(self, turn: int, text: str) -> None:
        self._turns.show_reply(turn, text)

    def spoken_up_to(self, turn: int, text: str) -> None:
        self._turns.cut(turn, text)

    def turn_finished(self, turn: Turn) -> None:
        if turn.outcome is Outcome.NO_SPEECH and not self._explained:
            self._main.notify("Nothing was heard.")
        elif turn.outcome is Outcome.FAILED:
            self._status.show_problem(turn.error or "The turn failed.")
        if self._turns.finish(turn):
            self._main.program.call_after_refresh(gc_tuning.collect, self._turns.over)

    # Sentences.

    def notice(self, message: str, severity: Severity) -> None:
        if severity == "error":
            self._status.show_problem(message)
            return
        self._explained |= severity != "information"
        self._main.notify(message, severity=severity)

    def key_needed(self, turn: int, call: ToolCall) -> None:
        question = f"Enter: run `{call_text(call)}`. Esc: no."
        self._turns.transcript.add_line("?", question)

    def tool_ended(self, turn: int, report: CallReport) -> None:
        self._turns.transcript.add_line("›", call_line(report))

    def remark(self, sentence: str) -> None:
        self._turns.transcript.add_line("!", sentence)

    def clip_ended(self, error: str) -> None:
        if error:
            self._main.notify(error, severity="error")

    def countdowns_changed(self, countdowns: Sequence[Countdown]) -> None:
        self._timers.use(countdowns)

    def rang(self, sentence: str) -> None:
        """Show a timer or reminder that is due, and have the terminal notify."""
        self._turns.transcript.add_line("◔", sentence)
        self._main.post_message(TerminalNotification(sentence))
