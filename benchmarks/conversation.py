"""Measure whether a conversation stays fast: compare its last ten turns with its first ten.

    python -m benchmarks.conversation [typed] [spoken] [--turns N] [--past TOKENS] [--json FILE]

One conversation of 30 turns per way of asking, on the embedded brain and voice, without a sound
device. Its last ten questions are the first ten once more. Typed turns are typed key by key; spoken
turns are spoken by the embedded voice, in real time. The brain is told the time, as on the screen.
Run it on an idle machine: four minutes a way.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from threading import Event as Flag
from typing import Any

import numpy as np

from voxtui.audio.clips import Clip, speak
from voxtui.audio.file_speaker import NullSpeaker
from voxtui.audio.resampling import resample
from voxtui.audio.silero import PySilero
from voxtui.bench.environment import machine
from voxtui.brains.embedded.embedded_brain import EmbeddedBrain
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import SAMPLE_RATE, SKILL
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import SendText, Typing
from voxtui.dialogue.events import Died, Event, LoadFailed, State, StateChanged, TurnFinished
from voxtui.dialogue.timestamps import Turn
from voxtui.settings.schema import Config, HistoryConfig
from voxtui.skills.assistant_skills import AssistantSkills
from voxtui.storage.derived_latencies import percentile
from voxtui.voices.hibari import HibariVoice

ENDS = (
    "What is the largest lake in Norway?",
    "Is it warm there in summer?",
    "Who wrote Romeo and Juliet?",
    "Tell me one more play by the same author.",
    "Why is the sky blue?",
    "What is the boiling point of water?",
    "And on a high mountain?",
    "What do cows drink?",
    "Name three animals that lay eggs.",
    "Which of them can fly?",
)
"""The first questions, and the last ones. They are the same, because a longer question or answer
always takes longer."""

BETWEEN = (
    "My name is Anna and I live in Oslo.",
    "How do I boil an egg?",
    "How long does it take?",
    "What is the capital of Japan?",
    "Is it larger than Paris?",
    "What language do people speak in Brazil?",
    "How do you say good morning in that language?",
    "What is a rainbow?",
    "Which colours does it have?",
    "Which city do I live in?",
)

NOW = datetime(2026, 11, 22, 13, 4)
"""The time that the brain is told, so that two runs have the same prompts."""

KEYS_PER_SECOND = 8.0
ENTER_SECONDS = 0.2
"""Time between the last letter and Enter."""

PAUSE_SECONDS = 1.5
"""Time between the end of an answer and the next key. A person listens longer than that, because
here an answer takes no time to play."""

FIGURES: dict[str, Callable[[Turn], float | None]] = {
    "first token": lambda turn: turn.ttft_ms,
    "first sound": lambda turn: turn.first_sound_ms,
}


@dataclass(frozen=True, slots=True)
class Person:
    """Asks an engine as a screen does."""

    engine: Engine
    events: SimpleQueue[Event]

    def until(self, wanted: Callable[[Event], bool]) -> Event:
        """Take events until one is `wanted`. Raises the error of a start or thread that failed."""
        while True:
            event = self.events.get()
            if isinstance(event, Died | LoadFailed):
                raise event.error
            if wanted(event):
                return event

    def finished(self) -> Turn:
        event = self.until(lambda event: isinstance(event, TurnFinished))
        assert isinstance(event, TurnFinished)
        return event.turn

    def type(self, text: str) -> Turn:
        """Type `text` key by key and press Enter."""
        begin = time.monotonic()
        for count in range(1, len(text) + 1):
            wait_until(begin + count / KEYS_PER_SECOND)
            self.engine.post(Typing(text[:count]))
        wait_until(begin + len(text) / KEYS_PER_SECOND + ENTER_SECONDS)
        self.engine.post(SendText(text))
        self.engine.post(Typing(""))
        return self.finished()

    def say(self, clip: Clip) -> Turn:
        """Hold the key during `clip`."""
        speak(clip, self.engine, Flag())
        return self.finished()


def wait_until(at: float) -> None:
    time.sleep(max(0.0, at - time.monotonic()))  # a person types in real time


@contextmanager
def person(config: Config, local: bool = True) -> Generator[Person]:
    """Start an engine and wait until it is ready. `local`: with the rules and the time."""
    events: SimpleQueue[Event] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        skills = AssistantSkills(Path(folder), rings=False, now=lambda: NOW)
        engine = Engine(
            Models(PySilero(), EmbeddedBrain(config), HibariVoice(config.voice)),
            config,
            events.put,
            Devices(speaker=NullSpeaker()),
            skills=skills if local else None,
        )
        there = Person(engine, events)
        engine.start()
        try:
            there.until(lambda event: event == StateChanged(State.READY))
            yield there
        finally:
            engine.close()


def clips(questions: Sequence[str], config: Config) -> list[Clip]:
    """Speak each question with the embedded voice."""
    voice = HibariVoice(config.voice)
    voice.warm_up(lambda step, fraction: None)
    spoken: list[Clip] = []
    for question in questions:
        chunks = list(voice.speak(question))
        samples = np.concatenate([chunk.samples for chunk in chunks])
        spoken.append(Clip(question, resample(samples, chunks[0].rate, SAMPLE_RATE)))
    voice.close()
    return spoken


def questions(turns: int) -> list[str]:
    """Return the questions of a conversation of `turns` turns."""
    ends = ENDS[: turns // 2]
    return [*ends, *(BETWEEN[n % len(BETWEEN)] for n in range(turns - 2 * len(ends))), *ends]


def converse(way: str, turns: int, config: Config) -> list[Turn]:
    """Hold one conversation, typed or spoken. Return its turns."""
    asked = questions(turns)
    spoken = clips(asked, config) if way == "spoken" else []
    done: list[Turn] = []
    with person(config) as there:
        for number, question in enumerate(asked):
            time.sleep(PAUSE_SECONDS)  # a person listens; the brain may read the history
            turn = there.say(spoken[number]) if spoken else there.type(question)
            done.append(turn)
            sys.stderr.write(
                f"{way} {number + 1:2}: first token {turn.ttft_ms or 0:5.0f} ms, first sound "
                f"{turn.first_sound_ms or 0:5.0f}, hidden {turn.speculative_s * 1000:6.0f}: "
                f"{turn.heard} - {turn.reply}\n"
            )
    return done


def report(way: str, turns: Sequence[Turn]) -> list[str]:
    """Return a row of Markdown per figure: both ends of the conversation and their ratio.

    A question that a rule answered at one end is left out at both.
    """
    ends = len(ENDS[: len(turns) // 2])
    pairs = zip(turns[:ends], turns[len(turns) - ends :], strict=True)
    pairs = [pair for pair in pairs if all(turn.brain != SKILL for turn in pair)]
    rows: list[str] = []
    for name, of in FIGURES.items():
        timed = [(of(first), of(last)) for first, last in pairs]
        known = [(first, last) for first, last in timed if first is not None and last is not None]
        first, last = ([pair[end] for pair in known] for end in (0, 1))
        before, after = statistics.median(first), statistics.median(last)
        rows.append(
            f"| {way} | {name} | {before:.0f} | {percentile(first, 95):.0f} | {after:.0f} "
            f"| {percentile(last, 95):.0f} | {after / before:.2f} |"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ways", nargs="*", metavar="typed|spoken", default=["typed", "spoken"])
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--past", type=int, metavar="TOKENS")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    config = Config(history=HistoryConfig(max_tokens=arguments.past))
    found: dict[str, Any] = {"history.max_tokens": config.history.tokens("embedded")}
    rows = [
        "| asked | ms | first ten p50 | p95 | last ten p50 | p95 | last / first, p50 |",
        "|---|---|---|---|---|---|---|",
    ]
    for way in arguments.ways:
        turns = converse(way, arguments.turns, config)
        rows += report(way, turns)
        found[way] = [turn.as_json() for turn in turns]
    about = machine()
    sys.stdout.write("\n".join([json.dumps(about), *rows, ""]))
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": about, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
