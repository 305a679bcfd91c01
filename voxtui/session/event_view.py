"""One method for each event, so that a front end names only those that it shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from voxtui.dialogue import events
from voxtui.session.user_session import ClipEnded, Severity, UserSessionEvent

if TYPE_CHECKING:
    from voxtui.dialogue.data import ToolCall, Utterance
    from voxtui.dialogue.timestamps import Turn
    from voxtui.dialogue.tool_interface import CallReport
    from voxtui.errors import VoxtuiError


class EventView:
    """Shows events. A method that is not overridden shows nothing."""

    def show(self, event: UserSessionEvent) -> None:
        """Call the method of `event`. Raises what ended a thread."""
        match event:
            case events.ReplyText(turn, text):
                self.reply_text(turn, text)
            case events.Caption(turn, text, settled):
                self.caption(turn, text, settled)
            case events.StateChanged(state):
                self.state_changed(state)
            case events.Loading(step, fraction):
                self.loading(step, fraction)
            case events.Loaded():
                self.loaded(event)
            case events.LoadFailed(error):
                self.load_failed(error)
            case events.ChangeFailed(error):
                self.change_failed(error)
            case events.MicrophoneOpened(name):
                self.microphone_opened(name)
            case events.MicrophoneLost():
                self.microphone_lost()
            case events.TurnStarted():
                self.turn_started(event)
            case events.Captured(turn, utterance):
                self.captured(turn, utterance)
            case events.UserWords(turn, text, doubtful):
                self.user_words(turn, text, doubtful)
            case events.NoWords():
                pass  # only a server's client commits an utterance without an answer
            case events.PrefillProgress():
                self.reading(event)
            case events.SpokenUpTo(turn, text):
                self.spoken_up_to(turn, text)
            case events.Notice(message, severity):
                self.notice(message, severity)
            case events.Remark(sentence):
                self.remark(sentence)
            case events.KeyNeeded(turn, call):
                self.key_needed(turn, call)
            case events.ToolCalled():
                pass  # its end is shown, with the time
            case events.ToolEnded(turn, report):
                self.tool_ended(turn, report)
            case events.CountdownsChanged(countdowns):
                self.countdowns_changed(countdowns)
            case events.Rang(sentence):
                self.rang(sentence)
            case events.RingsIn() | events.Reminded():
                pass  # heard, not seen
            case ClipEnded(_, error):
                self.clip_ended(error)
            case events.TurnFinished(turn):
                self.turn_finished(turn)
            case events.Died(error):
                raise error

    def reply_text(self, turn: int, text: str) -> None: ...

    def caption(self, turn: int, text: str, settled: int) -> None: ...

    def state_changed(self, state: events.State) -> None: ...

    def loading(self, step: str, fraction: float | None) -> None: ...

    def loaded(self, loaded: events.Loaded) -> None: ...

    def load_failed(self, error: VoxtuiError) -> None: ...

    def change_failed(self, error: VoxtuiError) -> None: ...

    def microphone_opened(self, name: str) -> None: ...

    def microphone_lost(self) -> None: ...

    def turn_started(self, started: events.TurnStarted) -> None: ...

    def captured(self, turn: int, utterance: Utterance) -> None: ...

    def user_words(self, turn: int, text: str, doubtful: Sequence[int]) -> None: ...

    def reading(self, reading: events.PrefillProgress) -> None: ...

    def spoken_up_to(self, turn: int, text: str) -> None: ...

    def notice(self, message: str, severity: Severity) -> None: ...

    def remark(self, sentence: str) -> None: ...

    def key_needed(self, turn: int, call: ToolCall) -> None: ...

    def tool_ended(self, turn: int, report: CallReport) -> None: ...

    def countdowns_changed(self, countdowns: Sequence[events.Countdown]) -> None: ...

    def rang(self, sentence: str) -> None: ...

    def clip_ended(self, error: str) -> None: ...

    def turn_finished(self, turn: Turn) -> None: ...
