"""Sound the chime of timers and reminders at its time; speak their sentences between turns."""

from __future__ import annotations

import time
from collections import deque

from voxtui.dialogue.commands import Ring
from voxtui.dialogue.dialogue import Dialogue
from voxtui.dialogue.events import Event, Reminded, RingsIn, State
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
        self._stopped = False
        """nothing rings any more, so no sentence is due; written by any thread"""

    def report(self, event: Event) -> None:
        """Report an event of the skills, and have it heard. Any thread."""
        self._dialogue.emit(event)
        match event:
            case RingsIn(seconds):
                self._stopped = seconds is None
                speaker = self._dialogue.components.devices.speaker
                if speaker is not None and not (
                    self._dialogue.components.muted and seconds is not None
                ):
                    speaker.chime(None if seconds is None else time.monotonic() + seconds)
            case Reminded(sentence):
                self._dialogue.inbox.post(Ring(sentence))
            case _:
                pass

    def add(self, sentence: str) -> None:
        if sentence not in self._due:  # it rang again during a long answer
            self._due.append(sentence)

    def next(self) -> str | None:
        """Take out the next sentence; None: there is none, or it cannot be spoken."""
        if self._stopped:
            self._due.clear()
        sentence = self._due.popleft() if self._due else None
        return sentence if sentence is not None and self._dialogue.components.can_speak() else None

    def ring(self, sentence: str) -> None:
        self._rung += 1
        handle = TurnHandle(-self._rung)
        self._dialogue.inbox.answering = handle
        try:
            speak_alone(sentence, handle, self._dialogue)
        finally:
            handle.over = True
            self._dialogue.inbox.answering = None
            self._dialogue.listener.note_speech(handle.timestamps, sentence)
        self._dialogue.enter(State.READY)
