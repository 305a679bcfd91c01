"""Measure the silences inside spoken answers, from a recording of the virtual speaker.

    python -m benchmarks.holes [--runs 3] [--compare] [--json OUT]

The real engine, chat model, voice and speaker answer typed questions on a virtual sound server.
The script records the speaker and finds each clause of the voice in the recording. A hole is the
silence between the last audible sample of a clause and the first of the next one, if no sentence
ends there. `--compare` asks each question twice, with and without the pace, in alternating order.
Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import queue
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from pathlib import Path

import numpy as np

from tests.fakes import LoudIsSpeech
from tests.virtual_audio import RATE, SPEAKER, Recorder, VirtualAudio
from voxtui.audio.resampling import resample
from voxtui.audio.speaker import SounddeviceSpeaker
from voxtui.bench.environment import machine
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import SpeechChunk, audible
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import NewConversation, SendText
from voxtui.dialogue.events import Died, Event, Loaded, LoadFailed, TurnFinished
from voxtui.dialogue.protocols import Progress, Voice
from voxtui.dialogue.speech import reply_speech
from voxtui.dialogue.speech.speech_pacing import SpeechPacing
from voxtui.settings.schema import BrainConfig, Config, EmbeddedBrainConfig
from voxtui.voices.hibari import HibariVoice
from voxtui.wiring import build_brain

SEARCH_RATE = 8_000
"""Sample rate in Hz at which clauses are searched for in the recording."""

PIECE_SECONDS = 0.5
"""Length of sound at the beginning and at the end of a clause that is searched for: between them
the device may have run dry."""

SENTENCE_ENDS = '.!?…"'
HOLE_SECONDS = 0.25

LONG = (
    "Count from ten to forty in words.",
    "Say the alphabet, letter by letter.",
    "Name ten animals in one sentence.",
)
EVERYDAY = (
    "Why is the sky blue?",
    "What is the capital of Portugal?",
    "How do I boil an egg?",
    "What should I wear when it rains?",
    "Tell me about the moon.",
    "What is a good present for a child?",
    "How far away is the sun?",
    "What can I cook with rice and tomatoes?",
    "Why do cats purr?",
)


class Unhurried(SpeechPacing):
    """Waits for the end of each sentence, however little speech is left to play."""

    def patience(self, characters: int, now: float) -> float | None:
        return None


class NotingVoice:
    """A voice that stores the speech of each clause."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self.name = voice.name
        self.chunks: list[SpeechChunk] = []

    def warm_up(self, progress: Progress) -> None:
        self._voice.warm_up(progress)

    def speak(
        self, clause: str, speed: float | None = None, language: str = "en"
    ) -> Iterator[SpeechChunk]:
        for chunk in self._voice.speak(clause):
            self.chunks.append(chunk)
            yield chunk

    def close(self) -> None:
        self._voice.close()


@dataclass(frozen=True)
class Spoken:
    """One answer as the recorder heard it."""

    question: str
    paced: bool
    first_sound_s: float
    """seconds after the question was sent"""
    seconds: float
    """seconds from the first to the last sound"""
    clauses: list[str]
    silences: list[float]
    """the silences in seconds after each clause but the last"""
    own_pause_s: float
    """the longest silence in seconds that the voice itself made inside a clause"""
    dry_s: float
    """the longest time in seconds by which a clause was stretched because the device ran dry"""

    @property
    def inside(self) -> list[float]:
        """Return the silences inside a sentence."""
        ends = zip(self.clauses, self.silences, strict=False)
        return [silence for clause, silence in ends if clause[-1] not in SENTENCE_ENDS]

    @property
    def between(self) -> list[float]:
        """Return the silences between two sentences."""
        ends = zip(self.clauses, self.silences, strict=False)
        return [silence for clause, silence in ends if clause[-1] in SENTENCE_ENDS]


def at_search_rate(samples: np.ndarray, rate: float) -> np.ndarray:
    return resample(samples, rate, SEARCH_RATE)


def find(clause: np.ndarray, sound: np.ndarray, start: int) -> int:
    """Return the index of `clause` in `sound`, from `start` on, by normalised correlation."""
    rest = sound[start:]
    size = 1 << int(np.ceil(np.log2(len(rest) + len(clause))))
    product = np.fft.rfft(rest, size) * np.conj(np.fft.rfft(clause, size))
    places = max(1, len(rest) - len(clause) + 1)
    correlation = np.fft.irfft(product, size)[:places]
    energy = np.concatenate([[0.0], np.cumsum(rest.astype(np.float64) ** 2)])
    window = energy[len(clause) :][:places] - energy[: -len(clause)][:places]
    likeness = correlation / np.sqrt(np.maximum(window, 1e-6) * float(np.dot(clause, clause)))
    best = int(np.argmax(likeness))
    assert likeness[best] > 0.6, f"a clause is not in the recording ({likeness[best]:.2f})"
    return start + best


