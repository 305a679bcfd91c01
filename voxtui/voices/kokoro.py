"""Kokoro-82M with the official code, on a GPU if there is one, from local files only.

Only `kokoro.model` is used. Phonemes come from `hibari` for English, and from the user's espeak-ng
for other languages. The package's own text front end would load spaCy and GPL parts, download a
language model, and reconfigure the log.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from voxtui.dialogue.data import SpeechChunk
from voxtui.dialogue.protocols import Progress
from voxtui.errors import ModelError, UnspokenLanguage, how_to_install
from voxtui.models.catalogue import KOKORO, kokoro_voice
from voxtui.models.installed import KokoroFiles, kokoro_files
from voxtui.settings.schema import LANGUAGES, VoiceConfig
from voxtui.voices.espeak import VOICES, Espeak
from voxtui.voices.hibari import pause_after, trim

if TYPE_CHECKING:
    from pathlib import Path

    from voxtui.dialogue.data import Samples

RATE = 24_000

LONGEST = 400
"""Phonemes per call. The model accepts 510, but speaks too fast from about 400
(https://huggingface.co/hexgrad/Kokoro-82M/blob/main/VOICES.md)."""

NEEDED = ("torch", "transformers", "kokoro", "hibari")

REFETCH = "Fetch it again: `voxtui models fetch kokoro`."

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
    """The parts for one language."""

    phonemes: Callable[[str], str]
    styles: Any
    """a tensor: the voice for each number of phonemes"""


class KokoroVoice:
    """Speaks as Kokoro's voice of each language; one chunk per clause.

    Warm it up on the thread that will call `speak`. cuDNN keeps its plans for convolutions per
    thread (`benchmark_cache` in torch's aten/src/ATen/native/cudnn/Conv_v8.cpp), so another thread
    would plan each of the hundred layers again.
    """

    def __init__(self, config: VoiceConfig, files: KokoroFiles) -> None:
        if not re.fullmatch(r"[abefhip][fm]_\w+", config.name):
            raise ModelError(
                f"Kokoro cannot speak as {config.name!r} here: it has no such voice for English, "
                "Spanish, French, Hindi, Italian or Portuguese.",
                'Set voice.name = "af_heart", or another that begins with af_, am_, bf_ or bm_.',
            )
        self._config = config
        self._name = kokoro_voice(config, "en")
        self._speed = config.speed
        self._files = files
        self._model: Any = None
        self._device: Any = None
        self._readers: dict[str, _Reader] = {}
        """one for each language so far"""
        self._noise: Any
        self._stream: Any = None
        self._where = ""

    @property
    def name(self) -> str:
        return f"kokoro ({self._name}{self._where})"

    def warm_up(self, progress: Progress) -> None:
        progress("voice", None)
        check_installed()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # because the package uses deprecated parts of torch
            try:
                self._load()
                for clause in WARM_UP:
                    for _ in self.speak(clause):
                        pass
            except ModelError:
                self.close()
                raise
            except (ImportError, OSError, RuntimeError) as error:
                self.close()
                hint = "`voxtui doctor` says how much memory a GPU has left."
                raise ModelError(f"Kokoro did not load: {_reason(error)}.", hint) from error

    def speak(
        self, clause: str, speed: float | None = None, language: str = "en"
    ) -> Iterator[SpeechChunk]:
        pause, text = pause_after(clause), clause
        reader = self._reader(language)
        try:
            pieces = list(cut_phonemes(reader.phonemes(clause)))
            for piece in pieces:
                samples = trim(
                    self._sound(piece, reader.styles, speed or self._speed),
                    RATE,
                    pause if piece is pieces[-1] else 0.0,
                )
                if len(samples):
                    yield SpeechChunk(samples, RATE, text)
                    text = ""
        except (RuntimeError, ValueError, KeyError, IndexError) as error:
            raise ModelError(f"Kokoro could not say {clause!r}: {_reason(error)}.") from error
        if isinstance(reader.phonemes, Espeak):
            reader.phonemes.prepare()

    def close(self) -> None:
        self._model = None
        for reader in self._readers.values():
            if isinstance(reader.phonemes, Espeak):
                reader.phonemes.close()
        self._readers.clear()

    def _reader(self, language: str) -> _Reader:
        """Return what reads `language`, loaded at its first clause. Raises UnspokenLanguage."""
        if known := self._readers.get(language):
            return known
        if language not in VOICES:
            raise UnspokenLanguage(f"Kokoro has no {LANGUAGES[language]} voice.")
        try:
            styles = self._style(kokoro_files(self._config, language=language).voice)
            reader = self._readers[language] = _Reader(Espeak(language), styles)
        except ModelError as error:
            raise UnspokenLanguage(
                f"Kokoro cannot speak {LANGUAGES[language]}: {error.message} {error.hint}".rstrip()
            ) from error
        return reader

    def _load(self) -> None:
        import torch
        from hibari.g2p import G2P  # pyright: ignore[reportMissingTypeStubs]

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if device.type == "cuda":
            # Its own stream, so that the voice and the brain do not wait for each other.
            self._stream = torch.cuda.Stream(device)
            self._where = ", GPU"
        else:
            torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))  # a core stays free for sound
            self._where = ", CPU"
        self._device = device
        self._model = self._loaded().eval().to(device)
        phonemes = G2P(british=self._name.startswith("b"))
        self._readers["en"] = _Reader(phonemes, self._style(self._files.voice))
        self._noise = torch.Generator(device)
        _draw_from(self._noise, self._model.decoder.generator.m_source)

    def _style(self, path: Path) -> Any:
        import torch

        styles = _read(lambda: torch.load(path, weights_only=True)).to(self._device)
        if tuple(styles.shape[1:]) != (1, 256):
            raise ModelError(f"{path} is not a voice of Kokoro.", REFETCH)
        return styles

    def _loaded(self) -> Any:
        code = model_code()
        settings = _read(lambda: json.loads(self._files.config.read_bytes()))
        # With an empty configuration KModel would download one.
        if not settings or not isinstance(settings, dict):
            raise ModelError(f"{self._files.config} is not the configuration of Kokoro.", REFETCH)
        path = str(self._files.model)
        model = _read(lambda: code.KModel(repo_id=KOKORO, config=settings, model=path))
        _fold_weight_norm(model)
        return model

    def _sound(self, phonemes: str, styles: Any, speed: float) -> Samples:
        import torch

        model = self._model
        known = [model.vocab[p] for p in phonemes if p in model.vocab]
        if not known:
            return torch.zeros(0).numpy()
        stream = torch.cuda.stream(self._stream) if self._stream else nullcontext()
        with torch.inference_mode(), stream:
            self._noise.manual_seed(0)
            ids = torch.tensor([[0, *known, 0]], device=self._device)
            style = styles[min(len(phonemes), len(styles)) - 1]
            audio, _ = model.forward_with_tokens(ids, style, speed)
            samples = audio.clamp(-1, 1).cpu().numpy()
        if samples.shape == () or samples[0] != samples[0]:
            raise ValueError("the model returned samples that are not numbers")
        return samples


