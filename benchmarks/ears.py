"""Count the words that the recogniser gets wrong, and the processor's time.

    python -m benchmarks.ears CLIPS [--json OUT]

CLIPS holds clips.toml (`file` and `text` of each clip), as `benchmarks.ears_clips` writes it. If
only phrases of a clip are known, `text` is their list, and each that is missing is an error. Each
clip is cut to its utterance as a turn is, then recognised greedily, by the beam, and by the beam
with the choice of the language model. All ways take turns in one process, because the machine may
be shared. "bound": the best of the candidates. The interval (95 %) is of clips drawn anew. Numbers
are compared as they are said.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import jiwer
import numpy as np

from benchmarks.word_errors import plain_words
from voxtui.audio.clips import load_clip
from voxtui.audio.silero import PySilero
from voxtui.brains.embedded import recogniser as module
from voxtui.brains.embedded.recogniser import Heard, Moonshine, same_words
from voxtui.brains.embedded.rescoring import Rescoring
from voxtui.dialogue.data import FRAME_SAMPLES, Frame
from voxtui.dialogue.listening.endpointing import SpeechGate
from voxtui.dialogue.recording import Recording
from voxtui.settings.schema import Config

WAYS = (("greedy", 1, False), ("beam", 5, True))

CHOSEN, BOUND = "beam, chosen", "bound"


def utterance(file: Path) -> np.ndarray:
    """Return the samples from the first speech to the last; all of them if there is none."""
    samples = load_clip(file, 60.0).samples
    detector, recording = PySilero(), Recording()
    gate = SpeechGate(Config().vad.threshold)
    for at in range(0, len(samples) - FRAME_SAMPLES + 1, FRAME_SAMPLES):
        frame = Frame(np.ascontiguousarray(samples[at : at + FRAME_SAMPLES]), float(at))
        recording.append(frame, gate.verdict(detector.probability(frame)))
    spoken = recording.utterance()
    return samples if spoken is None else spoken.samples


def as_spoken(text: str) -> str:
    return plain_words(same_words(text))


def errors(said: str | list[str], heard: str) -> int:
    if isinstance(said, list):
        return sum(f" {as_spoken(phrase)} " not in f" {as_spoken(heard)} " for phrase in said)
    found = jiwer.process_words(as_spoken(said), as_spoken(heard))
    return found.substitutions + found.deletions + found.insertions


def row_of(said: str | list[str], heard: Heard, seconds: float) -> dict[str, Any]:
    return {
        "heard": heard.text, "errors": errors(said, heard.text), "ms": round(seconds * 1000, 1),
        "foreign": heard.is_foreign,
    }  # fmt: skip


def measure(recogniser: Moonshine, rescoring: Rescoring, folder: Path) -> list[dict[str, Any]]:
    louder, rows = module.louder, list[dict[str, Any]]()
    for clip in tomllib.loads((folder / "clips.toml").read_text())["clip"]:
        said = clip["text"]
        row = {**clip, "words": len(said if isinstance(said, list) else as_spoken(said).split())}
        samples = utterance(folder / clip["file"])
        candidates = list[Heard]()
        for name, width, loud in WAYS:
            module.BEAM = width
            module.louder = louder if loud else lambda samples: samples
            began = time.thread_time()
            candidates = recogniser.candidates(samples)
            row[name] = row_of(said, candidates[0], time.thread_time() - began)
        began = time.perf_counter()
        chosen = rescoring.choose(candidates)
        row[CHOSEN] = row_of(said, chosen, time.perf_counter() - began)
        row[BOUND] = row_of(said, min(candidates, key=lambda of: errors(said, of.text)), 0.0)
        row["candidates"] = [(heard.text, round(heard.score, 3)) for heard in candidates]
        rows.append(row)
        sys.stderr.write(f"\r{len(rows)}")
    sys.stderr.write("\n")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clips", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    models = Moonshine(), Rescoring()
    for model in models:
        model.load()
    rows = measure(*models, asked.clips)
    words = sum(row["words"] for row in rows)
    several = [row for row in rows if len(row["candidates"]) > 1]
    sys.stdout.write(f"{len(rows)} clips, {words} words, {len(several)} with candidates\n\n")
    sys.stdout.write("| | words wrong | fewer | clips | better | worse | refused | ms | 95 % |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|---|---|\n")
    drawn = np.random.default_rng(0).integers(0, len(rows), (4000, len(rows)))
    greedy = np.array([row["greedy"]["errors"] for row in rows])
    for name in (*(name for name, *_ in WAYS), CHOSEN, BOUND):
        wrong = np.array([row[name]["errors"] for row in rows])
        fewer = 1 - wrong[drawn].sum(1) / np.maximum(greedy[drawn].sum(1), 1)
        low, high = np.percentile(fewer, (2.5, 97.5))
        times = [row[name]["ms"] for row in (several if name == CHOSEN else rows)] or [0.0]
        cells = (
            name, wrong.sum(), f"{np.median(fewer):.0%} ({low:.0%} to {high:.0%})",
            (wrong > 0).sum(), (wrong < greedy).sum(), (wrong > greedy).sum(),
            sum(row[name]["foreign"] for row in rows),
            round(statistics.median(times)), round(float(np.percentile(times, 95))),
        )  # fmt: skip
        sys.stdout.write("| " + " | ".join(map(str, cells)) + " |\n")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
