"""Transcribe the latest utterance while the inbox is empty."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator

from voxtui.dialogue.data import Utterance
from voxtui.dialogue.dialogue import Dialogue
from voxtui.dialogue.events import Notice, NoWords, UserWords
from voxtui.dialogue.turn.prefill import HistoryPrefill
from voxtui.dialogue.turn.turn import LiveTurn
from voxtui.errors import ModelError, ModelLost

UNASKED_SECONDS = 0.3
"""Delay of the transcription of a committed utterance: an answer is usually requested at once,
and works the words out better."""


class IdleTranscript:
    """Finds the words of an utterance that its turn did not need, for the screen and the history.

    Used on the engine's thread, a token at a time.
    """

    def __init__(self, dialogue: Dialogue, prefill: HistoryPrefill) -> None:
        self._dialogue = dialogue
        self._prefill = prefill
        self._steps: Generator[None, None, None] | None = None
        self._due_at = 0.0
        """monotonic seconds"""
        self._committed: LiveTurn | None = None
        """The newest turn, if its utterance has no answer."""

    @property
    def wait_s(self) -> float | None:
        """Seconds until the next step is due; None: there is nothing to transcribe."""
        return None if self._steps is None else max(0.0, self._due_at - time.monotonic())

    def begin(self, turn: LiveTurn) -> None:
        """Transcribe the utterance of an answered turn, if its words are needed and not known.

        One that was committed before keeps its words, also if its answer was cut off at once.
        """
        cut_off = turn.handle.committed and turn.cancelled
        needed = (
            cut_off or self._dialogue.components.config.brain.idle_transcript
        ) and turn.words is None
        if needed and turn.error is None and isinstance(turn.user_input, Utterance):
            self._steps, self._due_at = self._transcribe(turn, turn.user_input), 0.0
            self._committed = turn if cut_off else None

    def begin_unanswered(self, turn: LiveTurn, utterance: Utterance) -> None:
        """Transcribe an utterance that awaits no answer, unless an answer is asked for soon."""
        self._committed, self._due_at = turn, time.monotonic() + UNASKED_SECONDS
        self._steps = self._transcribe(turn, utterance)

    def leave(self, turn: LiveTurn) -> None:
        """End the transcription of `turn`, because its answer finds the words."""
        if self._committed is turn:
            self._committed = None
            self.end()

    def step(self) -> None:
        assert self._steps is not None
        try:
            next(self._steps)
        except StopIteration:
            self._steps = None
        except ModelError as error:
            self._steps = None
            if self._committed is not None:
                self._dialogue.emit(NoWords(self._committed.number, str(error)))
            self._dialogue.emit(Notice(f"Your words could not be transcribed. {error}"))
            if isinstance(error, ModelLost) and self._dialogue.components.has_next_brain:
                self._prefill.replace_lost_brain(error)

    def end(self) -> None:
        """Drop the transcription; but finish it for an utterance that has no answer."""
        while (
            self._committed is not None
            and self._steps is not None
            and not self._dialogue.components.closing
        ):
            self.step()
        if self._steps is not None:
            self._steps.close()
        self._steps = self._committed = None

    def _transcribe(self, turn: LiveTurn, utterance: Utterance) -> Generator[None, None, None]:
        """Transcribe, one token a step.

        The next turn ends it, by the cancel flag of this one; but one that is only committed is
        transcribed to its end. Raises ModelError.
        """
        words, cancelled = "", threading.Event() if turn.handle.committed else turn.handle.cancelled
        for token in self._dialogue.components.brain.transcribe(utterance, cancelled):
            words += token.text
            yield
        if words.strip() and not cancelled.is_set():
            self._dialogue.history.set_words(turn.number, words.strip())
            self._dialogue.emit(UserWords(turn.number, words.strip()))
        elif turn.handle.committed:
            self._dialogue.emit(NoWords(turn.number, "No words were recognised in this sound."))
