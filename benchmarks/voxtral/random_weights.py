"""Voxtrals of random weights: the true layer shapes for a trial, and a tiny one for a CPU."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import torch

from voxtui.brains.voxtral.prompt import EOS
from voxtui.brains.voxtral.weights import best_dtype


def true_config() -> Any:
    """Return the shape of Voxtral-Mini-3B."""
    from transformers import VoxtralConfig

    return VoxtralConfig(audio_token_id=24)


def tiny_config() -> Any:
    from transformers import LlamaConfig, VoxtralConfig
    from transformers.models.voxtral.configuration_voxtral import VoxtralEncoderConfig

    text = LlamaConfig(
        vocab_size=4096, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        max_position_embeddings=131_072,
    )  # fmt: skip
    audio = VoxtralEncoderConfig(
        hidden_size=32, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2
    )
    return VoxtralConfig(text_config=text, audio_config=audio, audio_token_id=24)


def random_model(config: Any, device: torch.device, dtype: torch.dtype | str = "auto") -> Any:
    """Make a transformers model of that shape, in `dtype` or the best type for the device."""
    from transformers import VoxtralForConditionalGeneration

    suits = best_dtype(device) if dtype == "auto" else dtype
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(suits if isinstance(suits, torch.dtype) else torch.float32)
    try:
        with device:
            model: Any = VoxtralForConditionalGeneration(config)
    finally:
        torch.set_default_dtype(before)
    model.generation_config.update(bos_token_id=1, eos_token_id=EOS, pad_token_id=11)
    return model.eval()
