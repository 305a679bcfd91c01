"""Count the utterances that the embedded recogniser refuses as not English.

    python -m benchmarks.foreign [--english 200] [NAME=FOLDER ...]

The English ones are the questions of the tests in each variant of `benchmarks.accuracy`, and
sentences that the embedded voice speaks. Each FOLDER has sound files of people who speak the
language NAME. Prints a row per group: utterances, refused ones, and the mean log-probabilities.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.accuracy import variants
from voxtui.audio.clips import load_clip
from voxtui.audio.resampling import resample
from voxtui.brains.embedded.recogniser import FOREIGN, LONGEST_SECONDS, Moonshine, joined
from voxtui.dialogue.data import SAMPLE_RATE
from voxtui.settings.schema import VoiceConfig
from voxtui.voices.hibari import HibariVoice

SENTENCES = Path(__file__).parents[1] / "tests" / "data" / "skills"

LONGEST = 600.0
"""Maximum seconds of a file."""

QUESTIONS = 18


def spoken(count: int) -> Iterator[np.ndarray]:
    """Yield `count` sentences, spoken by the embedded voice."""
    lines = (SENTENCES / "general.txt").read_text().splitlines()
    lines += [row.split("\t")[0] for row in (SENTENCES / "own.tsv").read_text().splitlines()]
    voice = HibariVoice(VoiceConfig())
    voice.warm_up(lambda step, fraction: None)
    for line in [line for line in lines if line.strip()][:count]:
        chunks = list(voice.speak(line))
        samples = np.concatenate([chunk.samples for chunk in chunks])
        yield resample(samples, chunks[0].rate, SAMPLE_RATE)


def groups(english: int, folders: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the group of each utterance, and its samples."""
    for said in variants(QUESTIONS):
        yield f"English, {said.variant}", said.samples
    for samples in spoken(english):
        yield "English, embedded voice", samples
    for folder in folders:
        name, _, path = folder.partition("=")
        for file in sorted(Path(path).iterdir()):
            yield name, load_clip(file, LONGEST).samples


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--english", type=int, default=200)
    parser.add_argument("folders", nargs="*", metavar="NAME=FOLDER")
    asked = parser.parse_args()
    recogniser = Moonshine()
    recogniser.load()
    found: dict[str, list[tuple[float, bool]]] = {}
    step = int(LONGEST_SECONDS * SAMPLE_RATE)
    for group, samples in groups(asked.english, asked.folders):
        pieces = (samples[at : at + step] for at in range(0, len(samples), step))
        heard = joined(recogniser.recognise(piece) for piece in pieces)
        mean = heard.log_probability / max(heard.tokens, 1)
        found.setdefault(group, []).append((mean, heard.is_foreign))
    sys.stdout.write(f"Refused below a mean log-probability of {FOREIGN}, and loops.\n\n")
    sys.stdout.write(
        "| utterances | n | refused | lowest | median | highest |\n|---|---|---|---|---|---|\n"
    )
    for group, results in found.items():
        means = np.array([mean for mean, _ in results])
        refused = sum(is_foreign for _, is_foreign in results)
        row = (group, len(means), refused, *np.round(np.percentile(means, (0, 50, 100)), 2))
        sys.stdout.write("| " + " | ".join(map(str, row)) + " |\n")


if __name__ == "__main__":
    main()
