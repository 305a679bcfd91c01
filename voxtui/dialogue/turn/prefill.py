"""Let a brain read the prompt before the user's next words, and report the progress."""

from __future__ import annotations

import threading
import time

from voxtui.dialogue.dialogue import Dialogue
from voxtui.dialogue.events import Notice, PrefillProgress, State
from voxtui.dialogue.history.attachments import Attachment, attached_tokens, fit
from voxtui.dialogue.protocols import Past, TurnRequest
from voxtui.errors import ModelLost

LEAST_TOKENS = 80
"""Minimum number of remaining tokens for a report: fewer are read within some seconds."""


class PrefillTracker:
    """Turns token counts into events. Its method is called on one thread at a time."""

    def __init__(self) -> None:
        self._began: tuple[float, int] | None = None
        """the start of the prompt in progress (monotonic seconds), and its tokens known by then"""

    def take(self, done: int, total: int) -> PrefillProgress | None:
        """Return the progress after `done` of `total` tokens; None if too little is left."""
        now = time.monotonic()
        another = self._began is not None and done < self._began[1]
        if self._began is None or another:
            if total - done < LEAST_TOKENS:
                self._began = None
                return PrefillProgress(total, total, 0.0) if another else None
            self._began = now, done
        began, known = self._began
        if done >= total:
            self._began = None
        new = done - known
        left = (total - done) * (now - began) / new if new else None
        return PrefillProgress(new, total - known, left)


class HistoryPrefill:
    """Lets the brain read texts and the history before the next turn, on the engine's thread."""

    def __init__(self, dialogue: Dialogue) -> None:
        self._dialogue = dialogue
        self._progress = PrefillTracker()

    def read(self, past: Past) -> None:
        """Let the brain read `past` and the present time. Returns at once; a turn ends it."""
        options = self._dialogue.timed_options(past)
        self._dialogue.components.brain.read(
            TurnRequest(past, cancelled=threading.Event(), options=options), self._report
        )

    def read_history(self) -> None:
        """Let the brain read the history, unless somebody is speaking."""
        if self._dialogue.is_quiet:
            self.read(self._dialogue.history.past)

    def replace_lost_brain(self, reason: ModelLost) -> None:
        dialogue = self._dialogue
        dialogue.enter(State.LOADING)
        dialogue.components.replace_lost_brain(reason, dialogue.loading_options)
        dialogue.emit(dialogue.components.loaded())
        dialogue.enter(State.READY)
        self.read_history()

    def attach(self, attachment: Attachment) -> None:
        """Add the part of a text that fits to the history, and report what does not fit."""
        used = attached_tokens(self._dialogue.history.past)
        most = self._dialogue.config.current.input.tokens(self._dialogue.config.brain_name)
        fitting, sentence = fit(attachment, most - used)
        if fitting is not None:
            self._dialogue.history.attach(fitting.as_turn())
            sentence += self._leaving()
        complete = (
            fitting is not None
            and fitting.text == attachment.text
            and not self._dialogue.components.sends_to
        )
        self._dialogue.emit(Notice(sentence, "information" if complete else "warning"))

    def warn_of_leaving(self) -> None:
        """Tell the user if the new brain sends attached texts to another machine."""
        if leaving := self._leaving():
            self._dialogue.emit(Notice(leaving.strip()))

    def warn_of_sending(self, past: Past) -> None:
        """Tell the user if a resumed conversation is sent to another machine."""
        if past and (hosts := self._dialogue.components.sends_to):
            sentence = f"This conversation goes to {hosts} with your next words."
            self._dialogue.emit(Notice(sentence, "information"))

    def _leaving(self) -> str:
        """Return a sentence with the host to which attached texts are sent; empty for none."""
        hosts = self._dialogue.components.sends_to
        if not hosts or not any(turn.attached for turn in self._dialogue.history.past):
            return ""
        sent = f"will be sent to {hosts} with your next message"
        return f" The attached text {sent}. /new prevents that."

    def _report(self, done: int, total: int) -> None:
        if (reading := self._progress.take(done, total)) is not None:
            self._dialogue.emit(reading)
