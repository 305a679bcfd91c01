"""Whisper base in many languages on the CPU, for speech that Moonshine does not know.

It was trained on windows of 30 seconds. Its encoder gets a shorter window for shorter speech,
because one of 30 seconds takes three times as long as one of 6.
"""

from __future__ import annotations

import math
import os
import threading
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Event as Flag
from typing import Any

from voxtui.brains.embedded.live_transcription import Recogniser
from voxtui.brains.embedded.recogniser import Heard, Moonshine, same_words
from voxtui.brains.embedded.rescoring import Rescoring
from voxtui.dialogue.data import SAMPLE_RATE, Samples
from voxtui.errors import ModelError, how_to_install
from voxtui.models.catalogue import WHISPER
from voxtui.models.installed import released_path
from voxtui.settings.schema import LANGUAGES, BrainConfig

WINDOW_SECONDS = 30.0
"""Maximum length of the encoder's window."""

LEAST_SECONDS, SILENCE_SECONDS = 6.0, 2.0
"""Minimum length of the window, and the silence after speech that shows the decoder the end."""

FFT, HOP, MELS = 400, 160, 80
"""Samples of an FFT window, samples between two windows, and bands, as in the model's training."""

BEAM = 5
"""Maximum number of beginnings of a transcript that the decoder follows; 1 would halve its time."""

LIKELY = 0.5
"""Minimum probability of a language other than English."""

NO_SPEECH, UNSURE = 0.6, -1.0
"""Minimum probability of silence, and maximum mean log-probability, of an invented transcript."""

FEWEST_REPEATED = 3
"""Minimum words of a beginning that counts as repeated; a person may repeat fewer."""

RUNTIME = "ctranslate2"


class Whisper:
    """A Recogniser of `language` (ISO 639-1; empty: detected). Thread-safe: one pass at a time."""

    def __init__(self, folder: Path, language: str) -> None:
        self._folder = folder
        self._language = language
        self.least_seconds = LEAST_SECONDS
        """the minimum length of the window"""
        self._lock = threading.Lock()
        self._runtime: Any = None
        self._model: Any = None

    def load(self) -> None:
        try:
            self._runtime = import_module(RUNTIME)
        except (ImportError, OSError) as error:
            raise ModelError(
                "Whisper is not installed or does not run here.", how_to_install("whisper")
            ) from error
        try:
            # By default it runs four threads, which wait for each other on two cores.
            self._model = self._runtime.models.Whisper(
                str(self._folder), compute_type="int8", intra_threads=min(4, os.cpu_count() or 1)
            )
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"Whisper did not load: {str(error).rstrip('.')}.") from error

    def recognise(self, samples: Samples, cancelled: Flag | None = None, name: str = "") -> Heard:
        """Return the words in `samples` (float32, 16 kHz, up to 30 s). Raises ModelError.

        A running pass cannot be cancelled. `name` at the beginning is written as it sounds.
        """
        with self._lock:
            if cancelled is not None and cancelled.is_set():
                return Heard("")
            try:
                return self._recognise(samples, self.least_seconds)
            except RuntimeError as error:
                raise ModelError(f"Whisper failed: {str(error).rstrip('.')}.") from error

    def _recognise(self, samples: Samples, least: float) -> Heard:
        features = self._runtime.StorageView.from_array(log_mel(samples, least)[None])
        encoded = self._model.encode(features)
        language = self._language or self._spoken(encoded)
        prompt = ["<|startoftranscript|>", f"<|{language}|>", "<|transcribe|>", "<|notimestamps|>"]
        (found,) = self._model.generate(
            encoded, [prompt], beam_size=BEAM, return_scores=True, return_no_speech_prob=True
        )
        if found.no_speech_prob > NO_SPEECH and found.scores[0] < UNSURE:
            return Heard("")
        text = text_of(found.sequences[0])
        if least < WINDOW_SECONDS and begins_twice(text):
            return self._recognise(samples, WINDOW_SECONDS)
        return Heard(text)

    def _spoken(self, encoded: Any) -> str:
        """Return the likeliest spoken language, among those that voxtui knows."""
        (ways,) = self._model.detect_language(encoded)
        for token, probability in ways:
            if (code := token.strip("<|>")) in LANGUAGES:
                return code if probability >= LIKELY else "en"
        return "en"

    def close(self) -> None:
        with self._lock:
            self._model = None


