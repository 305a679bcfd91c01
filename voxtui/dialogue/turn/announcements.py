"""Speak what is not part of a turn: sentences of timers and reminders, and texts read aloud."""

from __future__ import annotations

import time
from collections import deque

from voxtui.dialogue.data import SKILL
from voxtui.dialogue.dialogue import Dialogue
from voxtui.dialogue.engine_commands import Ring
from voxtui.dialogue.events import Event, Notice, Rang, Reminded, RingsIn, State
from voxtui.dialogue.prefetch import prefetch
from voxtui.dialogue.protocols import SkillAnswer
from voxtui.dialogue.turn.turn import LiveTurn, answering, speak
from voxtui.dialogue.turn_handle import TurnHandle


class Announcer:
    """Speaks announcements in order, on the engine's thread, and plays the chime at its time."""

    def __init__(self, dialogue: Dialogue) -> None:
        self._dialogue = dialogue
        self._due: deque[LiveTurn] = deque()
        """what is to be spoken; its brain is SKILL if it comes from a timer or reminder"""
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
            case Rang():  # without RingsIn if it was missed
                self._stopped = False
            case Reminded(sentence):
                self._dialogue.inbox.post(Ring(sentence))
            case _:
                pass

    def add(self, text: str, handle: TurnHandle, rings: bool) -> None:
        if rings and any(due.reply == text for due in self._due):
            return  # it rang again
        brain = SKILL if rings else self._dialogue.config.brain_name
        tokens = [*SkillAnswer(text).tokens()]
        self._due.append(LiveTurn(handle, SKILL, True, brain, tokens=tokens))

    def next(self) -> LiveTurn | None:
        """Remove and return the next announcement that can be spoken, or None."""
        components = self._dialogue.components
        while self._due:
            due = self._due.popleft()
            rings = due.brain == SKILL
            if due.cancelled or (rings and self._stopped):
                continue
            if components.can_speak():
                return due
            if not rings:
                why = "The voice is muted" if components.muted else "There is no voice or speaker"
                self._dialogue.emit(Notice(f"{why}, so nothing is read aloud."))
        return None

    def speak(self, announcement: LiveTurn) -> None:
        tokens = (token for token in announcement.tokens)
        try:
            with (
                answering(announcement, self._dialogue),
                prefetch(tokens, "announcement") as prefetched,
            ):
                if self._dialogue.inbox.turn_waits:  # nobody could end it before `answering`
                    announcement.handle.cancel()
                speak(announcement, prefetched, self._dialogue)
        finally:
            announcement.handle.over = True
        self._dialogue.enter(State.READY)
