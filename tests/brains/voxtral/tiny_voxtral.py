"""A Voxtral of 0.4 million random weights: the real classes, and the real tokenizer's first ranks.

mistral-common carries the vocabulary of the Tekken family; what Voxtral adds to it (the names of
the control tokens, and how its audio is cut) is written here.
"""

from __future__ import annotations

import importlib.resources
import json
import math
from pathlib import Path

import torch

CONTROL = {
    0: "<unk>", 1: "<s>", 2: "</s>", 3: "[INST]", 4: "[/INST]", 5: "[AVAILABLE_TOOLS]",
    6: "[/AVAILABLE_TOOLS]", 7: "[TOOL_RESULTS]", 8: "[/TOOL_RESULTS]", 9: "[TOOL_CALLS]",
    10: "[IMG]", 11: "<pad>", 12: "[IMG_BREAK]", 13: "[IMG_END]", 14: "[PREFIX]", 15: "[MIDDLE]",
    16: "[SUFFIX]", 17: "[SYSTEM_PROMPT]", 18: "[/SYSTEM_PROMPT]", 19: "[TOOL_CONTENT]",
    24: "[AUDIO]", 25: "[BEGIN_AUDIO]", 32: "[ARGS]", 33: "[CALL_ID]", 34: "[TRANSCRIBE]",
}  # fmt: skip


def build(directory: Path, vocabulary: int = 4096, seed: int = 0, width: int = 32) -> None:
    """Write the checkpoint and its processor. Attention heads have half the `width`."""
    from transformers import VoxtralProcessor, WhisperFeatureExtractor
    from transformers.tokenization_mistral_common import MistralCommonBackend

    directory.mkdir(parents=True, exist_ok=True)
    _write_tokenizer(directory / "tekken.json", vocabulary)
    processor = VoxtralProcessor(
        feature_extractor=WhisperFeatureExtractor(feature_size=128),
        tokenizer=MistralCommonBackend(str(directory / "tekken.json")),
    )
    processor.save_pretrained(directory)
    model(vocabulary, seed, width).save_pretrained(directory)


def model(vocabulary: int = 4096, seed: int = 0, width: int = 32, layers: int = 2):
    """Build the weights alone, without the tokenizer."""
    from transformers import VoxtralForConditionalGeneration

    made = VoxtralForConditionalGeneration(_config(vocabulary, width, layers)).eval()
    _randomise(made, seed)
    made.generation_config.update(bos_token_id=1, eos_token_id=2, pad_token_id=11)
    return made


def _write_tokenizer(path: Path, vocabulary: int) -> None:
    data = importlib.resources.files("mistral_common") / "data" / "tekken_240911.json"
    tekken = json.loads(data.read_text(encoding="utf-8"))
    config = tekken["config"]
    specials = config["default_num_special_tokens"]
    # A rank is made of lower ones, so the first so many are a vocabulary too.
    config |= {
        "default_vocab_size": vocabulary,
        "num_vocab_tokens": vocabulary - specials,
        "version": "v7",
    }
    tokens = [
        {"rank": i, "token_str": CONTROL.get(i, f"<SPECIAL_{i}>"), "is_control": True}
        for i in range(specials)
    ]
    audio = {
        "sampling_rate": 16_000,
        "frame_rate": 12.5,
        "chunk_length_s": 30.0,
        "audio_encoding_config": {"num_mel_bins": 128, "hop_length": 160, "window_size": 400},
    }
    tekken = {
        "config": config,
        "vocab": tekken["vocab"][: vocabulary - specials],
        "special_tokens": tokens,
        "audio": audio,
    }
    path.write_text(json.dumps(tekken, ensure_ascii=False), encoding="utf-8")


def _config(vocabulary: int, width: int, layers: int):
    from transformers import LlamaConfig, VoxtralConfig
    from transformers.models.voxtral.configuration_voxtral import VoxtralEncoderConfig

    text = LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=2 * width,
        num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        head_dim=width // 2, rope_theta=1e8,  # type: ignore[call-arg]
        max_position_embeddings=131_072, rms_norm_eps=1e-5,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    # The projector takes four frames of the encoder at a time, as so many features.
    audio = VoxtralEncoderConfig(
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,
    )
    return VoxtralConfig(audio_config=audio, text_config=text, audio_token_id=24)


def _randomise(model: torch.nn.Module, seed: int) -> None:
    """Weights so large that the tokens vary, and depend on what is heard."""
    from transformers.models.whisper.modeling_whisper import sinusoids

    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" in name:
                weight.copy_(sinusoids(*weight.shape))
            elif weight.dim() >= 2:
                gain = 8.0 if "lm_head" in name else 2.0
                scale = 1.0 if "embed_tokens" in name else gain / math.sqrt(weight[0].numel())
                weight.copy_(torch.randn(weight.shape, generator=source) * scale)
