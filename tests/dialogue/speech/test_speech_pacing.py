"""Speech without holes: a scripted model, voice and speaker on a clock of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from queue import Empty

import numpy as np
import pytest

from tests.fakes import BeepVoice, FakeSpeaker
from voxtui.dialogue.data import SpeechChunk, Token
from voxtui.dialogue.prefetch import Prefetched
from voxtui.dialogue.protocols import StopFlag
from voxtui.dialogue.speech.clauses import clauses
from voxtui.dialogue.speech.reply_speech import Speech, VoiceWorker
from voxtui.dialogue.speech.speech_pacing import BURST_SECONDS, MARGIN_SECONDS, SpeechPacing
from voxtui.dialogue.timestamps import Timestamps

RATE = 1000
QUEUED_SECONDS = 3.0

NUMBERS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
COUNTING = (
    ", ".join(NUMBERS.split() + [f"twenty-{n}" for n in ("one", "two", "three", "four")]) + "."
)
ALPHABET = ", ".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ") + "."
ANIMALS = (
    "Ten animals are the lion, the tiger, the elephant, the giraffe, the zebra, the horse, "
    "the dolphin, the eagle, the shark and the mouse."
)
SKY = (
    "The sky is blue because of the scattering of light by the tiny particles that float "
    "everywhere inside the atmosphere of our planet. It is red in the evening."
)
ANSWERS = (COUNTING, ALPHABET, ANIMALS, SKY)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class TimedTokens(Prefetched[Token]):
    """The words of `text`, each written `token_s` after the one before; signs are tokens too."""

    def __init__(self, clock: Clock, text: str, token_s: float) -> None:
        super().__init__()
        words = text.replace(",", "\0,").replace(" ", "\0 ").replace(".", "\0.").split("\0")
        self._coming = [(clock.now + token_s * n, word) for n, word in enumerate(words)]
        self._clock = clock

    def within(self, seconds: float | None) -> Token:
        if not self._coming:
            raise StopIteration
        at, word = self._coming[0]
        if seconds is not None and at > self._clock.now + seconds:
            self._clock.now += seconds
            raise Empty
        self._clock.now = max(self._clock.now, at)
        del self._coming[0]
        return Token(word)


class TimedVoice(VoiceWorker):
    """A voice that takes `making` of the time in which its speech plays, and 10 ms."""

    def __init__(self, clock: Clock, making: float) -> None:
        super().__init__(BeepVoice(), 1.0)
        self.clauses: list[str] = []
        self._clock, self._making = clock, making

    def speak(
        self,
        clause: str,
        stopped: StopFlag,
        speed: float | None = None,
        language: str = "en",
    ) -> Generator[SpeechChunk, None, bool]:
        self.clauses.append(clause)
        letters = sum(len(word) == 2 and word[1] == "," for word in clause.split())
        seconds = 0.06 * len(clause) + 0.2 * letters
        self._clock.now += 0.01 + self._making * seconds
        yield SpeechChunk(np.zeros(round(seconds * RATE), np.float32), RATE, clause)
        return True


class TimedSpeaker(FakeSpeaker):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.holes: list[float] = []
        """seconds between the chunks"""
        self.began_at = 0.0
        self._clock, self._ends = clock, 0.0

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        now = self._clock.now
        if self._ends:
            self.holes.append(max(0.0, now - self._ends))
        else:
            self.began_at = now
        self._ends = max(now, self._ends) + chunk.seconds
        self._clock.now = max(now, self._ends - QUEUED_SECONDS)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def say(clock: Clock, text: str, token_s: float, making: float) -> tuple[TimedVoice, TimedSpeaker]:
    voice, speaker = TimedVoice(clock, making), TimedSpeaker(clock)
    Speech(voice, speaker, Timestamps(), threading.Event()).play(TimedTokens(clock, text, token_s))
    assert "".join(voice.clauses).replace(" ", "").count("a") == text.count("a")
    return voice, speaker


@pytest.mark.parametrize("text", ANSWERS)
@pytest.mark.parametrize("token_s", [0.0, 0.03, 0.08, 0.12])
@pytest.mark.parametrize("making", [0.01, 0.1])
def test_no_hole_is_heard_in_an_answer(
    clock: Clock, text: str, token_s: float, making: float
) -> None:
    _, speaker = say(clock, text, token_s, making)
    assert max(speaker.holes) < 0.1


@pytest.mark.parametrize("text", ANSWERS)
def test_the_first_clause_is_not_delayed(clock: Clock, text: str) -> None:
    began = clock.now
    first = next(clauses(iter([*text])))
    voice, speaker = say(clock, text, 0.08, 0.01)
    assert voice.clauses[0].rstrip(",") == first.strip().rstrip(",")
    assert speaker.began_at - began < 0.08 * (2 * len(first.split()) + 2)


def test_sentences_stay_whole_while_they_are_written_in_time(clock: Clock) -> None:
    text = "It is a long way from here. The road is old and narrow, and it is often closed. Good."
    voice, _ = say(clock, text, 0.02, 0.01)
    assert voice.clauses[-2:] == ["The road is old and narrow, and it is often closed.", "Good."]


def test_a_list_is_cut_at_its_commas(clock: Clock) -> None:
    voice, _ = say(clock, COUNTING, 0.08, 0.01)
    assert len(voice.clauses) > 2
    assert all(clause[-1] in ",." for clause in voice.clauses)
    assert [word for clause in voice.clauses for word in clause.split()] == COUNTING.split()


def test_a_slow_model_is_not_spoken_word_by_word(clock: Clock) -> None:
    voice, _ = say(clock, SKY, 0.6, 0.01)
    pieces = [clause for clause in voice.clauses if clause[-1] == ","]
    assert len(pieces) > 5 and all(len(piece.split()) >= 2 for piece in pieces)
    assert not [piece for piece in pieces if piece.split()[-1] in ("the,", "of,", "our,")]


def test_the_voice_waits_as_long_as_speech_lies_ahead() -> None:
    pace = SpeechPacing()
    assert pace.patience(100, now=5.0) is None
    pace.made(characters=10, seconds=0.1)
    pace.queued(2.0, now=5.0)
    assert pace.patience(20, now=5.5) == pytest.approx(1.5 - 0.2 - MARGIN_SECONDS)
    pace.queued(1.0, now=6.0)
    assert pace.patience(0, now=6.0) == pytest.approx(2.0 - MARGIN_SECONDS)
    pace.queued(1.0, now=20.0)  # the speech before had ended
    assert pace.patience(0, now=20.0) == pytest.approx(1.0 - MARGIN_SECONDS)
    assert pace.patience(0, now=30.0) == BURST_SECONDS
