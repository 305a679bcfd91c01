"""Bringing a checkpoint onto the device, or making one up for measuring."""

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
    """What torch holds of the GPU's memory, other models of this process included."""
    return torch.cuda.memory_reserved() if torch.cuda.is_available() else None


def best_dtype(device: torch.device) -> torch.dtype | str:
    """bfloat16, or float16 where the GPU lacks it; on a CPU whatever the checkpoint has."""
    if device.type != "cuda":
        return "auto"
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.half


def load(directory: Path, device: torch.device) -> tuple[Decoder, AudioEmbedder]:
    """The checkpoint in `directory`. Raises OSError, ValueError, RuntimeError, SafetensorError."""
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
        raise ValueError(f"{missing[0]} is missing")  # transformers makes up what it does not find
    found = parts(model.eval().to(device))
    torch.cuda.empty_cache()  # of weights that became one, the pieces are no use to anybody
    return found


def parts(model: Any) -> tuple[Decoder, AudioEmbedder]:
    """What the loop needs of a transformers model, which is of no further use by itself."""
    # Where torch prefers cuDNN's attention (Hopper, from cuDNN 9.15.1 on), it would plan anew for
    # every length it has not seen: at each token of a reply that is not captured.
    torch.backends.cuda.enable_cudnn_sdp(False)
    with torch.inference_mode():
        return Decoder(model), AudioEmbedder(AudioTower(model))