def is_here() -> bool:
    """Return True if Whisper and its runtime are installed. Loads neither."""
    if find_spec(RUNTIME) is None:
        return False
    try:
        released_path(WHISPER)
    except ModelError:
        return False
    return True


def choose(config: BrainConfig) -> Recogniser:
    """Return the recogniser of the configured language. Raises ModelError if there is none."""
    if config.language in ("", "en"):
        return Moonshine(Rescoring())
    english_only = (
        "The embedded recogniser knows English only, and brain.language is "
        f"{LANGUAGES[config.language]}."
    )
    others = "The brains voxtral and remote know it, too (brain.name)."
    if find_spec(RUNTIME) is None:
        raise ModelError(
            f"{english_only} Whisper knows it, but is not installed.",
            f"{how_to_install('whisper')}; then `voxtui models fetch whisper-base`. {others}",
        )
    try:
        folder = released_path(WHISPER)
    except ModelError as error:
        message = f"{english_only} Whisper knows it: {error.message}"
        raise ModelError(message, f"{error.hint} {others}") from error
    return Whisper(folder, config.language)


def log_mel(samples: Samples, least: float = LEAST_SECONDS) -> Samples:
    """Return the features for the encoder, of shape (MELS, 100 per second)."""
    import numpy as np

    seconds = max(least, len(samples) / SAMPLE_RATE + SILENCE_SECONDS)
    sound = np.zeros(
        int(min(WINDOW_SECONDS, seconds) * SAMPLE_RATE) // (2 * HOP) * 2 * HOP, np.float32
    )
    sound[: len(samples)] = samples[: len(sound)]
    padded = np.pad(sound, FFT // 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, FFT)[::HOP][:-1]
    spectrum = np.fft.rfft(windows * np.hanning(FFT + 1)[:-1].astype(np.float32))
    bands = mel_bands() @ (np.abs(spectrum) ** 2).T
    logs = np.log10(np.maximum(bands, 1e-10))
    return ((np.maximum(logs, logs.max() - 8.0) + 4.0) / 4.0).astype(np.float32)


@cache
def mel_bands() -> Samples:
    """Return the weight of each frequency in each band, of shape (MELS, FFT

    2 + 1).

    The bands are on Slaney's scale: linear below 1 kHz, logarithmic above, all of the same area.
    """
    import numpy as np

    most = 15.0 + math.log(SAMPLE_RATE / 2 / 1000.0) / math.log(6.4) * 27.0
    mels: Samples = np.linspace(0.0, most, MELS + 2, dtype=np.float32)
    hertz = np.where(mels < 15.0, mels * 200.0 / 3.0, 1000.0 * 6.4 ** ((mels - 15.0) / 27.0))
    distances = hertz[:, None] - np.fft.rfftfreq(FFT, 1 / SAMPLE_RATE)
    widths = np.diff(hertz)[:, None]
    rising, falling = -distances[:-2] / widths[:-1], distances[2:] / widths[1:]
    areas = 2.0 / (hertz[2:] - hertz[:-2])
    return (np.maximum(0.0, np.minimum(rising, falling)) * areas[:, None]).astype(np.float32)


def begins_twice(text: str) -> bool:
    """Return True if `text` starts over, as it sometimes does with a short window."""
    words = same_words(text).split()
    lengths = range(FEWEST_REPEATED, len(words) // 2 + 1)
    return any(words[:length] == words[length : 2 * length] for length in lengths)


def text_of(tokens: list[str]) -> str:
    """Return the text of the model's tokens, whose characters stand for bytes (as in GPT-2)."""
    written = "".join(token for token in tokens if not token.startswith("<|"))
    return bytes(map(byte_of().__getitem__, written)).decode(errors="replace").strip()


@cache
def byte_of() -> dict[str, int]:
    """Return the byte of each character: visible ones are their own, the rest begin at 256."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {
        chr(256 + number): byte for number, byte in enumerate(others)
    }
