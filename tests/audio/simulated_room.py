"""A simulated room: a microphone that hears our own speaker, and a person. It needs no device.

The real engine, converter, echo canceller and speech detector run. The room has a clock of its own,
so a result does not depend on the load of the machine.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from tests.audio.sounds import QUESTIONS, question
from tests.deadline import SECONDS
from tests.fakes import Events, FakeMicrophone, ScriptedBrain, engine_on_fakes
from voxtui.audio.echo_canceller import EchoCanceller
from voxtui.audio.microphone import BLOCK_SECONDS, Framer
from voxtui.audio.played import Played, PlayedSegment
from voxtui.audio.resampling import resample
from voxtui.audio.silero import PySilero
from voxtui.dialogue.data import SpeechChunk, Token, UserTranscript
from voxtui.dialogue.engine_commands import Cancel, RescanDevices, SendText
from voxtui.dialogue.events import State, StateChanged, TurnFinished, TurnStarted
from voxtui.dialogue.protocols import Progress, StopFlag, TurnRequest
from voxtui.dialogue.timestamps import Milestone, Outcome, Timestamps
from voxtui.settings.schema import Config, VadConfig

RATE = 48_000
BLOCK = round(BLOCK_SECONDS * RATE)

CAPTURE_SECONDS = 0.02
"""A microphone's block reaches the program this much later."""

STOP_SECONDS = 0.01
"""The speaker is silent this long after an answer was cut off."""

BEGIN_SECONDS = 0.05
"""The speaker begins to play this long after it got the speech."""

AHEAD_SECONDS = 0.2
"""The speaker notes what it plays this much earlier."""

AFTER_SECONDS = 1.5
"""Time after an answer in which a turn that begins is an answer to itself."""

LONG_AGO = -1000.0
"""Monotonic seconds at which the room's clock begins: always before that of the machine."""

NAMES = sorted(path.stem for path in QUESTIONS.glob("*.flac"))


class Loudspeaker:
    """FakeSpeaker: plays all of an answer at once, in the time of the room."""

    name = "simulated loudspeaker"

    def __init__(self) -> None:
        self.speech = np.zeros(0, np.float32)
        self.heard_s = 0.0
        self.timestamps = Timestamps()
        self.stopped: StopFlag = threading.Event()
        self.complete, self.over = threading.Event(), threading.Event()
        self._chunks: list[np.ndarray] = []

    def open(self) -> None: ...

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        self._chunks.append(resample(chunk.samples, chunk.rate, RATE))

    def finish(self, timestamps: Timestamps, stopped: StopFlag) -> float:
        if not self._chunks:
            return 0.0
        self.speech, self._chunks = np.concatenate(self._chunks), []
        self.timestamps, self.stopped = timestamps, stopped
        self.complete.set()
        assert self.over.wait(SECONDS)
        self.over.clear()
        return self.heard_s

    def close(self) -> None: ...


