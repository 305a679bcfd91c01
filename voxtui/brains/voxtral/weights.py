"""Load Voxtral: choose the device, load the weights, and make them fp8 if that costs no accuracy.

fp8 weights are e4m3 values with a scale per output channel, which halve the bytes per token. Only
the weights of the language model's layers are rounded; products use the type of the input. The fast
path reads them directly. The plain path converts each weight for each product, which takes longer
than bfloat16 weights. The audio encoder and the last layer keep their weights.
"""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib.util
import math
import os
import wave
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from voxtui.brains.voxtral.audio_encoder import AudioEmbedder, AudioTower
from voxtui.brains.voxtral.cuda_errors import is_full, too_little_memory, weights_unusable
from voxtui.brains.voxtral.decoder import Cache, Decoder
from voxtui.brains.voxtral.generate import ReplyGenerator, Sampler
from voxtui.brains.voxtral.prompt import (
    AUDIO,
    EOS,
    PromptClip,
    Tekken,
    token_ids,
    transcription,
    without_trailing_zeros,
)
from voxtui.errors import ModelError
from voxtui.models import cuda

if TYPE_CHECKING:
    # The benchmark of random weights imports this module without msgspec.
    from voxtui.settings.schema import Config, Sampling

CAPACITY = 4096
"""Initial tokens of cache: five spoken turns, their replies, and some text."""

WRITING_CAPACITY = 1024
"""Tokens of cache for a transcript."""

LARGEST = 448.0
"""The largest e4m3 number."""

FP8_CAPABILITY = (8, 9)
"""Capability of the first GPUs that convert e4m3 in hardware: Ada and Hopper."""

HINT = 'Set brain.voxtral.quantization = "none".'

AGREEMENT = 0.95
"""Minimum share of the transcripts' tokens that must stay the likeliest ones."""

CLIPS = Path(__file__).parents[2] / "data" / "clips"

TRANSCRIPT_TOKENS = 64
"""Maximum tokens of the transcript of a packaged clip."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    tekken: Tekken
    generator: ReplyGenerator
    transcriber: ReplyGenerator
    """the loop that transcribes, with the weights of `generator`"""
    on_gpu: bool
    device: str
    """the device and its weights, in plain words"""


def load_model(directory: Path, config: Config, notify: Callable[[str], object]) -> LoadedModel:
    """Load `directory` onto the best device; `notify` as in VoxtralBrain. Raises ModelError."""
    try:
        tekken = Tekken(directory)
    except (OSError, ValueError, KeyError) as error:
        raise weights_unusable(directory, error) from error
    device = best_device()
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    if not gpu:
        if cuda.is_likely():
            notify(f"Voxtral runs on the CPU, slowly. {cuda.why_unusable()}".rstrip())
        # One core stays free for the sound.
        torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    name = gpu or "the CPU"
    quantised = config.brain.voxtral.quantization == "fp8"
    if quantised:
        check_fp8(device)
    try:
        decoder, embedder = load(directory, device)
        if quantised and not (quantised := _quantise(decoder, embedder, notify)):
            del decoder, embedder  # the GPU may have no room for both
            decoder, embedder = load(directory, device)
        return LoadedModel(
            tekken,
            reply_generator(decoder, embedder, config.generation.sampling(), CAPACITY),
            reply_generator(decoder, embedder, _greedy(), WRITING_CAPACITY),
            bool(gpu),
            f"{name}, fp8 weights" if quantised else name,
        )
    except Exception as error:
        if is_full(error):
            memory = torch.cuda.mem_get_info(device)[1] if gpu else math.inf
            raise too_little_memory(name, memory) from error
        raise weights_unusable(directory, error) from error


def _quantise(decoder: Decoder, embedder: AudioEmbedder, notify: Callable[[str], object]) -> bool:
    """Apply fp8 weights. Return False, with a sentence, if they fail or cost accuracy.

    `decoder` may then hold them all the same.
    """
    try:
        check = AccuracyCheck(decoder, embedder)
        quantise(decoder)
        check.verify(decoder)
    except ModelError as error:
        notify(f"Voxtral runs without fp8. {error.message}")
        return False
    return True


def reply_generator(
    decoder: Decoder, embedder: AudioEmbedder, sampling: Sampling, capacity: int
) -> ReplyGenerator:
    """Return a loop over these weights, with its own cache of `capacity` tokens."""
    sampler = Sampler(
        decoder.head.shape[0],
        EOS,
        decoder.embedding.device,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        repetition_penalty=sampling.repetition_penalty,
        min_new_tokens=sampling.min_new_tokens,
        seed=sampling.seed,
    )
    return ReplyGenerator(decoder, embedder, sampler, capacity)


def _greedy() -> Sampling:
    from voxtui.settings.schema import Sampling

    return Sampling(0, 0, 0.0, 1.0, 0, 1.0)


def best_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def gpu_bytes() -> int | None:
    """Return the GPU memory that torch has reserved in this process; None without a GPU."""
    return torch.cuda.memory_reserved() if torch.cuda.is_available() else None


def best_dtype(device: torch.device) -> torch.dtype | str:
    """Return bfloat16, or float16 if the GPU lacks it; the checkpoint's type on a CPU."""
    if device.type != "cuda":
        return "auto"
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.half


