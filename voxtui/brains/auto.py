"""The best brain this machine can run, found out while the screen is already usable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event as Flag
from typing import TypeVar

from voxtui.dialogue.data import Token, UserTranscript, Utterance
from voxtui.dialogue.interfaces import Brain, Past, Progress
from voxtui.dialogue.marks import Marks
from voxtui.dialogue.recording import Recording
from voxtui.errors import ModelError, ModelLost

T = TypeVar("T")


class AutoBrain:
    """The brain of `best`, unless making or loading it raises ModelError; then that of `other`.

    A best brain that is lost in the middle of a turn costs that turn; `other` answers the next.
    `best` is called where loading is reported, so it may take its time. `say` gets the sentence
    that tells which of the two answers, and why. `asked_for`: the name of the best, if the user
    gave it; then it is an error that it cannot be had, and only for its loss there is `other`.
    """

    def __init__(
        self,
        best: Callable[[], Brain],
        other: Callable[[], Brain],
        say: Callable[[str], object],
        asked_for: str | None = None,
    ) -> None:
        self._best = best
        self._other = other
        self._say = say
        self._asked_for = asked_for
        self._brain: Brain | None = None

    @property
    def name(self) -> str:
        return self._brain.name if self._brain else self._asked_for or "auto"

    @property
    def description(self) -> str:
        return self._brain.description if self._brain else "no brain yet"

    @property
    def sends_to(self) -> str:
        return self._brain.sends_to if self._brain else ""

    def warm_up(self, progress: Progress) -> None:
        try:
            self._brain = self._best()
            self._brain.warm_up(progress)
        except ModelError as why:
            if self._brain is not None:
                self._brain.close()
            if self._asked_for:
                raise
            self._brain = self._other()
            self._brain.warm_up(progress)
            self._say(f"The {self._brain.name} brain answers. {why}")

    def listen(self, past: Past, recording: Recording, cancelled: Flag) -> None:
        self._chosen.listen(past, recording, cancelled)

    def wake(self) -> None:
        self._chosen.wake()

    def reply(
        self, past: Past, said: Utterance | str, marks: Marks, cancelled: Flag
    ) -> Iterator[UserTranscript | Token]:
        return self._guarded(self._chosen.reply(past, said, marks, cancelled))

    def transcribe(self, said: Utterance, cancelled: Flag) -> Iterator[Token]:
        return self._guarded(self._chosen.transcribe(said, cancelled))

    def _guarded(self, items: Iterator[T]) -> Iterator[T]:
        try:
            yield from items
        except ModelLost as why:
            self._replace(why)
            raise

    def _replace(self, why: ModelLost) -> None:
        lost = self._chosen
        other = self._other()
        try:
            other.warm_up(lambda step, fraction: None)
        except ModelError as error:
            other.close()
            raise ModelError(f"{why} No other brain can answer until then: {error}") from error
        self._brain = other
        lost.close()
        self._say(f"The {other.name} brain answers from now on. {why}")

    def close(self) -> None:
        if self._brain is not None:
            self._brain.close()

    @property
    def _chosen(self) -> Brain:
        if self._brain is None:
            raise ModelError("No brain is loaded yet.")
        return self._brain
