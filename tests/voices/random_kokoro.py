"""Kokoro's files with random weights: noise in its voice, in its layout, at a tenth of its size."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import hibari
import torch

from voxtui.repositories import KokoroFiles
from voxtui.voices.kokoro import _model_code

FRAMES_A_PHONEME = -3.0
"""Bias of the durations: about 2.4 frames of 25 ms, as people speak."""


def make(directory: Path) -> KokoroFiles:
    """The three files, in `directory`. The widths that the code has fixed are the real ones."""
    vocab = json.loads((Path(hibari.__file__).parent / "assets" / "vocab.json").read_text())
    config = {
        "dim_in": 64, "dropout": 0.2, "hidden_dim": 512, "max_conv_dim": 512, "max_dur": 50,
        "multispeaker": True, "n_layer": 1, "n_mels": 80, "n_token": 178, "style_dim": 128,
        "text_encoder_kernel_size": 5, "vocab": vocab,
        "istftnet": {
            "upsample_kernel_sizes": [20, 12], "upsample_rates": [10, 6], "gen_istft_hop_size": 5,
            "gen_istft_n_fft": 20, "resblock_dilation_sizes": [[1, 3, 5]],
            "resblock_kernel_sizes": [3], "upsample_initial_channel": 512,
        },
        "plbert": {
            "hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 64,
            "max_position_embeddings": 512, "num_hidden_layers": 2, "dropout": 0.1,
        },
    }  # fmt: skip
    files = KokoroFiles(*(directory / name for name in ("kokoro.pth", "config.json", "voice.pt")))
    files.config.write_text(json.dumps(config))
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        torch.save({}, files.model)  # nothing is loaded, so the weights stay as they were drawn
        model = _model_code().KModel(
            repo_id="random", config=str(files.config), model=str(files.model)
        )
        torch.nn.init.constant_(model.predictor.duration_proj.linear_layer.bias, FRAMES_A_PHONEME)
        parts = ("bert", "bert_encoder", "predictor", "text_encoder", "decoder")
        torch.save({part: getattr(model, part).state_dict() for part in parts}, files.model)
        torch.save(torch.randn(510, 1, 256) / 10, files.voice)
    return files
