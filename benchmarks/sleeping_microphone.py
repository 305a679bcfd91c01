"""Dictate through a microphone that sleeps, and check that the first word is not lost.

    .venv/bin/python -m benchmarks.sleeping_microphone --tries 50

A virtual source is suspended when `voxtui dictate` opens it, and wakes after a random time. A voice
without leading silence begins as soon as the terminal shows `Speak`.
"""

from __future__ import annotations

import argparse
import os
import pty
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import soundfile

from tests.virtual_audio import VirtualAudio

CLIPS = Path(__file__).parents[1] / "assets" / "clips"
WAKES = (0.2, 3.5)
"""Minimum and maximum seconds until the microphone wakes after it was opened."""

VOXTUI = [sys.executable, "-P", "-m", "voxtui"]
COMMAND = [*VOXTUI, "dictate", "--set", "dictate.silence_s=1.0"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance, lost, shown = random.Random(arguments.seed), 0, list[float]()
    words = {clip: transcript(clip) for clip in sorted(CLIPS.glob("*.wav"))}
    with VirtualAudio() as audio, audio.environment():
        for number in range(arguments.tries):
            clip = chance.choice([*words])
            said, delay = dictate(audio, clip, chance.uniform(*WAKES))
            first, wanted = (re.findall(r"\w+", text.lower()) for text in (said, words[clip]))
            lacks = first[:1] != wanted[:1]
            lost += lacks
            shown.append(delay)
            lost_or_not = f"LOST, not {words[clip]!r}" if lacks else ""
            print(f"{number + 1:3} {delay * 1000:5.0f} ms {said!r} {lost_or_not}", flush=True)
    print(
        f"First word lost in {lost} of {arguments.tries}. From the end of the sleep to `Speak`: "
        f"median {statistics.median(shown) * 1000:.0f} ms, most {max(shown) * 1000:.0f} ms."
    )


def transcript(clip: Path) -> str:
    command = [*VOXTUI, "transcribe", str(clip)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def dictate(audio: VirtualAudio, clip: Path, wakes: float) -> tuple[str, float]:
    """Return the words, and the seconds between the wake-up and `Speak`."""
    audio.stall()
    terminal, inside = pty.openpty()
    with subprocess.Popen(
        COMMAND, stdin=inside, stdout=subprocess.PIPE, stderr=inside, env=audio.environ, text=True
    ) as process:
        os.close(inside)
        read_until(terminal, b"starting")
        threading.Event().wait(wakes)
        audio.unstall()
        awake = time.monotonic()
        read_until(terminal, b"Speak.")
        spoke = time.monotonic()
        audio.say(trimmed(clip), ahead_ms=50)
        threading.Thread(target=drain, args=(terminal,), daemon=True).start()
        assert process.stdout is not None
        said = process.stdout.read().strip()
    os.close(terminal)
    return said, spoke - awake


def read_until(terminal: int, text: bytes) -> None:
    shown = b""
    while text not in shown:
        shown += os.read(terminal, 4096)


def trimmed(clip: Path) -> np.ndarray:
    samples, rate = soundfile.read(clip, dtype="float32")
    assert rate == 16_000, clip
    return samples[np.argmax(np.abs(samples) > 0.01) :]


def drain(terminal: int) -> None:
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:
        pass


if __name__ == "__main__":
    main()
