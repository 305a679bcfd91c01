"""Measure hands-free talking over loudspeakers, with an echo on a virtual sound server.

    python -m benchmarks.echo [--answers 25] [--interruptions 10] [--echo 30 100] [--off]

The real engine, speaker, microphone, canceller and speech detector run; the brain is a stub and the
voice plays speech that was made before. The microphone hears the speaker at the volumes of
`--echo`, in percent. Counted are answers that voxtui interrupts or answers itself. From the first
sample of a spoken interruption in the microphone, the time is measured until it is noticed, and
until the last sound of the answer. If that is before the words, the answer has interrupted itself.
`--off` runs it without cancellation, to see that the echo is heard.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.audio.sounds import QUESTIONS, find, question
from tests.fakes import Events, ScriptedBrain, engine_on_fakes
from tests.virtual_audio import MICROPHONE, RATE, SAID, VirtualAudio
from voxtui.audio.echo_canceller import EchoCanceller
from voxtui.audio.microphone import SounddeviceMicrophone
from voxtui.audio.played import PLAYED
from voxtui.audio.silero import PySilero
from voxtui.audio.speaker import SounddeviceSpeaker
from voxtui.dialogue.data import Frame, SpeechChunk
from voxtui.dialogue.engine_commands import Cancel, SendText
from voxtui.dialogue.events import State, StateChanged, TurnFinished, TurnStarted
from voxtui.dialogue.protocols import Progress
from voxtui.dialogue.timestamps import Milestone, Outcome, Timestamps
from voxtui.settings.schema import Config, VadConfig
from voxtui.voices.hibari import HibariVoice

STORY = (
    "The moon goes around the earth in about a month, and it always shows us the same side.",
    "Most of its surface is grey dust, and there is no air, so the sky above it is black.",
)

SHORT, LONG = "0.", "0, 1."
"""Answers of some 5 and 10 seconds."""

SETTLED_SECONDS = 2.0
"""Time after the first sound before a person interrupts an answer."""

AFTER_SECONDS = 1.5
"""Time after an answer in which a new turn counts as an answer to itself."""


class Recorded:
    """A stub voice: each digit of a clause is a sentence recorded from a real voice."""

    name = "recorded"

    def __init__(self) -> None:
        voice = HibariVoice(Config().voice)
        voice.warm_up(lambda step, fraction: None)
        self._speech = [list(voice.speak(sentence)) for sentence in STORY]
        voice.close()

    def warm_up(self, progress: Progress) -> None: ...

    def speak(
        self, clause: str, speed: float | None = None, language: str = "en"
    ) -> Iterator[SpeechChunk]:
        for digit in re.findall(r"\d", clause):
            for chunk in self._speech[int(digit)]:
                yield SpeechChunk(chunk.samples, chunk.rate, clause)
                clause = ""

    def close(self) -> None: ...


class Timed(EchoCanceller):
    """A canceller that sums up its CPU time."""

    cpu_s = 0.0
    blocks_s = 0.0

    def process(self, samples: Any, until: float) -> Any:
        began = time.thread_time()
        done = super().process(samples, until)
        Timed.cpu_s += time.thread_time() - began
        Timed.blocks_s += len(samples) / 16_000
        return done


class Noting(PySilero):
    """A speech detector that records the time of its latest result."""

    at = 0.0

    def probability(self, frame: Frame) -> float:
        probability = super().probability(frame)
        self.at = time.monotonic()
        return probability


@dataclass(frozen=True)
class Interruption:
    """Seconds from the first sample of the words."""

    noticed: float
    silent: float


class Room:
    """A hands-free engine whose microphone hears its speaker."""

    def __init__(self, audio: VirtualAudio, speaker: str, cancels: bool = True) -> None:
        self._audio = audio
        self._events = Events()
        self._overhearing = Noting()
        self._brain = ScriptedBrain()
        self._known = 0
        """the number of turns that speech has begun"""
        self.engine = engine_on_fakes(
            self._events,
            microphone=SounddeviceMicrophone(
                MICROPHONE, (lambda: Timed(PLAYED)) if cancels else None
            ),
            speaker=SounddeviceSpeaker(speaker),
            detector=PySilero(),
            brain=self._brain,
            voice=Recorded(),
            config=Config(vad=VadConfig(hands_free=True, listen_while_speaking=not cancels)),
            overhearing=self._overhearing,
        )
        self.engine.start()
        self._wait_for(State.READY)

    def answers_itself(self) -> bool:
        """Return True if it interrupts an answer, or takes it for the user's speech."""
        self._answer(SHORT)
        outcome = self._finished()
        return self._turns_begun() > 0 or outcome is not Outcome.ANSWERED

    def interrupted(self, words: str, after: float) -> Interruption | None:
        """Say `words` that many seconds after the first sound of an answer.

        Returns None if they did not end it.
        """
        timestamps = self._answer(LONG)
        began = timestamps.at(Milestone.FIRST_SOUND) or time.monotonic()
        threading.Event().wait(max(0.0, began + after - time.monotonic()))
        with self._audio.record(SAID) as recorder:
            saying = self._audio.say(question(words), ahead_ms=60)
            outcome, noticed = self._finished(), self._overhearing.at
            saying.wait()
            recorder.until(time.monotonic())
            heard = recorder.stop()
        at, _ = find(question(words, RATE), heard)
        said_at = recorder.began_at + at / RATE
        self._turns_begun()
        silent = timestamps.at(Milestone.LAST_SOUND)
        if outcome is not Outcome.CANCELLED or silent is None:
            return None
        return Interruption(noticed - said_at, silent - said_at)

    def _answer(self, text: str) -> Timestamps:
        self._brain.scripts[:] = [[text] for _ in range(20)]  # what speech begins is answered, too
        self.engine.post(SendText("Tell me about the moon."))
        started = self._events.until(TurnStarted)
        assert isinstance(started, TurnStarted)
        self._wait_for(State.SPEAKING)
        return started.timestamps

    def _wait_for(self, state: State) -> None:
        self._events.until(StateChanged, lambda event: event == StateChanged(state))

    def _finished(self) -> Outcome:
        finished = self._events.until(TurnFinished)
        assert isinstance(finished, TurnFinished)
        return finished.turn.outcome

    def _turns_begun(self) -> int:
        """Return the number of turns begun by speech since the last call, and end them."""
        count = self._begun()
        while True:
            self.engine.post(Cancel())
            threading.Event().wait(AFTER_SECONDS)
            if self._begun() == count:
                break
            count = self._begun()
        new, self._known = count - self._known, count
        return new

    def _begun(self) -> int:
        self._events.drain()
        begun = self._events.of(TurnStarted)
        return sum(isinstance(e, TurnStarted) and e.source == "microphone" for e in begun)


