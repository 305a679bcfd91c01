"""The best brain this machine can run, found out while the screen is already usable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event as Flag

from voxtui.errors import ModelError
from voxtui.protocols import Brain, Past, Progress
from voxtui.turn import Frame, Heard, Marks, Token, Utterance


class AutoBrain:
    """The brain of `best`, unless making or loading it raises ModelError; then that of `other`.

    `best` is called where loading is reported, so it may take its time. `say` gets the sentence
    that tells which of the two answers, and why.
    """

    def __init__(
        self,
        best: Callable[[], Brain],
        other: Callable[[], Brain],
        say: Callable[[str], object],
    ) -> None:
        self._best = best
        self._other = other
        self._say = say
        self._brain: Brain | None = None

    @property
    def name(self) -> str:
        return self._brain.name if self._brain else "auto"

    @property
    def description(self) -> str:
        return self._brain.description if self._brain else "no brain yet"

    def warm_up(self, progress: Progress) -> None:
        try:
            self._brain = self._best()
            self._brain.warm_up(progress)
        except ModelError as why:
            if self._brain is not None:
                self._brain.close()
            self._brain = self._other()
            self._brain.warm_up(progress)
            self._say(f"The {self._brain.name} brain answers. {why}")

    def listen(self, past: Past, cancelled: Flag) -> None:
        self._chosen.listen(past, cancelled)

    def hear(self, frame: Frame, speech: bool) -> None:
        self._chosen.hear(frame, speech)

    def reply(
        self, past: Past, said: Utterance | str, marks: Marks, cancelled: Flag
    ) -> Iterator[Heard | Token]:
        return self._chosen.reply(past, said, marks, cancelled)

    def transcribe(self, said: Utterance, cancelled: Flag) -> Iterator[Token]:
        return self._chosen.transcribe(said, cancelled)

    def close(self) -> None:
        if self._brain is not None:
            self._brain.close()

    @property
    def _chosen(self) -> Brain:
        if self._brain is None:
            raise ModelError("No brain is loaded yet.")
        return self._brain
