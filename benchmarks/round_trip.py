"""Ask ten spoken questions in Spanish, and check if the answers are Spanish, right and clear.

    python -m benchmarks.round_trip [--asker espeak | --asker em_alex.bin] [--folder FOLDER]

Each question of tests/data/questions/spanish.toml is spoken by espeak-ng, or by a voice of Kokoro
(from npm's kokoro-js), and goes through `voxtui ask`: Whisper, the chat model, Kokoro. The sound of
all answers is then transcribed by `voxtui transcribe`. Needs the extra `whisper`, espeak-ng, and
`voxtui models fetch` of whisper-base, kokoro-small and the chat model.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import jiwer
import numpy as np
import py3langid
import soundfile

from benchmarks.languages import bare
from benchmarks.word_errors import plain_words
from voxtui.models.catalogue import SMALL_KOKORO, SMALL_KOKORO_MODEL
from voxtui.models.installed import released_path
from voxtui.voices.espeak import Espeak
from voxtui.voices.kokoro import RATE
from voxtui.voices.kokoro_onnx import OnnxKokoro

QUESTIONS = Path(__file__).parents[1] / "tests" / "data" / "questions" / "spanish.toml"

PAUSE = np.zeros(RATE // 2, np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--asker", default="espeak")
    parser.add_argument("--folder", type=Path, help="keep the sounds here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        questions = tomllib.loads(QUESTIONS.read_text())["question"]
        clips = speak([asked["text"] for asked in questions], arguments.asker, folder)
        answers = folder / "answers.wav"
        lines = voxtui("ask", *clips, "--json", "--speak", answers, "--set", "brain.language=es")
        turns = [json.loads(line) for line in lines.splitlines()]
        back = voxtui("transcribe", answers, "--language", "es")
    understood = letters = spanish = right = 0
    for asked, turn in zip(questions, turns, strict=True):
        reply = turn["reply"]
        understood += plain_words(turn["heard"]) == plain_words(asked["text"])
        spanish += py3langid.classify(reply)[0] == "es"
        right += bool(re.search(asked["answer"], reply.lower()))
        times = {name: turn["marks"].get(name) for name in ("transcribed", "first_audio")}
        letters += bare(turn["heard"]) == bare(asked["text"])
        print(f"- {asked['text']} | {turn['heard']} | {reply} | {times}")
    aloud = [turn["reply"] for turn in turns if turn["marks"].get("first_audio")]
    spoken = len(aloud)
    said, heard = plain_words(" ".join(aloud)), plain_words(back)
    found = jiwer.process_words(said, heard)
    wrong = found.substitutions + found.deletions + found.insertions
    print(f"Heard back: {' '.join(back.split())}")
    print(
        f"{len(turns)} questions: {understood} understood word for word, {letters} but for accents,"
    )
    print(f"{spanish} answered in Spanish by py3langid, {right} right, {spoken} spoken;")
    print(f"{wrong} of {len(said.split())} words came back otherwise")


def speak(texts: list[str], asker: str, folder: Path) -> list[Path]:
    clips = [folder / f"question-{number}.wav" for number in range(len(texts))]
    if asker == "espeak":
        for text, clip in zip(texts, clips, strict=True):
            subprocess.run(["espeak-ng", "-v", "es", "-w", str(clip), text], check=True)
        return clips
    model, phonemes = OnnxKokoro(released_path(SMALL_KOKORO) / SMALL_KOKORO_MODEL), Espeak("es")
    for text, clip in zip(texts, clips, strict=True):
        samples = model.sound(phonemes(text), model.style(Path(asker)), 1.0)
        soundfile.write(clip, np.concatenate([PAUSE, samples, PAUSE]), RATE)
    phonemes.close()
    return clips


def voxtui(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "voxtui", *map(str, arguments), "--quiet"]
    command += ["--set", "brain.name=embedded"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(ran.stderr)
    return ran.stdout


if __name__ == "__main__":
    main()
