"""Kokoro's weights by the official code in torch, on a GPU if there is one.

Only `kokoro.model` is used. The package's own text front end would load spaCy and GPL parts,
download a language model, and reconfigure the log.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from voxtui.dialogue.data import Samples
from voxtui.errors import ModelError, first_line
from voxtui.models.catalogue import KOKORO
from voxtui.models.installed import KokoroFiles

REFETCH = "Fetch it again: `voxtui models fetch kokoro`."


class TorchKokoro:
    """A KokoroModel by torch. Used by one thread.

    cuDNN stores its plans for convolutions per thread (`benchmark_cache` in torch's
    aten/src/ATen/native/cudnn/Conv_v8.cpp), so another thread would plan each of the hundred layers
    again.
    """

    def __init__(self, files: KokoroFiles) -> None:
        import torch

        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._stream: Any = None
        self.processor = "GPU" if self._device.type == "cuda" else "CPU"
        if self._device.type == "cuda":
            # Its own stream, so that the voice and the brain do not wait for each other.
            self._stream = torch.cuda.Stream(self._device)
        else:
            torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))  # a core stays free for sound
        self._model = _loaded(files).eval().to(self._device)
        self._noise = torch.Generator(self._device)
        _draw_from(self._noise, self._model.decoder.generator.m_source)

    def style(self, path: Path) -> Any:
        import torch

        styles = _read(lambda: torch.load(path, weights_only=True)).to(self._device)
        if tuple(styles.shape[1:]) != (1, 256):
            raise ModelError(f"{path} is not a voice of Kokoro.", REFETCH)
        return styles

    def sound(self, phonemes: str, styles: Any, speed: float) -> Samples:
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


def _loaded(files: KokoroFiles) -> Any:
    assert files.config is not None
    code, path = model_code(), files.config
    settings = _read(lambda: json.loads(path.read_bytes()))
    # With an empty configuration KModel would download one.
    if not settings or not isinstance(settings, dict):
        raise ModelError(f"{path} is not the configuration of Kokoro.", REFETCH)
    model = _read(lambda: code.KModel(repo_id=KOKORO, config=settings, model=str(files.model)))
    _fold_weight_norm(model)
    return model


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
        raise ModelError(
            f"Kokoro's files cannot be loaded: {first_line(error)}.", REFETCH
        ) from error


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
