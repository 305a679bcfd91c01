"""Count the words that Moonshine and Whisper get wrong, by language, and the CPU time of a clip.

    python -m benchmarks.languages FOLDER [--windows 30,6] [--clips 0:20] [--only es,fr] [--show]

FOLDER holds a folder of each language (ISO 639-1) with NAME.wav and NAME.txt: such as
`benchmarks.prompts` makes, or pytest_audioeval/samples/audio of the package pytest-audioeval.
Moonshine knows English only. Whisper runs once for each shortest window of `--windows`.
Accents count for nothing, because the texts of the prompts lack some; numbers in digits are errors.
"""

from __future__ import annotations

import argparse
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import jiwer

from benchmarks.word_errors import plain_words
from voxtui.audio.clips import load_clip
from voxtui.brains.embedded import whisper as module
from voxtui.brains.embedded.recogniser import Moonshine
from voxtui.brains.embedded.rescoring import Rescoring
from voxtui.brains.embedded.whisper import Whisper
from voxtui.errors import ForeignSpeech
from voxtui.models.catalogue import WHISPER
from voxtui.models.installed import released_path
from voxtui.settings.schema import LANGUAGES

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

Way = Callable[["Samples"], str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--windows", default=f"30,{module.LEAST_SECONDS:g}")
    parser.add_argument("--clips", default=":", metavar="FIRST:END")
    parser.add_argument("--only", default=",".join(LANGUAGES), metavar="es,fr")
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    windows = [float(seconds) for seconds in arguments.windows.split(",")]
    print("| language | way | clips | words | wrong | with an error | CPU s, median | at most |")
    print("|---|---|---|---|---|---|---|---|")
    chosen = arguments.only.split(",")
    for folder in sorted(path for path in arguments.folder.iterdir() if path.name in chosen):
        clips = sorted(folder.glob("*.wav"))
        first, end = (int(number) if number else None for number in arguments.clips.split(":"))
        clips = clips[first:end]
        for name, recognise in ways(folder.name, windows):
            words, results = 0, list[tuple[int, float]]()
            for clip in clips:
                said = bare(clip.with_suffix(".txt").read_text())
                samples = load_clip(clip, 30.0).samples
                began = time.process_time()
                heard = bare(recognise(samples))
                found = jiwer.process_words(said, heard or "-")
                wrong = found.substitutions + found.deletions + found.insertions
                results.append((wrong, time.process_time() - began))
                words += len(said.split())
                if arguments.show and wrong:
                    print(f"<!-- {clip.stem} {name}: {said} / {heard} -->")
            print(row(folder.name, name, words, results), flush=True)


def ways(language: str, windows: list[float]) -> Iterator[tuple[str, Way]]:
    if language == "en":
        for name, choice in (
            ("Moonshine", None),
            ("Moonshine, picked", Rescoring()),
        ):
            moonshine = Moonshine(choice)
            moonshine.load()
            yield name, words_of(moonshine)
            moonshine.close()
    recogniser = Whisper(released_path(WHISPER), language)
    recogniser.load()
    for least in windows:
        recogniser.least_seconds = least
        yield f"Whisper, {least:g} s", words_of(recogniser)
    recogniser.close()


def words_of(recogniser: Moonshine | Whisper) -> Way:
    def recognise(samples: Samples) -> str:
        with suppress(ForeignSpeech):
            return recogniser.recognise(samples).english()
        return ""

    return recognise


def bare(text: str) -> str:
    letters = unicodedata.normalize("NFD", plain_words(text))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def row(language: str, name: str, words: int, results: list[tuple[int, float]]) -> str:
    wrong = [count for count, _ in results]
    times = sorted(seconds for _, seconds in results)
    cells = (
        language, name, len(results), words, sum(wrong), sum(map(bool, wrong)),
        f"{times[len(times) // 2]:.2f}", f"{times[-1]:.2f}",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