def load(directory: Path, device: torch.device) -> tuple[Decoder, AudioEmbedder]:
    from transformers import VoxtralForConditionalGeneration
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    load_model: Any = VoxtralForConditionalGeneration.from_pretrained
    model, report = load_model(
        directory,
        dtype=best_dtype(device),
        local_files_only=True,
        attn_implementation="sdpa",
        output_loading_info=True,
    )
    if missing := sorted(report["missing_keys"]):
        # transformers fills missing weights with random ones
        raise ValueError(f"{missing[0]} is missing")
    loaded = parts(model.eval().to(device))
    torch.cuda.empty_cache()  # the pieces of joined weights
    return loaded


def parts(model: Any) -> tuple[Decoder, AudioEmbedder]:
    """Split a transformers model into decoder and embedder. The model is unusable afterwards."""
    # torch prefers cuDNN's attention on Hopper from cuDNN 9.15.1 on. It plans anew for each length
    # that it has not seen, which is each token of a reply that is not captured.
    torch.backends.cuda.enable_cudnn_sdp(False)
    with torch.inference_mode():
        return Decoder(model), AudioEmbedder(AudioTower(model))


class Fp8Weight:
    """Replaces an (out, in) weight wherever `functional.linear` takes one.

    torch calls `__torch_function__` of any argument that has it
    (https://docs.pytorch.org/docs/stable/notes/extending.html), so the model needs no second path.
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


def check_fp8(device: torch.device) -> None:
    """Raise ModelError if `device` does not support fp8, or only slowly."""
    if device.type != "cuda":
        return  # slower than without fp8; useful to compare answers
    name = torch.cuda.get_device_name(device)
    if (capability := torch.cuda.get_device_capability(device)) < FP8_CAPABILITY:
        has, needed = (".".join(map(str, version)) for version in (capability, FP8_CAPABILITY))
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
    """Compares the weights of a decoder with earlier ones, on transcripts of packaged clips.

    Made before the weights change. Each position of a transcript is computed after the earlier
    words, so that one different word does not change all later ones.
    """

    def __init__(self, decoder: Decoder, embedder: AudioEmbedder) -> None:
        self._heard: list[tuple[list[int], Tensor, int]] = []
        """token ids, the rows of the sound, and the start of the transcript"""
        sampler = Sampler(decoder.head.shape[0], EOS, decoder.embedding.device)
        loop = ReplyGenerator(decoder, embedder, sampler, WRITING_CAPACITY)
        for clip in packaged_clips():
            prompt = transcription(clip)
            written = [
                token
                for token in loop.reply(prompt, [clip], TRANSCRIPT_TOKENS)
                if token is not None
            ]
            with torch.inference_mode():
                rows = embedder.rows(clip).clone()
            self._heard.append(([*token_ids(prompt), *written], rows, len(prompt)))
        self._before = self._likeliest(decoder)

    def agreement(self, decoder: Decoder) -> float:
        """Return the share of positions whose likeliest token is unchanged."""
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
    clips: list[PromptClip] = []
    for number, path in enumerate(sorted(CLIPS.glob("*.wav"))):
        with wave.open(str(path)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        sound = samples.astype(np.float32) / np.float32(32_768)
        clips.append(PromptClip(number, without_trailing_zeros(sound)))
    return clips
