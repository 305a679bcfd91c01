"""fp8 weights: e4m3 values with a scale per output channel, which halve the bytes per token.

Only the weights of the language model's layers are rounded; products use the type of the input. The
fast path reads them as they are. The plain path converts each weight for each product, which takes
longer than bfloat16 weights. The audio encoder and the last layer keep their weights.
"""

# torch is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib.util
import wave
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from voxtui.brains.voxtral.decoder import Cache, Decoder
from voxtui.brains.voxtral.embedder import AudioEmbedder
from voxtui.brains.voxtral.generate import ReplyGenerator
from voxtui.brains.voxtral.prompt import (
    AUDIO,
    EOS,
    PromptClip,
    token_ids,
    transcription,
    without_trailing_zeros,
)
from voxtui.brains.voxtral.sampling import Sampler
from voxtui.errors import ModelError

LARGEST = 448.0
"""The largest e4m3 number."""

CAPABILITY = (8, 9)
"""The first GPUs that convert e4m3 in hardware: Ada and Hopper."""

HINT = 'Set brain.voxtral.quantization = "none".'

AGREEMENT = 0.95
"""Least share of the tokens of the transcripts that must stay the likeliest ones."""

CLIPS = Path(__file__).parents[2] / "data" / "clips"

TRANSCRIPT_TOKENS, CAPACITY = 64, 1024
"""of a packaged clip"""


class Fp8Weight:
    """Replaces an (out, in) weight wherever `functional.linear` takes one.

    torch calls `__torch_function__` of any argument that has it
    (https://docs.pytorch.org/docs/stable/notes/extending.html), so the model has no second path.
    """

    def __init__(self, weight: Tensor) -> None:
        largest = weight.abs().amax(dim=1, keepdim=True).float().clamp(min=1e-12)
        self.scales = (largest / LARGEST).squeeze(1)
        self.values = (weight.float() * (LARGEST / largest)).to(torch.float8_e4m3fn)
        self.shape = self.values.shape

    def numel(self) -> int:
        return self.values.numel()

    def element_size(self) -> int:
        return self.values.element_size()

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is not functional.linear:
            return NotImplemented
        x, weight = args
        # The type of `x` holds every e4m3 number exactly.
        product = functional.linear(x, weight.values.to(x.dtype))
        return (product.float() * weight.scales).to(x.dtype)


def check(device: torch.device) -> None:
    """Raise ModelError if `device` does not support fp8, or only slowly."""
    if device.type != "cuda":
        return  # slower than without fp8; useful to compare answers
    name = torch.cuda.get_device_name(device)
    if (capability := torch.cuda.get_device_capability(device)) < CAPABILITY:
        has, needed = (".".join(map(str, version)) for version in (capability, CAPABILITY))
        raise ModelError(f"fp8 needs a GPU of compute capability {needed}; {name} has {has}.", HINT)
    if importlib.util.find_spec("triton") is None:
        raise ModelError("fp8 needs Triton, which is not installed.", HINT)


def quantise(decoder: Decoder) -> None:
    """Convert the weights of every layer, one at a time so that memory never holds both."""

    def small(weight: Tensor) -> Tensor:
        return cast("Tensor", Fp8Weight(weight))

    for number, layer in enumerate(decoder.layers):
        decoder.layers[number] = replace(
            layer,
            qkv=small(layer.qkv),
            out=small(layer.out),
            gate_up=small(layer.gate_up),
            down=small(layer.down),
        )


class AccuracyCheck:
    """Compare the weights of a decoder with what they were, on transcripts of packaged clips.

    Made before the weights change. Each position of a transcript is computed with the words before
    it as they were, so that one other word does not change all later ones.
    """

    def __init__(self, decoder: Decoder, embedder: AudioEmbedder) -> None:
        self._heard: list[tuple[list[int], Tensor, int]] = []
        """token ids, the rows of the sound, and where the transcript begins"""
        sampler = Sampler(decoder.head.shape[0], EOS, decoder.embedding.device)
        loop = ReplyGenerator(decoder, embedder, sampler, CAPACITY)
        for clip in packaged_clips():
            prompt = transcription(clip)
            written = [
                token
                for token in loop.reply(prompt, [clip], TRANSCRIPT_TOKENS)
                if token is not None
            ]
            with torch.inference_mode():
                rows = embedder.rows(clip).clone()
            embedder.forget_all_but(set())
            self._heard.append(([*token_ids(prompt), *written], rows, len(prompt)))
        self._before = self._likeliest(decoder)

    def agreement(self, decoder: Decoder) -> float:
        """Return the share of positions whose likeliest token is still the same."""
        pairs = [
            before == after
            for before, after in zip(self._before, self._likeliest(decoder), strict=True)
        ]
        return sum(pairs) / len(pairs)

    def verify(self, decoder: Decoder) -> None:
        """Raise ModelError if more than 1 - AGREEMENT of the tokens differ."""
        if (share := self.agreement(decoder)) < AGREEMENT:
            raise ModelError(
                f"With fp8 weights {1 - share:.0%} of the words of a test differ from the model's "
                f"own; {1 - AGREEMENT:.0%} may.",
                HINT,
            )

    def _likeliest(self, decoder: Decoder) -> list[int]:
        return [
            token
            for ids, rows, start in self._heard
            for token in logits(decoder, ids, rows)[start - 1 :].argmax(-1).tolist()
        ]


def logits(decoder: Decoder, ids: Sequence[int], heard: Tensor | None = None) -> Tensor:
    """Return (n, vocabulary) float32 for each of `ids`; `heard` replaces the audio tokens."""
    device = decoder.embedding.device
    with torch.inference_mode():
        tokens = torch.tensor(ids, device=device)
        x = decoder.embed(tokens)
        if heard is not None:
            x[tokens == AUDIO] = heard
        positions = torch.arange(len(ids), device=device)
        hidden = decoder.run(x, positions, Cache(decoder, len(ids)), len(ids), masked=True)
        return torch.cat([decoder.logits(part).float() for part in hidden.split(64)])


def packaged_clips() -> list[PromptClip]:
    """Return the questions in `data/clips` that the standard library can read."""
    found: list[PromptClip] = []
    for number, path in enumerate(sorted(CLIPS.glob("*.wav"))):
        with wave.open(str(path)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        sound = samples.astype(np.float32) / np.float32(32_768)
        found.append(PromptClip(number, without_trailing_zeros(sound)))
    return found
