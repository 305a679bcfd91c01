"""Measure the error of fp8 weights against the weights they were made of."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import wave
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.voxtral.random_weights import random_model
from benchmarks.voxtral.systems import RATE, words
from voxtui.brains.voxtral.audio_encoder import AudioEmbedder
from voxtui.brains.voxtral.decoder import Decoder
from voxtui.brains.voxtral.generate import ReplyGenerator, Sampler
from voxtui.brains.voxtral.prompt import (
    EOS,
    PromptClip,
    PromptIds,
    chat,
    token_ids,
    transcription,
    without_trailing_zeros,
)
from voxtui.brains.voxtral.weights import best_device, load, logits, parts, quantise
from voxtui.errors import InputError

RANDOM = "random"
"""The value that stands for the true shape with random weights, without its audio encoder."""

REPLY_TOKENS = 64
CAPACITY = 2048

PLACES = 256

DEPTHS = (1, 4, 10, 30)
"""Numbers of layers after which the logits are compared."""


def difference(exact: Tensor, found: Tensor) -> dict[str, Any]:
    """Compare two (n, vocabulary) logits: error as a share of their spread, and the top token."""
    spread = exact - exact.mean(-1, keepdim=True)
    error = found - exact
    chances, others = exact.log_softmax(-1), found.log_softmax(-1)
    apart = (chances.exp() * (chances - others)).sum(-1)
    first = exact.argmax(-1)
    among = found.topk(5).indices == first[:, None]
    return {
        "positions": len(exact),
        "logit error, rms": round(float(error.norm() / spread.norm()), 4),
        "logit error, largest": round(float(error.abs().max() / spread.std()), 3),
        "top-1 agreement": round(float((found.argmax(-1) == first).float().mean()), 4),
        "top-1 is in its top-5": round(float(among.any(-1).float().mean()), 4),
        "KL, mean": round(float(apart.mean()), 5),
    }


def of_random() -> list[dict[str, Any]]:
    """Compare fp8 with bfloat16 on the true shape and its first layers.

    Random weights pass errors on enlarged and have no near certain tokens; trained ones are better.
    """
    from transformers import VoxtralConfig
    from transformers.models.voxtral.configuration_voxtral import VoxtralEncoderConfig

    config = VoxtralConfig(
        audio_token_id=24, audio_config=VoxtralEncoderConfig(num_hidden_layers=1)
    )
    decoder, _ = parts(random_model(config, best_device(), torch.bfloat16))
    exact = _by_depth(decoder)
    quantise(decoder)
    return [
        {"random layers of the true shape": depth} | difference(exact[depth], found)
        for depth, found in _by_depth(decoder).items()
    ]


def _by_depth(decoder: Decoder) -> dict[int, Tensor]:
    layers, ids = decoder.layers, words(PLACES)
    found: dict[int, Tensor] = {}
    for depth in DEPTHS:
        decoder.layers = layers[:depth]
        found[depth] = logits(decoder, ids)
    decoder.layers = layers
    return found


def of_model(directory: Path, clips: Sequence[Path]) -> list[dict[str, Any]]:
    """Compare fp8 with the original weights, one row per clip.

    Compares the logits over the exact reply, and the tokens of the transcripts. Raises InputError.
    """
    if find_spec("jiwer") is None:
        raise InputError("jiwer is not installed.", "pip install jiwer")
    said = [PromptClip(number, read(path)) for number, path in enumerate(clips)]
    device = best_device()
    try:
        decoder, embedder = load(directory, device)
    except Exception as error:
        raise InputError(f"{directory}: {str(error).splitlines()[0]}") from error
    rows: list[dict[str, Any]] = []
    before: list[tuple[list[int], Tensor, list[int]]] = []
    for clip in said:
        prompt = chat(lambda text: [], "", [], clip)
        reply = answered(decoder, embedder, prompt, clip, REPLY_TOKENS)
        ids = [*token_ids(prompt), *reply]
        exact = logits(decoder, ids, embedder.rows(clip))[len(prompt) - 1 :]
        before.append((ids, exact.cpu(), written(decoder, embedder, clip)))
    quantise(decoder)
    for path, clip, (ids, exact, words_) in zip(clips, said, before, strict=True):
        found = logits(decoder, ids, embedder.rows(clip))[-len(exact) :].cpu()
        other = written(decoder, embedder, clip)
        share = token_error(words_, other)
        row = {"clip": path.name} | difference(exact, found)
        rows.append(row | {"tokens of the transcript that differ": round(share, 4)})
    return rows


def answered(
    decoder: Decoder, embedder: AudioEmbedder, prompt: PromptIds, clip: PromptClip, most: int
) -> list[int]:
    sampler = Sampler(decoder.head.shape[0], EOS, decoder.embedding.device)
    loop = ReplyGenerator(decoder, embedder, sampler, CAPACITY)
    return [token for token in loop.reply(prompt, [clip], most) if token is not None]


def written(decoder: Decoder, embedder: AudioEmbedder, clip: PromptClip) -> list[int]:
    prompt = transcription(clip)
    return answered(decoder, embedder, prompt, clip, 16 + 10 * len(clip.samples) // RATE)


def token_error(reference: Sequence[int], hypothesis: Sequence[int]) -> float:
    """Return the edits per token of `reference` that make it `hypothesis`."""
    if not reference:
        return float(len(hypothesis))
    import jiwer  # the other measurements do without it

    return jiwer.wer(" ".join(map(str, reference)), " ".join(map(str, hypothesis)))


def read(path: Path) -> Any:
    """Return (n,) float32 samples. Raises InputError if the standard library cannot read it."""
    wanted = (1, 2, RATE)
    try:
        with wave.open(str(path)) as file:
            has = (file.getnchannels(), file.getsampwidth(), file.getframerate())
            data = file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise InputError(f"{path}: {error}.") from error
    if has != wanted:
        raise InputError(f"{path}: is not one channel of 16 bits at 16 kHz.")
    samples = np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32_768)
    if not len(samples):
        raise InputError(f"{path}: is empty.")
    return without_trailing_zeros(samples)
