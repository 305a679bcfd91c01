"""Parts that all contestants share: stub models that wait, the sound, and how a turn runs."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

SAMPLE_RATE = 16_000
VOICE_RATE = 24_000

STT_SECONDS = 0.030
FIRST_TOKEN_SECONDS = 0.050
TOKEN_SECONDS = 0.010
TTS_SECONDS = 0.040

WORDS = "tell me a short joke"

ONE_CLAUSE = [
    "The",
    " answer",
    " you",
    " need",
    " today",
    " really",
    " should",
    " be",
    " Paris",
    ".",
]
"""Tokens of a first sentence, ten of them, without a clause boundary before the full stop."""

TWO_CLAUSES = ["Paris", " is", " the", " capital", ",", " and", " spring", " is", " mild", "."]
"""Tokens of a first sentence of the same length with a comma."""

REST = [" Take", " a", " light", " coat", "."]

IDEAL_MS = 1000 * (STT_SECONDS + FIRST_TOKEN_SECONDS + 9 * TOKEN_SECONDS + TTS_SECONDS)
"""Milliseconds to the first sound of a ten-token sentence if only the models took time."""


def load_pcm() -> np.ndarray:
    """Return the samples of the clip named on the command line, int16."""
    return np.frombuffer(Path(sys.argv[2]).read_bytes(), np.int16)


def tuned() -> bool:
    return sys.argv[1] == "tuned"


def tone(seconds: float = 0.3) -> np.ndarray:
    """Return the sound of every stub voice, int16, loud from its first sample."""
    at = np.arange(int(seconds * VOICE_RATE)) / VOICE_RATE
    return (10_000 * np.cos(2 * np.pi * 220 * at)).astype(np.int16)


def is_sound(pcm: bytes) -> bool:
    return bool(np.abs(np.frombuffer(pcm, np.int16)).max(initial=0) > 100)


_answers = sys.stdout
sys.stdout = sys.stderr  # what a library prints is no answer


def tell(**fields: object) -> None:
    _answers.write(json.dumps(fields) + "\n")
    _answers.flush()


class Clock:
    """Records the time of the release and of the first sound at the output, once per turn."""

    def __init__(self) -> None:
        self.released: float | None = None
        self.sound: float | None = None

    def begin(self) -> None:
        self.released = self.sound = None

    def release(self) -> None:
        self.released = time.perf_counter()
        tell(released=True)

    def hear(self) -> None:
        if self.released is not None and self.sound is None:
            self.sound = time.perf_counter()

    @property
    def ms(self) -> float:
        if self.released is None or self.sound is None:
            raise RuntimeError("no sound came")
        return 1000 * (self.sound - self.released)
