"""Speak what timers and reminders say, once neither side speaks."""

from __future__ import annotations

from collections import deque

from voxtui.dialogue.commands import Ring
from voxtui.dialogue.dialogue import Dialogue
from voxtui.dialogue.events import Event, Rang, State
from voxtui.dialogue.turn.turn import speak_alone
from voxtui.dialogue.turn_handle import TurnHandle


class Announcer:
    """Keeps the sentences that are due, and speaks them. They are not turns: no history, no times.

    Used on the engine's thread, except as noted.
    """

    def __init__(self, dialogue: Dialogue) -> None:
        self._dialogue = dialogue
        self._due: deque[str] = deque()
        self._rung = 0

    def report(self, event: Event) -> None:
        """Report an event of the skills, and have it spoken. Runs on their thread."""
        self._dialogue.emit(event)
        if isinstance(event, Rang):
            self._dialogue.inbox.post(Ring(event.sentence))

    def add(self, sentence: str) -> None:
        self._due.append(sentence)

    def next(self) -> str | None:
        """Take out the next sentence; None: there is none, or it cannot be spoken."""
        sentence = self._due.popleft() if self._due else None
        return sentence if sentence is not None and self._dialogue.components.can_speak() else None

    def ring(self, sentence: str) -> None:
        """Speak a sentence twice."""
        self._rung += 1
        handle = TurnHandle(-self._rung)
        self._dialogue.inbox.answering = handle
        twice = f"{sentence} {sentence}"
        try:
            speak_alone(twice, handle, self._dialogue)
        finally:
            handle.over = True
            self._dialogue.inbox.answering = None
            self._dialogue.listener.note_speech(handle.timestamps, sentence)
        self._dialogue.enter(State.READY)