class Reader:
    """FakeVoice: speaks a recorded question for each letter of the clause."""

    name = "reader"

    def warm_up(self, progress: Progress) -> None: ...

    def speak(
        self, clause: str, speed: float | None = None, language: str = "en"
    ) -> Iterator[SpeechChunk]:
        for letter in filter(str.isalpha, clause):
            sound = question(NAMES[(ord(letter) - ord("a")) % len(NAMES)], RATE)
            yield SpeechChunk(np.pad(sound, RATE // 10), RATE, clause)
            clause = ""

    def close(self) -> None: ...


class SimulatedRoom:
    """The engine, hands-free, in a room in which the microphone hears the speaker at `volume`."""

    def __init__(self, volume: float, seed: int = 0) -> None:
        self._volume = volume
        self._random = np.random.default_rng(seed)
        self._now = LONG_AGO
        self._played = Played()
        self._framer = Framer(RATE, EchoCanceller(self._played))
        self._waiting: list[tuple[float, np.ndarray, float]] = []
        """blocks on their way to the program: arrival, samples, time of the last sample"""
        self._microphone, self._speaker = FakeMicrophone(), Loudspeaker()
        self._events = Events()
        self._brain = Teller()
        self.engine = engine_on_fakes(
            self._events,
            microphone=self._microphone,
            speaker=self._speaker,
            detector=PySilero(),
            overhearing=PySilero(),
            brain=self._brain,
            voice=Reader(),
            config=Config(vad=VadConfig(hands_free=True)),
        )
        self.engine.start()
        self._events.until(StateChanged, lambda event: event == StateChanged(State.READY))
        self._pass(np.zeros(RATE // 2, np.float32))

    def answers_itself(self, sentences: str) -> bool:
        """Return True if it interrupts an answer, or takes it for the user's speech."""
        outcome, _ = self._answer(sentences)
        return outcome is not Outcome.ANSWERED or self._turns_begun() > 0

    def interrupted(self, sentences: str, words: str, after: float) -> float | None:
        """Say the question `words` so many seconds after the first sound of an answer.

        Returns the seconds from its first sample to the last sound of the answer, or None if the
        answer was not cut off, or if the question was not the only turn.
        """
        outcome, ended = self._answer(sentences, question(words, RATE), after)
        return ended if outcome is Outcome.CANCELLED and self._turns_begun() == 1 else None

    def _answer(
        self, sentences: str, words: np.ndarray | None = None, after: float = 0.0
    ) -> tuple[Outcome, float]:
        """Let an answer pass. Returns its outcome, and when it ended after `words` began."""
        self._brain.answer = f"{sentences}."
        self.engine.post(SendText("Read them.", self._now))
        assert self._speaker.complete.wait(SECONDS)
        self._speaker.complete.clear()
        begins = self._now + BEGIN_SECONDS
        speech, segment = self._speaker.speech, PlayedSegment(RATE, began_at=begins)
        length = len(speech) + round((AFTER_SECONDS + BEGIN_SECONDS) * RATE)
        said = np.zeros(length + RATE * 3, np.float32)
        if words is not None:
            first = round((BEGIN_SECONDS + after) * RATE)
            said[first : first + len(words)] += words
        delay = self._random.uniform(0.035, 0.045)
        heard = self._echo(speech, len(said), BEGIN_SECONDS + delay)
        self._speaker.timestamps.record(Milestone.FIRST_SOUND, begins)
        at, ended, outcome = 0, None, Outcome.FAILED
        while ended is None or at < length:
            ahead = round((self._now + AHEAD_SECONDS - begins) * RATE)
            if ahead > segment.written:
                self._played.add(segment, speech[segment.written : ahead])
                segment.written = ahead
            self._pass(heard[at : at + BLOCK] + said[at : at + BLOCK])
            at += BLOCK
            if ended is not None:
                continue
            if self._speaker.stopped.is_set():
                ended = segment.dropped_at = self._now + STOP_SECONDS
                spoken = speech[: round((ended - begins) * RATE)]
                heard = self._echo(spoken, len(said), BEGIN_SECONDS + delay)
                length = at + len(words if words is not None else ()) + round(AFTER_SECONDS * RATE)
                length = min(length, len(said))
            elif self._now >= begins + len(speech) / RATE:
                ended = self._now
            if ended is not None:
                self._speaker.heard_s = ended - begins
                self._speaker.timestamps.record(Milestone.LAST_SOUND, ended)
                self._speaker.over.set()
                finished = self._events.until(TurnFinished)
                assert isinstance(finished, TurnFinished)
                outcome = finished.turn.outcome
        return outcome, ended - begins - after

    def _echo(self, speech: np.ndarray, length: int, delay_s: float) -> np.ndarray:
        """Return the first `length` samples of what the microphone hears of `speech`."""
        late = np.pad(self._volume * speech, (round(delay_s * RATE), length))
        return late[:length].astype(np.float32)

    def _pass(self, sound: np.ndarray) -> None:
        """Let the time of `sound` pass, which the microphone hears."""
        for begin in range(0, len(sound), BLOCK):
            block = sound[begin : begin + BLOCK]
            self._now += len(block) / RATE
            noise = 1e-4 * self._random.standard_normal(len(block)).astype(np.float32)
            self._waiting.append((self._now + CAPTURE_SECONDS, block + noise, self._now))
            while self._waiting and self._waiting[0][0] <= self._now:
                _, block, at = self._waiting.pop(0)
                self._microphone.push(self._framer.frames(block, at))

    def _turns_begun(self) -> int:
        """Return how many turns speech has begun since the last call, once they are over."""
        self.engine.post(Cancel())
        self.engine.post(RescanDevices())  # READY follows it once all before it was done
        self._events.until(StateChanged, lambda event: event.state is State.LOADING)
        self._events.until(StateChanged, lambda event: event.state is State.READY)
        self._events.drain()
        begun = self._events.of(TurnStarted)
        self._events.seen.clear()
        return sum(isinstance(e, TurnStarted) and e.source == "microphone" for e in begun)


class Teller(ScriptedBrain):
    """FakeBrain: gives `answer` to a text, and nothing to speech."""

    answer = ""

    def reply(self, request: TurnRequest) -> Iterator[UserTranscript | Token]:
        if isinstance(request.user_input, str):
            yield Token(self.answer)
