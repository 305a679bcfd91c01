"""Compute the minimum time of a Voxtral of some shape from its products and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from voxtui.brains.voxtral.prompt import WINDOW_TOKENS

WINDOW_FRAMES, PLACES, BINS, FREQUENCIES = 3000, 1500, 128, 201
"""Numbers per window of 30 s: frames, positions after the second convolution, and bins of both
spectra."""

FLOAT = 2
"""Bytes of a bfloat16."""


@dataclass(frozen=True, slots=True)
class Work:
    flops: float
    """the operations, two for a multiplication and its addition"""
    bytes: float
    """the bytes of weights, keys and values to be read"""

    def seconds(self, ceilings: Ceilings) -> float:
        """Return the minimum seconds: arithmetic and reading overlap."""
        return max(self.flops / ceilings.flops, self.bytes / ceilings.bandwidth)


@dataclass(frozen=True, slots=True)
class Ceilings:
    flops: float
    """the operations per second in matrix products"""
    bandwidth: float
    """the bytes per second, read and written"""


H200 = Ceilings(790e12, 4.3e12)
"""The ceilings of an H200, measured with a product of 8192 x 8192 x 8192 in bfloat16 and a copy of
4 GB."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The defaults are those of Voxtral-Mini-3B."""

    encoder_layers: int = 32
    encoder_width: int = 1280
    encoder_inner: int = 5120
    layers: int = 30
    width: int = 3072
    inner: int = 8192
    heads: int = 32
    kv_heads: int = 8
    head_size: int = 128
    vocabulary: int = 131_072
    weight_bytes: int = FLOAT
    """the bytes of one weight of the language model's layers"""
    float_bytes: int = FLOAT
    """the bytes of one weight elsewhere"""

    @property
    def encoder_weights(self) -> int:
        d, inner = self.encoder_width, self.encoder_inner
        layer = 4 * d * d + 3 * d + 2 * d * inner + inner + d + 4 * d  # no bias on the keys
        convolutions = 3 * BINS * d + d + 3 * d * d + d
        return convolutions + PLACES * d + self.encoder_layers * layer + 2 * d

    @property
    def projector_weights(self) -> int:
        return self.width * (self.encoder_inner + self.width)

    @property
    def layer_weights(self) -> int:
        """Count the weights of the products of one layer, without its norms."""
        query, others = self.heads * self.head_size, 2 * self.kv_heads * self.head_size
        attention = self.width * (2 * query + others)
        return attention + 3 * self.width * self.inner

    @property
    def head_weights(self) -> int:
        return self.width * self.vocabulary

    @property
    def weights(self) -> int:
        """Count all weights, with the embedding and the norms."""
        language = self.layers * (self.layer_weights + 2 * self.width) + self.width
        return self.encoder_weights + self.projector_weights + language + 2 * self.head_weights

    @property
    def place_bytes(self) -> int:
        """Return the bytes of keys and values of one token."""
        return 2 * self.layers * self.kv_heads * self.head_size * self.float_bytes

    def mel(self) -> Work:
        """Count one window of the filter bank; the transforms before it are negligible."""
        return Work(2 * FREQUENCIES * BINS * WINDOW_FRAMES, 4 * 160 * WINDOW_FRAMES)

    def encoder(self) -> Work:
        """Count one window of the encoder."""
        d = self.encoder_width
        convolutions = 2 * 3 * (WINDOW_FRAMES * BINS * d + PLACES * d * d)
        products = 2 * PLACES * (4 * d * d + 2 * d * self.encoder_inner)
        attention = 4 * PLACES**2 * d
        flops = convolutions + self.encoder_layers * (products + attention)
        return Work(flops, self.encoder_weights * self.float_bytes)

    def projector(self) -> Work:
        weights = self.projector_weights
        return Work(2 * WINDOW_TOKENS * weights, weights * self.float_bytes)

    def prefill(self, tokens: int, before: int) -> Work:
        """Count a prefill of `tokens` after `before` cached ones, and the logits of the last."""
        products = 2 * (tokens * self.layers * self.layer_weights + self.head_weights)
        seen = tokens * before + tokens * (tokens + 1) / 2
        attention = 4 * seen * self.heads * self.head_size * self.layers
        return Work(products + attention, self._read(before + tokens))

    def step(self, before: int) -> Work:
        return self.prefill(1, before)

    def first_token(self, seconds: float, before: int, ceilings: Ceilings) -> float:
        """Return the seconds from the samples to the first token; the stages run in sequence."""
        windows = max(1, -(-int(seconds * 1000) // 30_000))
        stages = [self.mel(), self.encoder(), self.projector()] * windows
        stages.append(self.prefill(windows * WINDOW_TOKENS + 1, before))
        return sum(stage.seconds(ceilings) for stage in stages)

    def _read(self, positions: int) -> float:
        layers = self.layers * self.layer_weights * self.weight_bytes
        return layers + self.head_weights * self.float_bytes + positions * self.place_bytes


def shape_of(config: Any, float_bytes: int, weight_bytes: int) -> Shape:
    """Return the shape of a transformers configuration."""
    audio, text = config.audio_config, config.text_config
    return Shape(
        audio.num_hidden_layers, audio.hidden_size, audio.intermediate_size,
        text.num_hidden_layers, text.hidden_size, text.intermediate_size,
        text.num_attention_heads, text.num_key_value_heads, text.head_dim, text.vocab_size,
        weight_bytes, float_bytes,
    )  # fmt: skip


def counted(shape: Shape, ceilings: Ceilings, before: int) -> list[dict[str, Any]]:
    """Return each stage as a row; `before`: tokens of the instruction, which are in the cache."""
    from dataclasses import replace

    fp8 = replace(shape, weight_bytes=1)
    stages = {
        "mel, a window of 30 s": shape.mel(),
        "encoder, a window": shape.encoder(),
        "projector, a window": shape.projector(),
        "prefill of a window": shape.prefill(WINDOW_TOKENS + 1, before),
        "prefill of two windows": shape.prefill(2 * WINDOW_TOKENS + 1, before),
    }
    for context in (512, 4096, 16_384):
        stages[f"a token behind {context}"] = shape.step(context)
    stages["a token behind 512, fp8 weights"] = fp8.step(512)
    rows = [
        {"stage": name, "GFLOP": f"{work.flops / 1e9:.2f}", "GB": f"{work.bytes / 1e9:.3f}",
         "ms": f"{work.seconds(ceilings) * 1e3:.3f}"}
        for name, work in stages.items()
    ]  # fmt: skip
    for seconds in (5, 40):
        least = shape.first_token(seconds, before, ceilings)
        row = {"stage": f"first token of {seconds} s", "GFLOP": "", "GB": "",
               "ms": f"{least * 1e3:.3f}"}  # fmt: skip
        rows.append(row)
    return rows
