"""Compare the embedded brain with the same models run in sequence, turn by turn in one process.

    python -m benchmarks.embedded QUESTIONS [--gaps 0,150,400] [--busy N] [--json OUT]

The script plays each question in real time. The release comes `--gaps` milliseconds
after the last voiced sample. The baseline gets the same sound up to the same moment. It then
recognises, prefills, generates and speaks, each step on every core; its first clause may end at a
comma, and its instruction is in the KV cache. A sound counts from its first sample above -50 dBFS
when the voice returns it; a device adds the same time to both. The baseline is timed twice: with
and without the voice's own leading silence.

`--busy N`: instead of running the baseline, ask each question again beside N busy programs.
"""

from __future__ import annotations

import argparse
import json
import queue
import re
import signal
import statistics
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.stages import busy
from voxtui.audio.clips import Clip, load_clip
from voxtui.audio.file_speaker import NullSpeaker
from voxtui.audio.silero import PySilero
from voxtui.bench.environment import machine
from voxtui.brains.embedded.chat_process import ASK, ChatRequest, Llama, chatml
from voxtui.brains.embedded.embedded_brain import EmbeddedBrain
from voxtui.brains.embedded.recogniser import Moonshine
from voxtui.commands.headless import Headless, headless
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import SAMPLE_RATE, audible
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import NewConversation
from voxtui.dialogue.events import Event
from voxtui.models.installed import model_file
from voxtui.settings.schema import Config
from voxtui.storage.derived_latencies import percentile
from voxtui.voices.hibari import HibariVoice, trim

VOICED = 10 ** (-40 / 20)
"""Amplitude of -40 dBFS. The last sample above it is the last voiced sample of a clip."""

AFTER_SECONDS = 0.1
"""Length of silence after the release, so that a frame ends the utterance."""

BEFORE_SECONDS = 0.5
"""Time between two turns in which the busy programs run before the key press."""


@dataclass(frozen=True, slots=True)
class Result:
    system: str
    gap_ms: int
    file: str
    heard: str
    reply: str
    right: bool
    ttft_ms: float
    first_sound_ms: float
    total_ms: float
    speech_ended_to_sound_ms: float
    """milliseconds from the last voiced sample of the clip"""
    hidden_ms: float = 0.0
    timestamps: dict[str, int] = field(default_factory=dict[str, int])
    """milliseconds from the release"""


def first_audible(samples: Any, rate: int) -> float:
    """Return the seconds until the first sample above -50 dBFS."""
    return int(audible(samples)[0]) / rate


def engine(config: Config, emit: Callable[[Event], object]) -> Engine:
    """Build an engine on the embedded parts without a sound device."""
    brain = EmbeddedBrain(config)
    return Engine(
        Models(PySilero(), brain, HibariVoice(config.voice)),
        config,
        emit,
        Devices(speaker=NullSpeaker()),
    )


class OneAfterAnother:
    """The baseline: the same models in sequence."""

    def __init__(self, model: Path, config: Config) -> None:
        self._config = config
        self._recogniser = Moonshine()
        self._recogniser.load()
        self._chat = Llama(2048)
        self._chat.load(model)
        self._voice = HibariVoice(config.voice)
        self._voice.warm_up(lambda step, fraction: None)

    def ask(self, sound: Any) -> tuple[str, str, float, float, float, float]:
        """Return (heard, reply, TTFT, first sound, the same without leading silence, total).

        Times are seconds from the call, when the utterance is complete.
        """
        model: Any = self._voice._model  # pyright: ignore[reportPrivateUsage]
        instruction = self._config.brain.instruction
        self._run(chatml(instruction, [], ""), 0)
        began = time.monotonic()
        heard = self._recogniser.recognise(sound).text
        texts: list[str] = []
        first = spoken = trimmed = None
        for text in self._run(chatml(instruction, [], heard) + ASK, 160):
            first = first or time.monotonic() - began
            texts.append(text)
            clause = _ordinary_clause("".join(texts))
            if clause and spoken is None:
                spoken, trimmed = self._speak(model, clause, began)
        total = time.monotonic() - began
        if spoken is None:
            spoken, trimmed = self._speak(model, "".join(texts), began)
        return heard, "".join(texts), first or total, spoken, trimmed or spoken, total

    def _speak(self, model: Any, clause: str, began: float) -> tuple[float, float]:
        samples = model(clause, seed=0)
        now = time.monotonic() - began
        rate = int(model.sample_rate)
        return (
            now + first_audible(samples, rate),
            now + first_audible(trim(samples, rate, 0.0), rate),
        )

    def _run(self, prompt: str, tokens: int) -> Iterator[str]:
        out: queue.SimpleQueue[str | None] = queue.SimpleQueue()

        def generate() -> None:
            sampling = self._config.generation.sampling(EmbeddedBrain.name)
            self._chat.run(
                ChatRequest(prompt, sampling, tokens),
                lambda done, total: False,
                lambda text: out.put(text) is not None,
            )
            out.put(None)

        thread = threading.Thread(target=generate)
        thread.start()
        if tokens == 0:
            thread.join()
            return iter(())
        return iter(out.get, None)  # type: ignore[arg-type]


def _ordinary_clause(text: str) -> str | None:
    """Return the first clause as common pipelines cut it: after a comma or full stop."""
    found = re.search(r"(?<=[.!?])\s|(?<=[,;:])\s", text)
    return text[: found.start()] if found and found.start() >= 10 else None


