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
"""Delay before a committed utterance is transcribed. Usually an answer is requested at once, and
the answer recognises the words better."""


class IdleTranscript:
    """Transcribes an utterance whose words its turn did not need, for the screen and the history.

    Used on the engine's thread, one token at a time, while the inbox is empty.
    """

    def __init__(self, dialogue: Dialogue, prefill: HistoryPrefill) -> None:
        self._dialogue = dialogue
        self._prefill = prefill
        self._steps: Generator[None, None, None] | None = None
        self._due_at = 0.0
        """monotonic seconds at which the transcription begins"""
        self._committed: LiveTurn | None = None
        """the newest turn, if its utterance has no answer"""

    @property
    def wait_s(self) -> float | None:
        """Seconds until the next step is due; None if there is nothing to transcribe."""
        return None if self._steps is None else max(0.0, self._due_at - time.monotonic())

    def begin(self, turn: LiveTurn) -> None:
        """Transcribe the utterance of an answered turn, if its words are needed and unknown."""
        # A committed utterance has words even if its answer was cut off at once.
        cut_off = turn.handle.committed and turn.cancelled
        needed = (
            cut_off or self._dialogue.config.current.brain.idle_transcript
        ) and turn.words is None
        if needed and turn.error is None and isinstance(turn.user_input, Utterance):
            self._steps, self._due_at = self._transcribe(turn, turn.user_input), 0.0
            self._committed = turn if cut_off else None

    def begin_unanswered(self, turn: LiveTurn, utterance: Utterance) -> None:
        """Transcribe a committed utterance, unless its answer is requested soon."""
        self._committed, self._due_at = turn, time.monotonic() + UNASKED_SECONDS
        self._steps = self._transcribe(turn, utterance)

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

    def end(self, answered: LiveTurn | None = None) -> None:
        """End the transcription; first finish that of a committed utterance.

        That of `answered` is not finished, because its answer recognises the words.
        """
        while (
            self._committed is not None
            and self._committed is not answered
            and self._steps is not None
            and not self._dialogue.components.closing
        ):
            self.step()
        if self._steps is not None:
            self._steps.close()
        self._steps = self._committed = None

    def _transcribe(self, turn: LiveTurn, utterance: Utterance) -> Generator[None, None, None]:
        """Transcribe, one token per step.

        The turn's cancel flag, which the next turn sets, ends it; a committed utterance is
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
