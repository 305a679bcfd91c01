"""Show each event of the engine in the widget that it concerns."""

from __future__ import annotations

from voxtui.dialogue import events
from voxtui.dialogue.events import Loaded, State
from voxtui.dialogue.timestamps import Outcome, Turn
from voxtui.errors import RestartNeeded, VoxtuiError
from voxtui.session.tool_lines import call_line, call_text
from voxtui.session.user_session import ClipEnded, Severity, UserSessionEvent
from voxtui.storage.device_offset import device_offset
from voxtui.ui.driver import gc_tuning
from voxtui.ui.main_screen import MainScreen
from voxtui.ui.menu.menu import Menu
from voxtui.ui.widgets.timers import Timers


class EventDisplay:
    def __init__(self, main: MainScreen, menu: Menu, timers: Timers) -> None:
        self._main = main
        self._menu = menu
        self._timers = timers
        self._turns = main.turns
        self._status = main.status
        self._explained = False
        """whether a notice explained why nothing was heard in this turn"""
        self._frozen = False
        """whether `gc_tuning.freeze`, which must be called once, was called"""

    def show(self, event: UserSessionEvent) -> None:
        """Show `event`, unless it is only audible. Raises the error of a failed thread."""
        turns, status = self._turns, self._status
        match event:
            case events.ReplyText(turn, text):
                turns.show_reply(turn, text)
            case events.Caption(turn, text, settled):
                if view := turns.view_of(turn):
                    view.caption(text, settled)
            case events.StateChanged(State.THINKING):
                turns.expect_reply()
            case events.StateChanged():
                turns.wait_no_more()
                self._main.show_state()
            case events.TurnStarted(turn) if turn <= self._main.session.dropped_turn:
                pass  # it was sent just before the new conversation
            case events.TurnStarted():
                self._explained = False
                status.begin_turn(event.source)
                turns.begin(event)
            case events.Captured(turn, utterance):
                if view := turns.view_of(turn):
                    view.show_utterance(utterance)
            case events.UserWords(turn, text, doubtful):
                if view := turns.view_of(turn):
                    view.show_words(text, doubtful)
            case events.SpokenUpTo(turn, text):
                turns.cut(turn, text)
            case events.TurnFinished(turn):
                self._finish_turn(turn)
            case events.PrefillProgress():
                status.show_reading(event)
            case events.Notice(message, severity):
                self._notice(message, severity)
            case events.Remark(sentence):
                turns.transcript.add_line("!", sentence)
            case events.KeyNeeded(_, call):
                turns.transcript.add_line("?", f"Enter: run `{call_text(call)}`. Esc: no.")
            case events.ToolEnded(_, report):
                turns.transcript.add_line("›", call_line(report))
            case events.CountdownsChanged(countdowns):
                self._timers.use(countdowns)
            case events.Rang(sentence):
                turns.transcript.add_line("◔", sentence)
                self._main.program.notify_outside(sentence)
            case ClipEnded(error=error) if error:
                self._main.notify(error, severity="error")
            case events.Loading(step, fraction):
                status.show_loading(step, fraction)
            case events.Loaded():
                self._loaded(event)
            case events.LoadFailed(error):
                self._load_failed(error)
            case events.ChangeFailed(error):
                self._menu.change_failed(error)
            case events.MicrophoneOpened(name):
                self._use_microphone(name)
            case events.MicrophoneLost():
                self._use_microphone(None)
            case events.Died(error):
                raise error
            case _:
                pass

    def _loaded(self, loaded: Loaded) -> None:
        session, panel = self._main.session, self._turns.panel
        self._main.program.clear_notifications()  # "still loading" is no longer true
        self._status.show_loaded(loaded)
        self._main.offer_keys()
        self._menu.loaded(loaded)
        panel.judge_by(session.config.targets.resolved(loaded.brain_name))
        panel.devices_add(device_offset(loaded.speaker))
        if session.models_are_new:
            panel.models_loaded()
        if not self._frozen:
            self._frozen = True
            gc_tuning.freeze()

    def _load_failed(self, error: VoxtuiError) -> None:
        if isinstance(error, RestartNeeded):  # which `ui_command.run` raises again
            self._main.app.exit()  # pyright: ignore[reportUnknownMemberType]
        else:
            self._status.show_failed(error)
            self._main.offer_keys()

    def _use_microphone(self, name: str | None) -> None:
        self._status.use_microphone(name)
        self._main.offer_keys()

    def _finish_turn(self, turn: Turn) -> None:
        if turn.outcome is Outcome.NO_SPEECH and not self._explained:
            self._main.notify("Nothing was heard.")
        elif turn.outcome is Outcome.FAILED:
            self._status.show_problem(turn.error or "The turn failed.")
        if self._turns.finish(turn):
            self._main.program.call_after_refresh(gc_tuning.collect, self._turns.over)

    def _notice(self, message: str, severity: Severity) -> None:
        if severity == "error":
            self._status.show_problem(message)
            return
        self._explained |= severity != "information"
        self._main.notify(message, severity=severity)
