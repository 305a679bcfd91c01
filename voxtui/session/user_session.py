"""What a person can ask of an engine, for any front end and without a device."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from voxtui.dialogue import events
from voxtui.dialogue.data import Frame
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import (
    Attach,
    Command,
    Confirm,
    NewConversation,
    NewTurn,
    Speak,
)
from voxtui.dialogue.events import State
from voxtui.dialogue.protocols import Past
from voxtui.errors import VoxtuiError

Severity: TypeAlias = Literal["information", "warning", "error"]

STRAY_KEY_SECONDS = 0.4

MakeEngine: TypeAlias = Callable[[Callable[[events.Event], object]], "Engine"]
"""Makes an engine that passes its events to the argument."""


class NotAllowed(Exception):
    """An action is not possible now. The message is one or two sentences for the user."""

    def __init__(self, message: str, severity: Severity = "warning") -> None:
        super().__init__(message)
        self.severity: Severity = severity


@dataclass(frozen=True, slots=True)
class ClipEnded:
    """A sample clip ended: it was spoken, stopped or unreadable."""

    clip: threading.Event = field(repr=False)
    """the flag that stops the clip"""
    error: str = ""


UserSessionEvent: TypeAlias = events.Event | ClipEnded


class UserSession:
    def __init__(
        self, make_engine: MakeEngine, deliver: Callable[[UserSessionEvent], object]
    ) -> None:
        self.engine = make_engine(deliver)
        self.failed: VoxtuiError | None = None
        """the error because of which the models were not loaded"""
        self._unfinished: set[int] = set()
        self.dropped_turn = 0
        """the newest turn of the previous conversation, which may still begin"""
        self.awaits_key: events.KeyNeeded | None = None
        self._key_needed_at = 0.0

    @property
    def state(self) -> State:
        return self.engine.state

    @property
    def busy(self) -> bool:
        return bool(self._unfinished)

    @property
    def _loads(self) -> bool:
        return self.state is State.LOADING

    def start(self, past: Past = ()) -> None:
        self.engine.start(past)

    def begin_closing(self) -> None:
        """Begin to close, and return at once. `close` must follow."""
        self.engine.close(0)

    def close(self, seconds: float | None = None) -> None:
        self.engine.close(seconds)

    def take(self, event: UserSessionEvent) -> None:
        """Update the state by an event of the engine. Call it before the event is shown."""
        match event:
            case events.LoadFailed(error):
                self.failed = error
            case events.Loaded():
                self.failed = None
            case events.TurnFinished(turn):
                # A turn finishes before the next one begins.
                older = {number for number in tuple(self._unfinished) if number <= turn.number}
                self._unfinished -= older
                self.awaits_key = None
            case events.KeyNeeded():
                self.awaits_key, self._key_needed_at = event, time.monotonic()
            case events.ToolEnded():
                self.awaits_key = None
            case _:
                pass

    def post(self, command: Command) -> int:
        """Post `command` to the engine. Returns the number of the turn that it begins or ends.

        Raises NotAllowed if no turn can begin now, or if an attached text is empty.
        """
        if isinstance(command, NewTurn | Speak):
            self._require_model()
        if isinstance(command, NewTurn):
            if turn := self.engine.post(command):
                self._unfinished.add(turn)
            return turn
        if isinstance(command, NewConversation):
            self.dropped_turn = max(self._unfinished, default=self.dropped_turn)
        if isinstance(command, Attach) and not command.attachment.text.strip():
            raise NotAllowed(f"There is no text in {command.attachment.name}.")
        return self.engine.post(command)

    def confirm(self, yes: bool) -> None:
        """Answer, by a key, the question whether a tool may run.

        A yes right after the question is ignored: that key was meant for something else.
        """
        asked = self.awaits_key
        if asked is None or (yes and time.monotonic() - self._key_needed_at < STRAY_KEY_SECONDS):
            return
        self.awaits_key = None
        self.engine.post(Confirm(asked.turn, yes))

    def push(self, frame: Frame) -> None:
        self.engine.push(frame)

    def _require_model(self) -> None:
        if self.failed:
            raise NotAllowed(
                "No model is loaded. Text that you send is answered once one is.", "error"
            )
        if self._loads:
            raise NotAllowed(
                "The models are still loading. Text that you send is answered after that.",
                "information",
            )