@dataclass(frozen=True, slots=True)
class Spoken:
    """A question and its release time."""

    file: str
    sound: Any
    released: float
    gap_ms: int
    right: re.Pattern[str]


def spoken(folder: Path, gaps: list[int]) -> list[Spoken]:
    found: list[Spoken] = []
    for gap in gaps:
        for question in tomllib.loads((folder / "questions.toml").read_text())["question"]:
            clip = load_clip(folder / question["file"], 60.0).samples
            voiced = int(np.flatnonzero(np.abs(clip) > VOICED)[-1]) + 1
            silence = np.zeros(round((gap / 1000 + AFTER_SECONDS) * SAMPLE_RATE), np.float32)
            sound = np.concatenate([clip[:voiced], silence])
            right = re.compile(question["answer"], re.IGNORECASE)
            released = voiced / SAMPLE_RATE + gap / 1000
            found.append(Spoken(question["file"], sound, released, gap, right))
    return found


def run(questions: list[Spoken], model: Path, config: Config) -> list[Result]:
    baseline = OneAfterAnother(model, config)
    results: list[Result] = []
    with headless(partial(engine, config)) as asked:
        for number, question in enumerate(questions, 1):
            results.append(_ours("voxtui", asked, question))
            results += _baseline(baseline, question)
            sys.stderr.write(f"\r{number}/{len(questions)}")
    sys.stderr.write("\n")
    return results


def run_busy(questions: list[Spoken], config: Config, programs: int) -> list[Result]:
    """Ask every question twice, the second time beside `programs` busy processes."""
    results: list[Result] = []
    with ExitStack() as stack:
        others = stack.enter_context(busy(programs))
        for other in others:
            other.send_signal(signal.SIGSTOP)
        asked = stack.enter_context(headless(partial(engine, config)))
        for number, question in enumerate(questions, 1):
            for name, go in (
                ("voxtui", signal.SIGSTOP),
                (f"voxtui, {programs} busy", signal.SIGCONT),
            ):
                for other in others:
                    other.send_signal(go)
                threading.Event().wait(BEFORE_SECONDS)
                results.append(_ours(name, asked, question))
            sys.stderr.write(f"\r{number}/{len(questions)}")
    sys.stderr.write("\n")
    return results


def _ours(name: str, asked: Headless, question: Spoken) -> Result:
    asked.engine.post(NewConversation())
    turn = asked.ask(Clip(question.file, question.sound), held=question.released)
    sound = turn.first_sound_ms if turn.first_sound_ms is not None else float("nan")
    return Result(
        name, question.gap_ms, question.file, turn.heard or "", turn.reply,
        bool(question.right.search(turn.reply)),
        turn.ttft_ms or float("nan"), sound, turn.total_ms or float("nan"), sound + question.gap_ms,
        turn.speculative_s * 1000, {name: round(at * 1000) for name, at in turn.timestamps.items()},
    )  # fmt: skip


def _baseline(baseline: OneAfterAnother, question: Spoken) -> list[Result]:
    sound = question.sound[: int(question.released * SAMPLE_RATE)]
    heard, reply, ttft, sounded, trimmed, total = baseline.ask(np.ascontiguousarray(sound))
    ok, gap = bool(question.right.search(reply)), question.gap_ms
    return [
        Result(name, gap, question.file, heard, reply, ok, ttft * 1000, at * 1000, total * 1000,
               at * 1000 + gap)
        for name, at in (("one after another", sounded), ("the same, silence cut", trimmed))
    ]  # fmt: skip


def report(results: list[Result]) -> str:
    """Return a Markdown table: medians, p95 and ratio to the baseline per system and gap."""
    lines = [
        "| release after last voice | system | TTFT p50 | first sound p50 | p95 "
        "| from speech end p50 | total p50 | right | ours / it, p50 | p95 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for gap in dict.fromkeys(r.gap_ms for r in results):
        ours = _sounds(results, gap, "voxtui")
        for system in dict.fromkeys(r.system for r in results):
            rows = [r for r in results if r.gap_ms == gap and r.system == system]
            sounds = _sounds(results, gap, system)
            median, most = statistics.median(sounds), percentile(sounds, 95) or float("nan")
            lines.append(
                f"| {gap} ms | {system} | {statistics.median(r.ttft_ms for r in rows):.0f} ms "
                f"| {median:.0f} ms | {most:.0f} ms "
                f"| {median + gap:.0f} ms | {statistics.median(r.total_ms for r in rows):.0f} ms "
                f"| {sum(r.right for r in rows)}/{len(rows)} "
                f"| {statistics.median(ours) / median:.2f} "
                f"| {(percentile(ours, 95) or float('nan')) / most:.2f} |"
            )
    return "\n".join(lines)


def _sounds(results: list[Result], gap: int, system: str) -> list[float]:
    return [r.first_sound_ms for r in results if r.gap_ms == gap and r.system == system]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("questions", type=Path)
    parser.add_argument("--gaps", default="0,150,400")
    parser.add_argument("--busy", type=int, default=0, metavar="N")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    config = Config()
    about = machine()
    questions = spoken(arguments.questions, [int(gap) for gap in arguments.gaps.split(",")])
    if arguments.busy:
        results = run_busy(questions, config, arguments.busy)
    else:
        results = run(questions, model_file(config.brain.embedded.model), config)
    sys.stdout.write(f"{json.dumps(about)}\n{report(results)}\n")
    if arguments.json:
        rows = [asdict(result) for result in results]
        arguments.json.write_text(json.dumps({"machine": about, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
