"""Kokoro-82M from local files only: by torch, or its small model by onnxruntime.

`hibari` makes the phonemes of English, the user's espeak-ng those of other languages.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxtui.dialogue.data import SpeechChunk
from voxtui.dialogue.protocols import Progress
from voxtui.errors import ModelError, UnspokenLanguage, first_line, how_to_install
from voxtui.models.catalogue import KOKORO_VOICES, kokoro_voice
from voxtui.models.installed import KokoroFiles, kokoro_files
from voxtui.settings.schema import LANGUAGES, VoiceConfig
from voxtui.voices.espeak import VOICES, Espeak
from voxtui.voices.hibari import pause_after, trim

if TYPE_CHECKING:
    from voxtui.voices.kokoro_onnx import OnnxKokoro
    from voxtui.voices.kokoro_torch import TorchKokoro

RATE = 24_000

LONGEST = 400
"""Maximum phonemes per call. The model accepts 510, but speaks too fast from about 400
(https://huggingface.co/hexgrad/Kokoro-82M/blob/main/VOICES.md)."""

NEEDED = ("torch", "transformers", "kokoro", "hibari")

WARM_UP = (
    "Ready.",
    "The first sentence is as quick as the tenth.",
    "Each length is a path of its own through the libraries, so here is a longer one, with 12.",
)


def check_installed() -> None:
    if sys.version_info >= (3, 13) and not importlib.util.find_spec("kokoro"):
        raise ModelError("Kokoro's package exists up to Python 3.12 only.", 'voice.engine = "auto"')
    lacking = [name for name in NEEDED if not importlib.util.find_spec(name)]
    if lacking:
        raise ModelError(
            f"Kokoro is not installed ({', '.join(lacking)}).", how_to_install("kokoro")
        )


@dataclass(frozen=True, slots=True)
class _Reader:
    phonemes: Callable[[str], str]
    styles: Any
    """the voice for each number of phonemes, a tensor or array"""


class KokoroVoice:
    """Speaks with Kokoro's voice of each language; one chunk per clause.

    Warm it up on the thread that will call `speak` (see TorchKokoro). Most answers are in
    `language`.
    """

    def __init__(self, config: VoiceConfig, files: KokoroFiles, language: str = "en") -> None:
        if not re.fullmatch(r"[abefhip][fm]_\w+", config.name):
            raise ModelError(
                f"Kokoro cannot speak as {config.name!r} here: it has no such voice for English, "
                "Spanish, French, Hindi, Italian or Portuguese.",
                'Set voice.name = "af_heart", or another that begins with af_, am_, bf_ or bm_.',
            )
        self._config = config
        self._name = kokoro_voice(config, language if language in KOKORO_VOICES else "en")
        self._speed = config.speed
        self._files = files
        self._model: OnnxKokoro | TorchKokoro | None = None
        self._readers: dict[str, _Reader] = {}
        """the readers of the languages spoken so far"""

    @property
    def name(self) -> str:
        where = f", {self._model.processor}" if self._model else ""
        return f"kokoro ({self._name}{where})"

    def warm_up(self, progress: Progress) -> None:
        progress("voice", None)
        if not self._files.is_small:
            check_installed()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # because the package uses deprecated parts of torch
            try:
                self._load()
                for clause in WARM_UP[:1] if self._files.is_small else WARM_UP:
                    for _ in self.speak(clause):
                        pass
            except (ModelError, ImportError, OSError, RuntimeError) as error:
                self.close()
                if isinstance(error, ModelError):
                    raise
                hint = "`voxtui doctor` says how much memory a GPU has left."
                raise ModelError(f"Kokoro did not load: {first_line(error)}.", hint) from error

    def speak(
        self, clause: str, speed: float | None = None, language: str = "en"
    ) -> Iterator[SpeechChunk]:
        pause, text = pause_after(clause), clause
        reader, model = self._reader(language), self._loaded()
        try:
            pieces = list(cut_phonemes(reader.phonemes(clause)))
            for piece in pieces:
                samples = trim(
                    model.sound(piece, reader.styles, speed or self._speed),
                    RATE,
                    pause if piece is pieces[-1] else 0.0,
                )
                if len(samples):
                    yield SpeechChunk(samples, RATE, text)
                    text = ""
        except (RuntimeError, ValueError, KeyError, IndexError) as error:
            raise ModelError(f"Kokoro could not say {clause!r}: {first_line(error)}.") from error
        if isinstance(reader.phonemes, Espeak):
            reader.phonemes.prepare()

    def close(self) -> None:
        self._model = None
        for reader in self._readers.values():
            if isinstance(reader.phonemes, Espeak):
                reader.phonemes.close()
        self._readers.clear()

    def _reader(self, language: str) -> _Reader:
        """Return the reader of `language`, loaded at its first clause. Raises UnspokenLanguage."""
        if known := self._readers.get(language):
            return known
        if language not in VOICES:
            raise UnspokenLanguage(f"Kokoro has no {LANGUAGES[language]} voice.")
        try:
            files = kokoro_files(self._config, language=language)
            styles = self._loaded().style(files.voice)
            reader = self._readers[language] = _Reader(Espeak(language), styles)
        except ModelError as error:
            raise UnspokenLanguage(
                f"Kokoro cannot speak {LANGUAGES[language]}: {error.message} {error.hint}".rstrip()
            ) from error
        return reader

    def _load(self) -> None:
        from hibari.g2p import G2P  # pyright: ignore[reportMissingTypeStubs]

        if self._files.is_small:
            from voxtui.voices.kokoro_onnx import OnnxKokoro

            self._model = OnnxKokoro(self._files.model)
        else:
            from voxtui.voices.kokoro_torch import TorchKokoro

            self._model = TorchKokoro(self._files)
        phonemes = G2P(british=kokoro_voice(self._config, "en").startswith("b"))
        self._readers["en"] = _Reader(phonemes, self._model.style(self._files.voice))

    def _loaded(self) -> OnnxKokoro | TorchKokoro:
        if self._model is None:
            raise ModelError("Kokoro is not loaded.")
        return self._model


def cut_phonemes(phonemes: str) -> Iterator[str]:
    """Cut `phonemes` after punctuation or at a space into pieces that the model accepts."""
    rest = phonemes.strip()
    while len(rest) > LONGEST:
        head = rest[:LONGEST]
        stop = max(head.rfind(f"{sign} ") + 1 for sign in ".!?;:,—")
        cut = stop or max(head.rfind(" "), 0) or LONGEST
        yield rest[:cut]
        rest = rest[cut:].strip()
    if rest:
        yield rest