def measure(
    question: str, sound: np.ndarray, chunks: list[SpeechChunk], paced: bool = True
) -> Spoken:
    """Find `chunks` in `sound`, recorded at 48 kHz since the question was sent."""
    recorded = at_search_rate(sound, RATE)
    position, own_pause, dry, edges = 0, 0.0, 0.0, list[tuple[float, float]]()
    for chunk in chunks:
        loud = audible(chunk.samples) / chunk.rate
        own_pause = max(own_pause, float(np.diff(loud).max(initial=0.0)))
        margin = round(0.01 * SEARCH_RATE)
        begin, end = (round(float(at) * SEARCH_RATE) for at in (loud[0], loud[-1]))
        clause = at_search_rate(chunk.samples, chunk.rate)[: end + margin]
        piece = min(len(clause), round(PIECE_SECONDS * SEARCH_RATE))
        start = find(clause[:piece], recorded, position)
        rest = max(start, start + len(clause) - piece - margin)
        position = find(clause[-piece:], recorded, rest) + piece - margin
        dry = max(dry, (position - start - end) / SEARCH_RATE)
        edges.append(((start + begin) / SEARCH_RATE, position / SEARCH_RATE))
    silences = [round(after[0] - before[1], 3) for before, after in pairwise(edges)]
    return Spoken(
        question=question,
        paced=paced,
        first_sound_s=round(edges[0][0], 3),
        seconds=round(edges[-1][1] - edges[0][0], 2),
        clauses=[chunk.text for chunk in chunks],
        silences=silences,
        own_pause_s=round(own_pause, 3),
        dry_s=round(dry, 3),
    )


class Asker:
    """Asks the engine and records its answers."""

    def __init__(self, recorder: Recorder, model: str) -> None:
        embedded = EmbeddedBrainConfig(model=model) if model else EmbeddedBrainConfig()
        config = Config(brain=BrainConfig(name="embedded", embedded=embedded))
        self._recorder = recorder
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._voice = NotingVoice(HibariVoice(config.voice))
        self.engine = Engine(
            Models(LoudIsSpeech(), build_brain(config, lambda sentence: None), self._voice),
            config,
            self._events.put,
            Devices(speaker=SounddeviceSpeaker(SPEAKER)),
        )
        self.engine.start()
        self._until(Loaded)

    def ask(self, question: str, paced: bool = True) -> Spoken:
        reply_speech.SpeechPacing = SpeechPacing if paced else Unhurried
        self.engine.post(NewConversation())
        self._voice.chunks = []
        sent = time.monotonic()
        self.engine.post(SendText(question))
        self._until(TurnFinished)
        self._recorder.until(time.monotonic() + 0.2)
        return measure(question, self._recorder.since(sent), self._voice.chunks, paced)

    def _until(self, kind: type[Event]) -> None:
        while not isinstance(event := self._events.get(), kind):
            if isinstance(event, Died | LoadFailed):
                raise event.error


def report(answers: list[Spoken]) -> str:
    """Return the table of all answers, one row for each question."""
    rows = [
        "| question | first sound ms | speech s | clauses | longest hole s | holes > 0.25 s "
        "| longest between sentences s | longest pause of the voice itself s | device dry s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for question in dict.fromkeys(answer.question for answer in answers):
        rows.append(_row(question, [a for a in answers if a.question == question]))
    rows.append(_row("**all**", answers))
    return "\n".join(rows) + "\n"


def _row(name: str, answers: list[Spoken]) -> str:
    inside = [hole for answer in answers for hole in answer.inside]
    between = [pause for answer in answers for pause in answer.between]
    cells = (
        f"{statistics.median(a.first_sound_s for a in answers) * 1000:.0f}",
        f"{statistics.median(a.seconds for a in answers):.1f}",
        f"{statistics.median(len(a.clauses) for a in answers):.0f}",
        f"{max(inside):.2f}" if inside else "–",
        str(sum(hole > HOLE_SECONDS for hole in inside)),
        f"{max(between):.2f}" if between else "–",
        f"{max(a.own_pause_s for a in answers):.2f}",
        f"{max(a.dry_s for a in answers):.2f}",
    )
    return f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--model", default="", help="chat model; the default is the program's")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    about = machine()
    answers: list[Spoken] = []
    with VirtualAudio() as audio, audio.environment(), audio.record() as recorder:
        asker = Asker(recorder, options.model)
        try:
            asker.ask("Hello.")
            for run, question in product(range(options.runs), (*LONG, *EVERYDAY)):
                for paced in (True, False)[:: 1 - 2 * (run % 2)] if options.compare else (True,):
                    try:
                        answers.append(asker.ask(question, paced))
                    except AssertionError as error:
                        sys.stderr.write(f"{question} left out: {error}\n")
        finally:
            asker.engine.close()
    for paced in sorted({answer.paced for answer in answers}):
        sys.stdout.write("\nwith the pace\n\n" if paced else "\nwithout the pace\n\n")
        sys.stdout.write(report([answer for answer in answers if answer.paced == paced]))
    if options.json:
        found = {"machine": about, "answers": [asdict(answer) for answer in answers]}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
