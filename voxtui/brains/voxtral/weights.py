"""Load Voxtral: choose the device, load the weights, and make them fp8 if that hears as well."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxtui.brains.voxtral.cuda_errors import is_full, too_little_memory, weights_unusable
from voxtui.brains.voxtral.prompt import EOS, Tekken
from voxtui.errors import ModelError, how_to_install
from voxtui.models import cuda

if TYPE_CHECKING:
    import torch

    from voxtui.brains.voxtral.decoder import Decoder
    from voxtui.brains.voxtral.embedder import AudioEmbedder
    from voxtui.brains.voxtral.generate import ReplyGenerator
    from voxtui.settings.schema import Config, Sampling

CAPACITY = 4096
"""Tokens of cache at first: five spoken turns, their replies, and some text."""

WRITING_CAPACITY = 1024


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A checkpoint on its device."""

    tekken: Tekken
    generator: ReplyGenerator
    transcriber: ReplyGenerator
    """the loop that transcribes, on the weights of `generator`"""
    on_gpu: bool
    device: str
    """the device and its weights, for people"""


def load_model(directory: Path, config: Config, notify: Callable[[str], object]) -> LoadedModel:
    """Load `directory` onto the best device. Raises ModelError.

    `notify` gets a sentence for each setting that this machine cannot follow.
    """
    try:
        import torch

        from voxtui.brains.voxtral import fp8

        tekken = Tekken(directory)
    except ImportError as error:
        raise ModelError("Voxtral is not installed.", how_to_install("voxtral")) from error
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
        fp8.check(device)
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
    """Apply fp8 weights. Return False, with a sentence, if they do not work or hear worse.

    `decoder` may then hold them all the same.
    """
    from voxtui.brains.voxtral import fp8

    try:
        check = fp8.AccuracyCheck(decoder, embedder)
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


def best_device() -> torch.device:
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def gpu_bytes() -> int | None:
    """Return the GPU memory that torch has reserved in this process; None without a GPU."""
    import torch

    return torch.cuda.memory_reserved() if torch.cuda.is_available() else None


def best_dtype(device: torch.device) -> torch.dtype | str:
    """Return bfloat16, or float16 where the GPU lacks it; the checkpoint's type on a CPU."""
    import torch

    if device.type != "cuda":
        return "auto"
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.half


def load(directory: Path, device: torch.device) -> tuple[Decoder, AudioEmbedder]:
    import torch
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
        raise ValueError(
            f"{missing[0]} is missing"
        )  # transformers fills missing weights with random ones
    found = parts(model.eval().to(device))
    torch.cuda.empty_cache()  # the pieces of joined weights
    return found


def parts(model: Any) -> tuple[Decoder, AudioEmbedder]:
    """Split a transformers model into decoder and embedder. The model is unusable afterwards."""
    import torch

    from voxtui.brains.voxtral.audio_tower import AudioTower
    from voxtui.brains.voxtral.decoder import Decoder
    from voxtui.brains.voxtral.embedder import AudioEmbedder

    # torch prefers cuDNN's attention on Hopper from cuDNN 9.15.1 on. It plans anew for each length
    # that it has not seen, which is each token of a reply that is not captured.
    torch.backends.cuda.enable_cudnn_sdp(False)
    with torch.inference_mode():
        return Decoder(model), AudioEmbedder(AudioTower(model))
