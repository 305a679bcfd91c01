"""Speak what timers and reminders say, once neither side speaks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from voxtui.dialogue.commands import Ring
from voxtui.dialogue.components.components import Components
from voxtui.dialogue.events import Event, Rang, State
from voxtui.dialogue.inbox import Inbox
from voxtui.dialogue.listening.listener import Listener
from voxtui.dialogue.turn.turn import speak_alone
from voxtui.dialogue.turn_handle import TurnHandle


class Announcer:
    """Keeps the sentences that are due, and speaks them. They are not turns: no history, no times.

    Used on the engine's thread, except as noted.
    """

    def __init__(
        self,
        inbox: Inbox,
        components: Components,
        listener: Listener,
        emit: Callable[[Event], object],
        set_state: Callable[[State], None],
    ) -> None:
        self._inbox = inbox
        self._components = components
        self._listener = listener
        self._emit = emit
        self._set_state = set_state
        self._due: deque[str] = deque()
        self._rung = 0

    def report(self, event: Event) -> None:
        """Report an event of the skills, and have it spoken. Runs on their thread."""
        self._emit(event)
        if isinstance(event, Rang):
            self._inbox.post(Ring(event.sentence))

    def add(self, sentence: str) -> None:
        self._due.append(sentence)

    def next(self) -> str | None:
        """Take out the next sentence; None: there is none, or it cannot be spoken."""
        sentence = self._due.popleft() if self._due else None
        return sentence if sentence is not None and self._components.can_speak() else None

    def ring(self, sentence: str) -> None:
        """Speak a sentence twice."""
        self._rung += 1
        handle = TurnHandle(-self._rung)
        self._inbox.answering = handle
        twice = f"{sentence} {sentence}"
        try:
            speak_alone(twice, handle, self._components, self._emit, self._set_state)
        finally:
            handle.over = True
            self._inbox.answering = None
            self._listener.note_speech(handle.timestamps, sentence)
        self._set_state(State.READY)
