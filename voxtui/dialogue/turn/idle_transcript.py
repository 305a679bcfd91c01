"""Transcribe the latest utterance while the inbox is empty."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator

from voxtui.dialogue.components.components import Components
from voxtui.dialogue.data import Utterance
from voxtui.dialogue.events import Event, Notice, NoWords, UserWords
from voxtui.dialogue.history.history import History
from voxtui.dialogue.turn.turn import LiveTurn
from voxtui.dialogue.turn_handle import TurnHandle
from voxtui.errors import ModelError, ModelLost

UNASKED_SECONDS = 0.3
"""The transcription of an utterance that is only kept waits so long, because an answer to it is
usually asked for at once, and works the words out better."""


class IdleTranscript:
    """Finds the words of an utterance that its turn did not need, for the screen and the history.

    Used on the engine's thread, a token at a time. `brain_lost` is called if the brain is lost and
    another may replace it.
    """

    def __init__(
        self,
        components: Components,
        history: History,
        emit: Callable[[Event], object],
        brain_lost: Callable[[ModelLost], object],
    ) -> None:
        self._components = components
        self._history = history
        self._emit = emit
        self._brain_lost = brain_lost
        self._steps: Generator[None, None, None] | None = None
        self._due_at = 0.0
        """monotonic seconds"""
        self._kept: LiveTurn | None = None
        """the newest turn, if its utterance was only kept"""

    @property
    def wait_s(self) -> float | None:
        """Seconds until the next step is due; None: there is nothing to transcribe."""
        return None if self._steps is None else max(0.0, self._due_at - time.monotonic())

    def begin(self, turn: LiveTurn) -> None:
        """Transcribe the utterance of an answered turn, if its words are wanted and not known.

        One that was kept before keeps its words, also if its answer was cut off at once.
        """
        cut_off = turn.handle.kept and turn.cancelled
        wanted = (cut_off or self._components.config.brain.idle_transcript) and turn.words is None
        if wanted and turn.error is None and isinstance(turn.user_input, Utterance):
            self._steps, self._due_at = self._transcribe(turn, turn.user_input), 0.0
            self._kept = turn if cut_off else None

    def begin_unanswered(self, turn: LiveTurn, utterance: Utterance) -> None:
        """Transcribe an utterance that awaits no answer, unless an answer is asked for soon."""
        self._kept, self._due_at = turn, time.monotonic() + UNASKED_SECONDS
        self._steps = self._transcribe(turn, utterance)

    def take_back(self, handle: TurnHandle) -> LiveTurn | None:
        """Return the turn of `handle` if its utterance was kept: the answer finds its words."""
        turn = self._kept
        if turn is None or turn.handle is not handle:
            return None
        self._kept = None
        return turn

    def step(self) -> None:
        assert self._steps is not None
        try:
            next(self._steps)
        except StopIteration:
            self._steps = None
        except ModelError as error:
            self._steps = None
            if self._kept is not None:
                self._emit(NoWords(self._kept.number, str(error)))
            self._emit(Notice(f"Your words could not be transcribed. {error}"))
            if isinstance(error, ModelLost) and self._components.has_next_brain:
                self._brain_lost(error)

    def end(self) -> None:
        """Drop the transcription; but finish it for an utterance that has no answer."""
        while self._kept is not None and self._steps is not None and not self._components.closing:
            self.step()
        if self._steps is not None:
            self._steps.close()
        self._steps = self._kept = None

    def _transcribe(self, turn: LiveTurn, utterance: Utterance) -> Generator[None, None, None]:
        """Transcribe, one token a step.

        The next turn ends it, by the cancel flag of this one; but one that is only kept is
        transcribed to its end. Raises ModelError.
        """
        words, cancelled = "", threading.Event() if turn.handle.kept else turn.handle.cancelled
        for token in self._components.brain.transcribe(utterance, cancelled):
            words += token.text
            yield
        if words.strip() and not cancelled.is_set():
            self._history.set_words(turn.number, words.strip())
            self._emit(UserWords(turn.number, words.strip()))
        elif turn.handle.kept:
            self._emit(NoWords(turn.number, "No words were recognised in this sound."))