def measure(room: Room, answers: int, interruptions: int) -> None:
    """Print the results of that many answers and interruptions."""
    wrong = sum(room.answers_itself() for _ in range(answers))
    print(f"  {wrong} of {answers} answers to itself", flush=True)
    uneven, names = random.Random(1), sorted(path.stem for path in QUESTIONS.glob("*.flac"))
    found = [
        room.interrupted(names[number % len(names)], SETTLED_SECONDS + 3 * uneven.random())
        for number in range(interruptions)
    ]
    heard = [one for one in found if one is not None]
    print(f"  {len(heard)} of {len(found)} interruptions ended the answer", flush=True)
    if heard:
        print(f"  noticed: {described([one.noticed for one in heard])}")
        print(f"  silent: {described([one.silent for one in heard])}", flush=True)


def described(times: Sequence[float]) -> str:
    ms = sorted(round(1000 * t) for t in times)
    quick = sum(0 < t <= 300 for t in ms)
    return f"{quick} within 300 ms; median {statistics.median(ms):.0f} ms, {ms}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--answers", type=int, default=25)
    parser.add_argument("--interruptions", type=int, default=10)
    parser.add_argument("--echo", type=int, nargs="+", default=[30, 100])
    parser.add_argument("--off", action="store_true")
    asked = parser.parse_args()
    with VirtualAudio() as audio:
        speakers = {percent: audio.plug_in_loudspeaker(percent) for percent in asked.echo}
        with audio.environment():
            for percent, speaker in speakers.items():
                room = Room(audio, speaker, not asked.off)
                print(f"echo {percent} %, load {os.getloadavg()[0]:.1f}", flush=True)
                try:
                    measure(room, asked.answers, asked.interruptions)
                finally:
                    room.engine.close()
    if Timed.blocks_s:
        print(f"the canceller takes {100 * Timed.cpu_s / Timed.blocks_s:.2f} % of a core")
    return 0


if __name__ == "__main__":
    sys.exit(main())
