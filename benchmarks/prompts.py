"""Make clips of people's speech in four languages, of the telephone prompts that Debian ships.

    mkdir debs && cd debs
    apt-get download asterisk-core-sounds-{en,es,fr,it} asterisk-core-sounds-{en,es,fr,it}-g722
    for deb in *.deb; do dpkg -x $deb .; done
    python -m benchmarks.prompts debs OUT

Writes OUT/LANGUAGE/NNN.wav (16 kHz) and NNN.txt for `benchmarks.languages`: 60 prompts of 4 to 16
words each, drawn with a fixed seed. One speaker a language. The recordings are CC-BY-SA-3.0.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
from pathlib import Path

import av
import numpy as np
import soundfile

SPEAKERS = {
    "en": "en_US_f_Allison", "es": "es_MX_f_Allison", "fr": "fr_CA_f_June", "it": "it_IT_m_Carlo",
}  # fmt: skip

CLIPS, SEED = 60, 2611

FEWEST, MOST = 4, 16
"""Minimum and maximum words of a prompt."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("debs", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    for language, speaker in SPEAKERS.items():
        sounds = arguments.debs / "usr" / "share" / "asterisk" / "sounds" / speaker
        folder = arguments.out / language
        folder.mkdir(parents=True, exist_ok=True)
        rows = sorted(prompts(arguments.debs, language).items())
        random.Random(SEED).shuffle(rows)
        found = [row for row in rows if (sounds / f"{row[0]}.g722").is_file()][:CLIPS]
        for number, (name, text) in enumerate(found):
            soundfile.write(
                folder / f"{number:03}.wav", decoded(sounds / f"{name}.g722"), 16_000, "PCM_16"
            )
            (folder / f"{number:03}.txt").write_text(text)
        print(language, len(found), "clips")


def prompts(debs: Path, language: str) -> dict[str, str]:
    package = f"asterisk-core-sounds-{language}"
    path = debs / "usr" / "share" / "doc" / package / f"core-sounds-{language}.txt.gz"
    lines = gzip.decompress(path.read_bytes()).decode("utf-8-sig", "replace").splitlines()
    rows = dict(line.split(": ", 1) for line in lines if ": " in line and line[0] != ";")
    return {
        name: text
        for name, text in rows.items()
        if FEWEST <= len(text.split()) <= MOST and not re.search(r"[][\d]", text)
    }


def decoded(path: Path) -> np.ndarray:
    with av.open(str(path), format="g722") as container:
        samples = [frame.to_ndarray() for frame in container.decode(audio=0)]
    return np.concatenate(samples, 1)[0]


if __name__ == "__main__":
    main()