def model_code() -> Any:
    """Import `kokoro.model` without running the package's `__init__`."""
    spec = importlib.util.find_spec("kokoro")
    assert spec is not None
    if "kokoro" not in sys.modules:
        sys.modules["kokoro"] = importlib.util.module_from_spec(spec)
    code = import_module("kokoro.model")
    import_module("loguru").logger.disable("kokoro")
    return code


def _read(load: Callable[[], Any]) -> Any:
    try:
        return load()
    except (
        OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError, AssertionError,
        EOFError, pickle.UnpicklingError,
    ) as error:  # fmt: skip
        raise ModelError(f"Kokoro's files cannot be loaded: {_reason(error)}.", REFETCH) from error


def _fold_weight_norm(model: Any) -> None:
    """Compute `weight_norm` of 89 layers once instead of at each call, with the same result."""
    from torch.nn.utils import remove_weight_norm

    for layer in model.modules():
        if hasattr(layer, "weight_g"):
            remove_weight_norm(layer)


def _draw_from(noise: Any, source: Any) -> None:
    """Make the vocoder draw from the generator `noise` instead of torch's default one.

    A CUDA graph capture that fails, as the brain's may, leaves CUDA's default generator unusable.
    A generator of its own also makes a clause sound the same each time.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class Drawing(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if func is torch.rand:
                return func(*args, **kwargs, generator=noise)
            if func is torch.randn_like:
                return torch.empty_like(*args, **kwargs).normal_(generator=noise)
            return func(*args, **kwargs)

    forward = source.forward

    def drawing(*args: Any) -> Any:
        with Drawing():
            return forward(*args)

    source.forward = drawing


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


def _reason(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
