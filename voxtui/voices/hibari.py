"""The embedded voice: one of Kokoro's voices distilled into 8 MB, on the CPU, without torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from voxtui.dialogue.data import Samples, SpeechChunk, audible
from voxtui.dialogue.protocols import Progress
from voxtui.errors import ModelError, UnspokenLanguage, how_to_install
from voxtui.models.catalogue import HIBARI, HIBARI_VOICES
from voxtui.models.download import download
from voxtui.models.installed import released_path
from voxtui.onnx_runtime import inference_session
from voxtui.settings.schema import LANGUAGES, VoiceConfig

MARGIN_SECONDS = 0.012
"""Silence that stays around audible samples, because a plosive begins below -50 dBFS."""

RAMP_SECONDS = 0.004

WARM_UP = ("Ready.", "The first sentence is as quick as the tenth, numbers like 12 too.")

SENTENCE_PAUSE, CLAUSE_PAUSE = 0.28, 0.10
"""Seconds of silence after a sentence and after a comma. They replace the model's own 0.2 to 0.33 s
before each clause, which adds latency, and 0.3 to 0.5 s after it, which sounds like a stutter at a
comma."""

SHORTEST_PAUSE = 0.12
"""Minimum silence that the model makes after a comma. That of a plosive is shorter."""

PAUSE_TOLERANCE = 0.35
"""Maximum distance of that pause from where the clause before it ends when spoken alone."""

LENGTH_TOLERANCE = 0.25
"""Maximum relative difference between the lengths of a clause after another one and alone."""


class HibariVoice:
    """Speaks English; one chunk per clause, in 5 to 70 ms on one core.

    Raises ModelError if its voice is missing, or downloads it at warm-up if it `fetches`.
    """

    def __init__(self, config: VoiceConfig, fetches: bool = False) -> None:
        if config.name not in (HIBARI, *HIBARI_VOICES):
            raise ModelError(
                f"The embedded voice does not speak as {config.name!r}.",
                f"It speaks as {', '.join((HIBARI, *HIBARI_VOICES))} (voice.name).",
            )
        self._name, self._speed = config.name, config.speed
        self._fetches = fetches
        if not fetches:
            self._file()
        self._model: Any = None
        self._newest: tuple[str, Samples] | None = None
        """the newest clause, and its sound"""

    @property
    def name(self) -> str:
        return f"embedded ({self._name})"

    def warm_up(self, progress: Progress) -> None:
        progress("voice", None)
        file = self._file(progress)
        try:
            hibari: Any = import_module("hibari")
        except ImportError as error:
            raise ModelError(
                "The embedded voice is not installed.", how_to_install("embedded")
            ) from error
        try:
            # Its name for a voice is Kokoro's without the prefix, which tells the accent.
            voice = self._name.partition("_")[2]
            # Its constructor would make a session whose memory grows with the texts.
            self._model = model = hibari.Hibari.__new__(hibari.Hibari)
            model.voice, model._g2p = voice, None  # noqa: SLF001
            model.sess = inference_session(file or Path(hibari.voices.voice_path(voice)))
            model.vocab = json.loads((Path(hibari.tts.ASSETS) / "vocab.json").read_bytes())
            for clause in WARM_UP:
                self._model(clause, speed=self._speed, seed=0)
        except Exception as error:  # those of onnxruntime share no base class
            raise ModelError(
                f"The embedded voice did not load: {error}.", "`voxtui doctor` says more."
            ) from error

    def speak(
        self, clause: str, speed: float | None = None, language: str = "en"
    ) -> Iterator[SpeechChunk]:
        if language != "en":
            raise UnspokenLanguage(
                f"The embedded voice speaks English only, and this is {LANGUAGES[language]}."
            )
        speed = speed or self._speed
        rate = int(self._model.sample_rate)
        try:
            samples = self._say(clause, speed)
            if self._newest is not None and clause[:1].islower():
                before, sound = self._newest
                # By itself the rest of a sentence would begin as high as a sentence does.
                if before.endswith(","):
                    both = self._say(f"{before} {clause}", speed)
                    samples = after_pause(both, sound, samples, rate)
        except Exception as error:
            raise ModelError(f"The embedded voice could not say {clause!r}.") from error
        self._newest = clause, samples
        spoken = trim(samples, rate, pause_after(clause))
        if len(spoken):
            yield SpeechChunk(spoken, rate, clause)

    def _file(self, progress: Progress | None = None) -> Path | None:
        """Return the file of the voice, or None if it is in the package. Raises ModelError."""
        if self._name == HIBARI:
            return None
        model = HIBARI_VOICES[self._name]
        try:
            return released_path(model)
        except ModelError:
            if not self._fetches or progress is None:
                raise
        step = f"fetching {model.name}"
        return download(model, progress=lambda done, size: progress(step, done / size))

    def _say(self, text: str, speed: float) -> Samples:
        return self._model(text, speed=speed, seed=0)

    def close(self) -> None:
        self._model = None


def after_pause(both: Samples, before: Samples, alone: Samples, rate: int) -> Samples:
    """Return the part of `both` after `before` and a clear pause; else `alone`, its own sound."""
    import numpy as np

    heard, first, second = audible(both), audible(before), audible(alone)
    if not len(heard) or not len(first) or not len(second):
        return alone
    gaps = np.diff(heard)
    at = (heard[:-1] - heard[0] - (first[-1] - first[0])) / rate
    gaps[np.abs(at) > PAUSE_TOLERANCE] = 0
    number = int(np.argmax(gaps))
    length = (heard[-1] - heard[number + 1]) / max(1, second[-1] - second[0])
    if gaps[number] < SHORTEST_PAUSE * rate or abs(length - 1) > LENGTH_TOLERANCE:
        return alone
    return both[heard[number + 1] - int(MARGIN_SECONDS * rate) :]


def pause_after(clause: str) -> float:
    """Return the seconds of silence after `clause`, by its last character."""
    return SENTENCE_PAUSE if clause[-1] in '.!?…"' else CLAUSE_PAUSE


def trim(samples: Samples, rate: int, pause: float) -> Samples:
    """Cut the silence around `samples`, fade both ends, and append `pause` seconds of silence."""
    import numpy as np

    heard = audible(samples)
    if not len(heard):
        return samples[:0]
    margin, ramp = int(MARGIN_SECONDS * rate), int(RAMP_SECONDS * rate)
    begin, end = max(0, heard[0] - margin), min(len(samples), heard[-1] + margin)
    sound = samples[begin:end].astype(np.float32, copy=True)
    sound[:ramp] *= np.linspace(0, 1, len(sound[:ramp]), dtype=np.float32)
    sound[-ramp:] *= np.linspace(1, 0, len(sound[-ramp:]), dtype=np.float32)
    return np.concatenate([sound, np.zeros(int(pause * rate), np.float32)])
