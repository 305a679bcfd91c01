"""The best voice this machine can run, found out while the screen is already usable."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from voxtui.dialogue.data import SpeechChunk
from voxtui.dialogue.interfaces import Progress, Voice
from voxtui.errors import ModelError


class AutoVoice:
    """The voice of `best`, unless making or loading it raises ModelError; then that of `other`.

    `best` is called where loading is reported, so it may take its time. That it could not be made
    is nothing to talk about; `say` gets the sentence for one that could be and did not load.
    """

    def __init__(
        self,
        best: Callable[[], Voice],
        other: Callable[[], Voice],
        say: Callable[[str], object],
    ) -> None:
        self._best = best
        self._other = other
        self._say = say
        self._voice: Voice | None = None

    @property
    def name(self) -> str:
        return self._voice.name if self._voice else "none yet"

    def choose(self) -> None:
        """Make one of the two. Raises ModelError if neither can be."""
        try:
            self._voice = self._best()
        except ModelError:
            self._voice = self._other()

    def warm_up(self, progress: Progress) -> None:
        self.choose()
        assert self._voice is not None
        try:
            self._voice.warm_up(progress)
        except ModelError as why:
            self._voice.close()
            self._voice = self._other()
            self._voice.warm_up(progress)
            self._say(f"The voice is {self._voice.name}. {why}")

    def speak(self, clause: str) -> Iterator[SpeechChunk]:
        if self._voice is None:
            raise ModelError("No voice is loaded yet.")
        return self._voice.speak(clause)

    def close(self) -> None:
        if self._voice is not None:
            self._voice.close()
