"""Ask ten spoken questions in Spanish, and hear whether the answers are Spanish, right and clear.

    python -m benchmarks.round_trip [--asker espeak | --asker em_alex.bin]

Each question of tests/data/questions/spanish.toml is spoken by espeak-ng, or by a voice of Kokoro
(npm's kokoro-js holds them), and goes through `voxtui ask`: Whisper, the chat model, Kokoro. The
sound of the answer is then transcribed by Whisper once more. Needs the extra `whisper`, espeak-ng,
and `voxtui models fetch` of whisper-base, kokoro-small and the chat model.
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
from typing import Any

import jiwer
import numpy as np
import py3langid
import soundfile

from benchmarks.word_errors import plain_words
from voxtui.audio.clips import load_clip
from voxtui.brains.embedded.whisper import Whisper
from voxtui.models.catalogue import SMALL_KOKORO, SMALL_KOKORO_MODEL, WHISPER
from voxtui.models.installed import released_path
from voxtui.voices.espeak import Espeak
from voxtui.voices.kokoro import RATE
from voxtui.voices.kokoro_onnx import OnnxKokoro

QUESTIONS = Path(__file__).parents[1] / "tests" / "data" / "questions" / "spanish.toml"

PAUSE = np.zeros(RATE // 2, np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--asker", default="espeak")
    arguments = parser.parse_args()
    whisper = Whisper(released_path(WHISPER), "es")
    whisper.load()
    counts = dict.fromkeys(("understood", "Spanish", "right", "spoken"), 0)
    said: list[str] = []
    heard: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder, "question.wav"), Path(folder, "answer.wav")
        for asked in tomllib.loads(QUESTIONS.read_text())["question"]:
            speak(asked["text"], arguments.asker, question)
            answer.unlink(missing_ok=True)
            turn = ask(question, answer)
            reply = turn["reply"]
            counts["understood"] += plain_words(turn["heard"]) == plain_words(asked["text"])
            counts["Spanish"] += py3langid.classify(reply)[0] == "es"
            counts["right"] += bool(re.search(asked["answer"], reply.lower()))
            print(f"- {asked['text']} | {turn['user']} | {reply}", end=" | ", flush=True)
            if answer.exists():
                counts["spoken"] += 1
                back = whisper.recognise(load_clip(answer, 30.0).samples).text
                said.append(plain_words(reply))
                heard.append(plain_words(back))
                print(back, end="")
            print(f" | first sound {turn['marks']['first_audio']:.1f} s", flush=True)
    found = jiwer.process_words(said, heard)
    wrong = found.substitutions + found.deletions + found.insertions
    words = sum(len(text.split()) for text in said)
    print(counts, f"heard back: {wrong} of {words} words wrong")


def speak(text: str, asker: str, path: Path) -> None:
    if asker == "espeak":
        subprocess.run(["espeak-ng", "-v", "es", "-w", str(path), text], check=True)
        return
    model = OnnxKokoro(released_path(SMALL_KOKORO) / SMALL_KOKORO_MODEL)
    phonemes = Espeak("es")
    samples = model.sound(phonemes(text), model.style(Path(asker)), 1.0)
    phonemes.close()
    soundfile.write(path, np.concatenate([PAUSE, samples, PAUSE]), RATE)


def ask(question: Path, answer: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "voxtui", "ask", str(question), "--json", "--quiet"]
    command += ["--speak", str(answer), "--set", "brain.name=embedded"]
    command += ["--set", "brain.language=es"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(ran.stderr)
    return json.loads(ran.stdout)


if __name__ == "__main__":
    main()
