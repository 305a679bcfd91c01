"""Stub components for benchmarks: a brain and a voice that wait, and a detector of loudness."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from threading import Event as Flag
from typing import TYPE_CHECKING

import numpy as np

from voxtui.dialogue.data import Frame, SpeechChunk, Token, UserTranscript, Utterance
from voxtui.dialogue.protocols import DEFAULT_OPTIONS, OnWords, Progress, ReplyOptions, TurnRequest
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.timestamps import Milestone, Timestamps

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

VOICE_RATE = 24_000
"""Sample rate in Hz."""


class StubBrain:
    """A brain that prepares nothing. Its subclasses have `reply`."""

    name = description = "stub"
    sends_to = ""

    def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None: ...

    def listen(
        self, request: TurnRequest, recording: Recording, on_words: OnWords | None = None
    ) -> None: ...

    def wake(self) -> None: ...

    def read(self, request: TurnRequest, progress: Callable[[int, int], object]) -> None: ...

    def read_ahead(self, request: TurnRequest) -> None: ...

    def language(self, reply: str, timestamps: Timestamps) -> str:
        return "en"

    def transcribe(self, utterance: Utterance, cancelled: Flag) -> Iterator[Token]:
        yield Token("words")

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Script:
    """An answer, and the seconds that each of its stages takes."""

    heard: str
    tokens: Sequence[str]
    recogniser_s: float
    first_token_s: float
    token_s: float
    """the seconds from one token to the next"""
    scheduled: bool = False
    """whether the tokens come at fixed times, like those of a model in another process, so that a
    token that is taken late does not delay the next ones"""


class WaitingBrain(StubBrain):
    """A brain that begins after the release and runs its stages one after another."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def reply(self, request: TurnRequest) -> Generator[UserTranscript | Token]:
        request.cancelled.wait(self.script.recogniser_s)
        request.timestamps.record(Milestone.TRANSCRIBED)
        yield UserTranscript(self.script.heard)
        due = time.monotonic() + self.script.first_token_s
        for text in self.script.tokens:
            if request.cancelled.wait(due - time.monotonic()):
                return
            yield Token(text)
            due = (due if self.script.scheduled else time.monotonic()) + self.script.token_s


class WaitingVoice:
    """A voice that takes `seconds` for each clause, and then beeps."""

    name = "stub"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def warm_up(self, progress: Progress) -> None: ...

    def speak(
        self, clause: str, speed: float | None = None, language: str = "en"
    ) -> Iterator[SpeechChunk]:
        time.sleep(self._seconds)  # in place of the synthesis, which takes so long
        yield SpeechChunk(beep(0.3, VOICE_RATE), VOICE_RATE, clause)

    def close(self) -> None: ...


class LoudnessDetector:
    """A detector that takes no time: a loud frame is speech."""

    def reset(self) -> None: ...

    def probability(self, frame: Frame) -> float:
        return float(np.abs(frame.samples).max() > 0.1)


def beep(seconds: float, rate: int) -> Samples:
    """Return a tone that is loud from its first sample on, mono float32."""
    at = np.arange(round(seconds * rate)) / rate
    return (0.3 * np.cos(2 * np.pi * 220 * at)).astype(np.float32)
