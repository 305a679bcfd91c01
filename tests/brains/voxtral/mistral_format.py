"""A Voxtral as Mistral publishes it, made of one in the format of transformers: what vLLM reads."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

EARS = "mm_whisper_embeddings.whisper_encoder."

NAMES = {
    r"language_model\.model\.embed_tokens\.": "mm_whisper_embeddings.tok_embeddings.",
    r"language_model\.model\.norm\.": "norm.",
    r"language_model\.lm_head\.": "output.",
    r"language_model\.model\.layers\.(\d+)\.input_layernorm\.": r"layers.\1.attention_norm.",
    r"language_model\.model\.layers\.(\d+)\.post_attention_layernorm\.": r"layers.\1.ffn_norm.",
    r"language_model\.model\.layers\.(\d+)\.self_attn\.(.)_proj\.": r"layers.\1.attention.w\2.",
    r"language_model\.model\.layers\.(\d+)\.mlp\.gate_proj\.": r"layers.\1.feed_forward.w1.",
    r"language_model\.model\.layers\.(\d+)\.mlp\.down_proj\.": r"layers.\1.feed_forward.w2.",
    r"language_model\.model\.layers\.(\d+)\.mlp\.up_proj\.": r"layers.\1.feed_forward.w3.",
    r"audio_tower\.conv1\.": EARS + "conv_layers.0.",
    r"audio_tower\.conv2\.": EARS + "conv_layers.1.",
    r"audio_tower\.layer_norm\.": EARS + "transformer.norm.",
    r"audio_tower\.layers\.(\d+)\.self_attn\.(.)(?:ut)?_proj\.": (
        EARS + r"transformer.layers.\1.attention.w\2."
    ),
    r"audio_tower\.layers\.(\d+)\.self_attn_layer_norm\.": (
        EARS + r"transformer.layers.\1.attention_norm."
    ),
    r"audio_tower\.layers\.(\d+)\.fc1\.": EARS + r"transformer.layers.\1.feed_forward.w1.",
    r"audio_tower\.layers\.(\d+)\.fc2\.": EARS + r"transformer.layers.\1.feed_forward.w2.",
    r"audio_tower\.layers\.(\d+)\.final_layer_norm\.": EARS + r"transformer.layers.\1.ffn_norm.",
    r"multi_modal_projector\.linear_1\.": ("mm_whisper_embeddings.audio_language_projection.0."),
    r"multi_modal_projector\.linear_2\.": ("mm_whisper_embeddings.audio_language_projection.2."),
}

COMPUTED = "audio_tower.embed_positions.weight"
"""Sinusoids, which no published file holds."""


def write(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    config = json.loads((source / "config.json").read_text())
    text, audio = config["text_config"], config["audio_config"]
    weights: dict[str, torch.Tensor] = {}
    for name, weight in load_file(source / "model.safetensors").items():
        if name == COMPUTED:
            continue
        if rotated := re.search(r"language_model.*\.([qk])_proj\.", name):
            kind = "num_attention_heads" if rotated[1] == "q" else "num_key_value_heads"
            weight = interleaved(weight, text[kind])
        weights[renamed(name)] = weight.contiguous()
    save_file(weights, target / "consolidated.safetensors")
    (target / "params.json").write_text(json.dumps(parameters(text, audio)))
    shutil.copy(source / "tekken.json", target)


def renamed(name: str) -> str:
    for ours, theirs in NAMES.items():
        found, count = re.subn(f"^{ours}", theirs, name)
        if count:
            return found
    raise KeyError(name)


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rotary pairs side by side; transformers has them half a head apart."""
    return weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def parameters(text: dict[str, Any], audio: dict[str, Any]) -> dict[str, Any]:
    mel = {"sampling_rate": 16_000, "num_mel_bins": 128, "hop_length": 160, "window_size": 400}
    encoder = {
        "audio_encoding_args": mel,
        "dim": audio["hidden_size"],
        "n_layers": audio["num_hidden_layers"],
        "head_dim": audio["hidden_size"] // audio["num_attention_heads"],
        "hidden_dim": audio["intermediate_size"],
        "n_heads": audio["num_attention_heads"],
        "vocab_size": audio["vocab_size"],
        "max_source_positions": 1500,
    }
    embedder = {"encoder_args": encoder, "downsample_args": {"downsample_factor": 4}}
    return {
        "dim": text["hidden_size"],
        "n_layers": text["num_hidden_layers"],
        "head_dim": text["head_dim"],
        "hidden_dim": text["intermediate_size"],
        "n_heads": text["num_attention_heads"],
        "n_kv_heads": text["num_key_value_heads"],
        "rope_theta": 1e8,
        "norm_eps": 1e-5,
        "vocab_size": text["vocab_size"],
        "max_position_embeddings": 32_768,
        "multimodal": {"whisper_model_args": embedder},
    }
