"""Count the words that Moonshine and Whisper get wrong, by language, and the time of a clip.

    python -m benchmarks.languages FOLDER [--detect]

FOLDER holds a folder of each language (ISO 639-1) with NAME.wav and NAME.txt: such as
pytest_audioeval/samples/audio of the package pytest-audioeval. Moonshine knows English only.
`--detect`: Whisper finds the language out.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import jiwer

from benchmarks.word_errors import plain_words
from voxtui.audio.clips import load_clip
from voxtui.brains.embedded.recogniser import Moonshine
from voxtui.brains.embedded.whisper import Whisper
from voxtui.models.catalogue import WHISPER
from voxtui.models.installed import released_path
from voxtui.settings.schema import LANGUAGES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--detect", action="store_true")
    arguments = parser.parse_args()
    moonshine = Moonshine()
    moonshine.load()
    print(
        "| language | clips | words | Moonshine wrong | Whisper wrong | Moonshine s | Whisper s |"
    )
    print("|---|---|---|---|---|---|---|")
    for folder in sorted(path for path in arguments.folder.iterdir() if path.name in LANGUAGES):
        whisper = Whisper(released_path(WHISPER), "" if arguments.detect else folder.name)
        whisper.load()
        clips = sorted(folder.glob("*.wav"))
        words, row = 0, list[str]()
        for name, recogniser in (("moonshine", moonshine), ("whisper", whisper)):
            wrong, words, times = 0, 0, list[float]()
            for clip in clips:
                said = plain_words(clip.with_suffix(".txt").read_text())
                began = time.monotonic()
                heard = plain_words(recogniser.recognise(load_clip(clip, 30.0).samples).text)
                times.append(time.monotonic() - began)
                found = jiwer.process_words(said, heard or "-")
                wrong += found.substitutions + found.deletions + found.insertions
                words += len(said.split())
                if name == "whisper" and said != heard:
                    print(f"<!-- {folder.name}: {said} / {heard} -->")
            row += [str(wrong), f"{sorted(times)[len(times) // 2]:.2f}"]
        cells = (folder.name, len(clips), words, *row)
        print("|", " | ".join(map(str, cells)), "|", flush=True)


if __name__ == "__main__":
    main()
