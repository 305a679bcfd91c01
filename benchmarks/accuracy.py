"""Compare word errors and right answers with and without work ahead.

    python -m benchmarks.accuracy [--questions 18] [--variants "quiet,fast"] [--model NAME]
        [--json OUT]

The script plays every question in real time to the engine, which works ahead while the key is held.
A second brain, which did no work ahead, then answers the same utterance. Results of other variants
that OUT already holds are kept.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from benchmarks.word_errors import word_errors
from tests.audio.sounds import QUESTIONS
from voxtui.audio.clips import Clip
from voxtui.audio.resampling import resample
from voxtui.audio.silero import PySilero
from voxtui.bench.environment import machine
from voxtui.brains.embedded.embedded_brain import EmbeddedBrain
from voxtui.commands.headless import headless
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.data import SAMPLE_RATE, Token, ToolCall, UserTranscript, Utterance
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import NewConversation
from voxtui.dialogue.events import Event
from voxtui.dialogue.protocols import TurnRequest
from voxtui.dialogue.timestamps import Timestamps
from voxtui.settings.schema import BrainConfig, Config, EmbeddedBrainConfig, GenerationConfig

LONG_SECONDS = 25.0


@dataclass(frozen=True)
class Said:
    """A question in one of its variants."""

    variant: str
    samples: np.ndarray
    text: str
    answer: str | None
    """a regular expression for the answer, or None to check the words only"""
    held: float
    """the seconds until the release"""


def questions(count: int) -> list[tuple[np.ndarray, str, str]]:
    """Return (samples without surrounding silence, text, answer) for each question."""
    table = tomllib.loads((QUESTIONS / "questions.toml").read_text())["question"][:count]
    found: list[tuple[np.ndarray, str, str]] = []
    for question in table:
        samples, _ = soundfile.read(QUESTIONS / question["file"], dtype="float32")
        loud = np.flatnonzero(np.abs(samples) > 0.01)
        found.append((samples[loud[0] : loud[-1] + 1], question["text"], question["answer"]))
    return found


def variants(count: int) -> Iterator[Said]:
    """Yield every question in every variant, and one long utterance made of many questions."""
    known = questions(count)
    for samples, text, answer in known:
        for name, change in CHANGES.items():
            spoken = change(samples)
            held = len(spoken) / SAMPLE_RATE + RELEASES.get(name, 0.15)
            yield Said(name, _surrounded(spoken, name), text, answer, LEAD + held)
    long, texts = np.zeros(0, np.float32), []
    for samples, text, _ in known * 2:
        if len(long) / SAMPLE_RATE < LONG_SECONDS:
            long = np.concatenate([long, samples, np.zeros(SAMPLE_RATE // 2, np.float32)])
            texts.append(text)
    held = LEAD + len(long) / SAMPLE_RATE
    yield Said("long", _surrounded(long, "long"), " ".join(texts), None, held)


LEAD = 0.3
"""Length of silence before the speech."""

RELEASES = {"early release": -0.1, "late release": 1.0}
"""Seconds from the last voiced sample to the release, for variants that do not use 0.15."""


def _as_it_is(samples: np.ndarray) -> np.ndarray:
    return samples


def _quiet(samples: np.ndarray) -> np.ndarray:
    return samples * (0.02 / np.abs(samples).max())


def _fast(samples: np.ndarray) -> np.ndarray:
    """Return the samples 25 % faster and higher in pitch."""
    return resample(samples, SAMPLE_RATE * 5 // 4, SAMPLE_RATE)


def _paused(samples: np.ndarray) -> np.ndarray:
    """Insert 0.7 s of silence at the quietest place of the middle third."""
    third, window = len(samples) // 3, SAMPLE_RATE // 12
    energy = np.convolve(samples**2, np.ones(window), "same")
    at = third + int(np.argmin(energy[third : 2 * third]))
    return np.concatenate([samples[:at], np.zeros(SAMPLE_RATE * 7 // 10, np.float32), samples[at:]])


CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as it is": _as_it_is,
    "quiet": _quiet,
    "noisy 10 dB": _as_it_is,
    "fast": _fast,
    "paused": _paused,
    "early release": _as_it_is,
    "late release": _as_it_is,
}


def _surrounded(spoken: np.ndarray, variant: str) -> np.ndarray:
    """Add room tone before and after; for `noisy`, add noise 10 dB below the speech."""
    lead, tail = np.zeros(int(LEAD * SAMPLE_RATE)), np.zeros(int(1.5 * SAMPLE_RATE))
    sound = np.concatenate([lead, spoken, tail])
    power = float(np.mean(spoken**2)) / 10 if variant == "noisy 10 dB" else 1e-8
    noise = np.random.default_rng(0).normal(0, np.sqrt(power), len(sound))
    return (sound + noise).astype(np.float32)


@dataclass(frozen=True)
class Pair:
    """The results of one question with and without work ahead."""

    variant: str
    text: str
    heard: str
    heard_cold: str
    reply: str
    reply_cold: str
    right: bool | None
    right_cold: bool | None
    hidden_ms: float


class Noting(EmbeddedBrain):
    """An embedded brain that stores the utterance of its last turn."""

    said: Utterance | str = ""

    def reply(self, request: TurnRequest) -> Iterator[UserTranscript | Token | ToolCall]:
        self.said = request.user_input
        return super().reply(request)


def compare(said: Sequence[Said], model: str, tokens: int) -> list[Pair]:
    config = Config(
        brain=BrainConfig(embedded=EmbeddedBrainConfig(model=model)),
        generation=GenerationConfig(max_new_tokens=tokens, temperature=0.0),
    )
    brain, cold = Noting(config), EmbeddedBrain(config)
    cold.warm_up(lambda step, fraction: None)

    def make_engine(emit: Callable[[Event], object]) -> Engine:
        return Engine(Models(PySilero(), brain), config, emit)

    pairs: list[Pair] = []
    try:
        with headless(make_engine) as asked:
            for number, one in enumerate(said):
                asked.engine.post(NewConversation())
                turn = asked.ask(Clip(one.variant, one.samples), held=one.held)
                heard, reply = _cold(cold, brain.said) if turn.heard else ("", "")
                pairs.append(
                    Pair(
                        one.variant, one.text, turn.heard or "", heard, turn.reply, reply,
                        _right(one, turn.reply), _right(one, reply), turn.speculative_s * 1000,
                    )
                )  # fmt: skip
                sys.stderr.write(f"\r{number + 1}/{len(said)}")
    finally:
        cold.close()
    sys.stderr.write("\n")
    return pairs


def _cold(brain: EmbeddedBrain, said: Utterance | str) -> tuple[str, str]:
    heard, texts = "", list[str]()
    for item in brain.reply(TurnRequest([], said, Timestamps(), threading.Event())):
        if isinstance(item, UserTranscript):
            heard = item.text
        elif isinstance(item, Token):
            texts.append(item.text)
    return heard, "".join(texts)


def _right(one: Said, reply: str) -> bool | None:
    return None if one.answer is None else bool(re.search(one.answer, reply, re.IGNORECASE))


def summary(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Return one row per variant."""
    rows: list[dict[str, Any]] = []
    for variant in dict.fromkeys(pair.variant for pair in pairs):
        of = [pair for pair in pairs if pair.variant == variant]
        rows.append(
            {
                "variant": variant,
                "n": len(of),
                "word_error": _word_error((p.text, p.heard) for p in of),
                "word_error_cold": _word_error((p.text, p.heard_cold) for p in of),
                "right": sum(pair.right or False for pair in of),
                "right_cold": sum(pair.right_cold or False for pair in of),
                "same_words": sum(pair.heard == pair.heard_cold for pair in of),
                "same_reply": sum(pair.reply == pair.reply_cold for pair in of),
                "worked_ahead": sum(pair.hidden_ms > 0 for pair in of),
            }
        )
    return rows


def _word_error(texts: Iterable[tuple[str, str]]) -> float:
    return round(word_errors(texts) or 0.0, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", type=int, default=18)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--variants", default=",".join([*CHANGES, "long"]))
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    about, wanted = machine(), asked.variants.split(",")
    kept: list[Pair] = []
    if asked.json and asked.json.exists():
        known = json.loads(asked.json.read_text())["pairs"]
        kept = [Pair(**pair) for pair in known if pair["variant"] not in wanted]
    said = [one for one in variants(asked.questions) if one.variant in wanted]
    pairs = [*kept, *compare(said, asked.model, 48)]
    rows = summary(pairs)
    sys.stdout.write("| " + " | ".join(rows[0]) + " |\n" + "|---" * len(rows[0]) + "|\n")
    for row in rows:
        sys.stdout.write("| " + " | ".join(str(value) for value in row.values()) + " |\n")
    if asked.json:
        report = {"machine": about, "model": asked.model, "rows": rows}
        report["pairs"] = [asdict(pair) for pair in pairs]
        asked.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
