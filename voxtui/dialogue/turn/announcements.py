"""Speak what is not part of a turn: sentences of timers and reminders, and texts read aloud."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from voxtui.dialogue.data import SKILL
from voxtui.dialogue.dialogue import Dialogue
from voxtui.dialogue.engine_commands import Ring
from voxtui.dialogue.events import Event, Notice, Reminded, RingsIn, State
from voxtui.dialogue.prefetch import prefetch
from voxtui.dialogue.protocols import SkillAnswer
from voxtui.dialogue.turn.turn import LiveTurn, speak
from voxtui.dialogue.turn_handle import TurnHandle


@dataclass(frozen=True, slots=True)
class Announcement:
    """A text to speak that is not a turn: it has no history and no timestamps."""

    text: str
    handle: TurnHandle
    rings: bool
    """whether it comes from a timer or reminder, and not from the user's request"""


class Announcer:
    """Speaks announcements in order, and plays the chime at its time.

    Used on the engine's thread, except as noted.
    """

    def __init__(self, dialogue: Dialogue) -> None:
        self._dialogue = dialogue
        self._due: deque[Announcement] = deque()
        self._stopped = False
        """whether nothing rings any more, so no sentence is due; any thread may write it"""

    def report(self, event: Event) -> None:
        """Report an event of the skills, and queue its sound. Any thread."""
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

    def add(self, text: str, handle: TurnHandle, rings: bool) -> None:
        if not (rings and any(due.text == text for due in self._due)):  # it rang again
            self._due.append(Announcement(text, handle, rings))

    def next(self) -> Announcement | None:
        """Remove and return the next announcement that can be spoken, or None."""
        components = self._dialogue.components
        while self._due:
            due = self._due.popleft()
            if due.handle.cancelled.is_set() or (due.rings and self._stopped):
                continue
            if components.can_speak():
                return due
            if not due.rings:
                why = "The voice is muted" if components.muted else "There is no voice or speaker"
                self._dialogue.emit(Notice(f"{why}, so nothing is read aloud."))
        return None

    def speak(self, announcement: Announcement) -> None:
        handle, dialogue = announcement.handle, self._dialogue
        brain = SKILL if announcement.rings else dialogue.config.brain_name
        dialogue.inbox.answering = handle
        try:
            with prefetch(SkillAnswer(announcement.text).tokens(), "announcement") as tokens:
                speak(LiveTurn(handle, SKILL, True, brain), tokens, dialogue)
        finally:
            handle.over = True
            dialogue.inbox.answering = None
            dialogue.listener.note_speech(handle.timestamps, announcement.text)
        dialogue.enter(State.READY)
