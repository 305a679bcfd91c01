"""Load Voxtral: choose the device, load the weights, and make them fp8 if that hears as well."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from voxtui.brains.voxtral.failures import is_full, too_little_memory, weights_unusable
from voxtui.brains.voxtral.prompt import EOS
from voxtui.brains.voxtral.text import Tekken
from voxtui.errors import ModelError, how_to_install
from voxtui.models import cuda

if TYPE_CHECKING:
    from voxtui.brains.voxtral.decoder import Decoder
    from voxtui.brains.voxtral.embedder import AudioEmbedder
    from voxtui.brains.voxtral.generate import ReplyGenerator
    from voxtui.settings.schema import Config, Sampling

CAPACITY = 4096
"""Tokens of cache at first: five spoken turns, their replies, and some text."""

WRITING_CAPACITY = 1024


@dataclass(frozen=True, slots=True)
class Model:
    """A checkpoint on its device."""

    tekken: Tekken
    generator: ReplyGenerator
    transcriber: ReplyGenerator
    """on the same weights"""
    gpu: str
    """the name of the GPU; empty on a CPU"""
    device: str
    """the device and its weights, for people"""


def load(directory: Path, config: Config, notify: Callable[[str], object]) -> Model:
    """Load `directory` onto the best device. Raises ModelError.

    `notify` gets a sentence for each setting that this machine cannot follow.
    """
    try:
        import torch

        from voxtui.brains.voxtral import fp8, weights

        tekken = Tekken(directory)
    except ImportError as error:
        raise ModelError("Voxtral is not installed.", how_to_install("voxtral")) from error
    except (OSError, ValueError, KeyError) as error:
        raise weights_unusable(directory, error) from error
    device = weights.best_device()
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    if not gpu:
        if cuda.is_likely():
            notify(f"Voxtral runs on the CPU, slowly. {cuda.why_unusable()}".rstrip())
        # One core stays free for the sound.
        torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    name = gpu or "the CPU"
    quantised = config.brain.voxtral.quantization == "fp8"
    if quantised:
        fp8.check(device)
    try:
        decoder, embedder = weights.load(directory, device)
        if quantised and not (quantised := _quantise(decoder, embedder, notify)):
            del decoder, embedder  # the GPU may have no room for both
            decoder, embedder = weights.load(directory, device)
        return Model(
            tekken,
            reply_generator(decoder, embedder, config.generation.sampling(), CAPACITY),
            reply_generator(decoder, embedder, _greedy(), WRITING_CAPACITY),
            gpu,
            f"{name}, fp8 weights" if quantised else name,
        )
    except Exception as error:
        if is_full(error):
            memory = torch.cuda.mem_get_info(device)[1] if gpu else math.inf
            raise too_little_memory(name, memory) from error
        raise weights_unusable(directory, error) from error


def _quantise(decoder: Decoder, embedder: AudioEmbedder, notify: Callable[[str], object]) -> bool:
    """Apply fp8 weights. Return False, with a sentence, if they do not work or hear worse.

    `decoder` may then hold them all the same.
    """
    from voxtui.brains.voxtral import fp8, step
    from voxtui.brains.voxtral.accuracy import AccuracyCheck

    try:
        step.keep_compiled_kernels()
        check = AccuracyCheck(decoder, embedder)
        fp8.quantise(decoder)
        check.verify(decoder)
    except ModelError as error:
        notify(f"Voxtral runs without fp8. {error.message}")
        return False
    return True


def reply_generator(
    decoder: Decoder, embedder: AudioEmbedder, sampling: Sampling, capacity: int
) -> ReplyGenerator:
    """Return a loop over these weights, with a cache of its own for `capacity` tokens."""
    from voxtui.brains.voxtral.generate import ReplyGenerator
    from voxtui.brains.voxtral.sampling import Sampler

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
