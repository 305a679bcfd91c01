"""Load a checkpoint onto the device."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from voxtui.brains.voxtral.audio_tower import AudioTower
from voxtui.brains.voxtral.decoder import Decoder
from voxtui.brains.voxtral.embedder import AudioEmbedder


def best_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def gpu_bytes() -> int | None:
    """Return the GPU memory that torch has reserved in this process; None without a GPU."""
    return torch.cuda.memory_reserved() if torch.cuda.is_available() else None


def best_dtype(device: torch.device) -> torch.dtype | str:
    """Return bfloat16, or float16 where the GPU lacks it; the checkpoint's type on a CPU."""
    if device.type != "cuda":
        return "auto"
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.half


def load(directory: Path, device: torch.device) -> tuple[Decoder, AudioEmbedder]:
    """Load `directory`. Raises OSError, ValueError, RuntimeError, SafetensorError."""
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
    # torch prefers cuDNN's attention on Hopper from cuDNN 9.15.1 on. It plans anew for each length
    # that it has not seen, which is each token of a reply that is not captured.
    torch.backends.cuda.enable_cudnn_sdp(False)
    with torch.inference_mode():
        return Decoder(model), AudioEmbedder(AudioTower(model))
