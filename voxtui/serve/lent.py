"""Parts that several engines use one after the other. They stay warm when an engine ends."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from threading import Event as Flag
from typing import TYPE_CHECKING

from voxtui.dialogue.protocols import (
    DEFAULT_OPTIONS,
    Brain,
    OnWords,
    Progress,
    ReplyOptions,
    TurnRequest,
    Voice,
)

if TYPE_CHECKING:
    from voxtui.dialogue.data import SpeechChunk, Token, UserTranscript, Utterance
    from voxtui.dialogue.recording import Recording
    from voxtui.dialogue.timestamps import Timestamps


class LentBrain(Brain):
    """A warm brain whose `warm_up` and `close` do nothing."""

    def __init__(self, brain: Brain) -> None:
        self._brain = brain

    @property
    def name(self) -> str:
        return self._brain.name

    @property
    def description(self) -> str:
        return self._brain.description

    @property
    def sends_to(self) -> str:
        return self._brain.sends_to

    def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None: ...

    def listen(
        self, request: TurnRequest, recording: Recording, on_words: OnWords | None = None
    ) -> None:
        self._brain.listen(request, recording, on_words=on_words)

    def wake(self) -> None:
        self._brain.wake()

    def read(self, request: TurnRequest, progress: Callable[[int, int], object]) -> None:
        self._brain.read(request, progress)

    def read_ahead(self, request: TurnRequest) -> None:
        self._brain.read_ahead(request)

    def reply(self, request: TurnRequest) -> Generator[UserTranscript | Token]:
        return self._brain.reply(request)

    def language(self, reply: str, timestamps: Timestamps) -> str:
        return self._brain.language(reply, timestamps)

    def transcribe(self, utterance: Utterance, cancelled: Flag) -> Iterator[Token]:
        return self._brain.transcribe(utterance, cancelled)

    def close(self) -> None: ...


class LentVoice(Voice):
    """A warm voice whose `warm_up` and `close` do nothing."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice

    @property
    def name(self) -> str:
        return self._voice.name

    def warm_up(self, progress: Progress) -> None: ...

    def speak(
        self, clause: str, speed: float | None = None, language: str = "en"
    ) -> Iterator[SpeechChunk]:
        return self._voice.speak(clause, speed, language)

    def close(self) -> None: ...
