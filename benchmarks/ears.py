"""Count the words that the recogniser gets wrong, and the processor's time.

    python -m benchmarks.ears CLIPS [--json OUT]

CLIPS holds clips.toml (`file` and `text` of each clip), as `benchmarks.ears_clips` writes it. Each
clip is cut to its utterance as a turn is, then recognised four times: greedily and by the beam, as
it is and made louder. The four take turns in one process, because the machine may be shared.
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
from voxtui.brains.embedded.recogniser import Moonshine
from voxtui.dialogue.data import FRAME_SAMPLES, Frame
from voxtui.dialogue.listening.endpointing import SpeechGate
from voxtui.dialogue.recording import Recording
from voxtui.settings.schema import Config

WAYS = (("greedy", 1, False), ("louder", 1, True), ("beam", 5, False), ("both", 5, True))


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


def errors(said: str, heard: str) -> int:
    found = jiwer.process_words(plain_words(said), plain_words(heard))
    return found.substitutions + found.deletions + found.insertions


def measure(recogniser: Moonshine, folder: Path) -> list[dict[str, Any]]:
    louder, rows = module.louder, list[dict[str, Any]]()
    for clip in tomllib.loads((folder / "clips.toml").read_text())["clip"]:
        row = {**clip, "words": len(plain_words(clip["text"]).split())}
        samples = utterance(folder / clip["file"])
        for name, width, loud in WAYS:
            module.BEAM = width
            module.louder = louder if loud else lambda samples: samples
            began = time.thread_time()
            heard = recogniser.recognise(samples)
            row[name] = {
                "heard": heard.text, "errors": errors(clip["text"], heard.text),
                "cpu_ms": round((time.thread_time() - began) * 1000, 1),
                "foreign": heard.is_foreign,
            }  # fmt: skip
        rows.append(row)
        sys.stderr.write(f"\r{len(rows)}")
    sys.stderr.write("\n")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clips", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    recogniser = Moonshine()
    recogniser.load()
    rows = measure(recogniser, asked.clips)
    words = sum(row["words"] for row in rows)
    sys.stdout.write(f"{len(rows)} clips, {words} words\n\n")
    sys.stdout.write("| | words wrong | clips | refused | CPU ms, median | 95 % |\n")
    sys.stdout.write("|---|---|---|---|---|---|\n")
    for name, *_ in WAYS:
        of = [row[name] for row in rows]
        cpu = [one["cpu_ms"] for one in of]
        cells = (
            name, sum(one["errors"] for one in of), sum(one["errors"] > 0 for one in of),
            sum(one["foreign"] for one in of), round(statistics.median(cpu)),
            round(float(np.percentile(cpu, 95))),
        )  # fmt: skip
        sys.stdout.write("| " + " | ".join(map(str, cells)) + " |\n")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
