"""Time Kokoro at its true size with random weights; its sound is meaningless."""

# torch is typed in part only, kokoro not at all.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from voxtui.voices.kokoro import KokoroVoice

CLAUSE = "It is blue because the air scatters light."
"""A clause of 40 phonemes."""

CONFIG: dict[str, Any] = {
    "dim_in": 64, "dropout": 0.2, "hidden_dim": 512, "max_conv_dim": 512, "max_dur": 50,
    "multispeaker": True, "n_layer": 3, "n_mels": 80, "n_token": 178, "style_dim": 128,
    "text_encoder_kernel_size": 5,
    "istftnet": {
        "upsample_kernel_sizes": [20, 12], "upsample_rates": [10, 6], "gen_istft_hop_size": 5,
        "gen_istft_n_fft": 20, "resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5], [1, 3, 5]],
        "resblock_kernel_sizes": [3, 7, 11], "upsample_initial_channel": 512,
    },
    "plbert": {
        "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 2048,
        "max_position_embeddings": 512, "num_hidden_layers": 12, "dropout": 0.1,
    },
}  # fmt: skip
"""The configuration of Kokoro-82M
(https://huggingface.co/hexgrad/Kokoro-82M/blob/main/config.json)."""

NEEDED = ("kokoro", "attr", "loguru", "hibari", "msgspec", "platformdirs")
"""Packages besides torch, transformers and numpy; they may be installed without their own needs."""

SHORT_PHONEMES = -3.0
"""Bias of the durations: about 2.4 frames of 25 ms for a phoneme, as people speak."""


@contextmanager
def random_voice() -> Generator[KokoroVoice, None, None]:
    """Yield a voice of random weights. Raises RuntimeError if Kokoro is not installed."""
    lacking = [name for name in NEEDED if find_spec(name) is None]
    if lacking:
        raise RuntimeError(f"not installed: {', '.join(lacking)}")
    from voxtui.settings.schema import VoiceConfig
    from voxtui.voices.kokoro import KokoroVoice

    with tempfile.TemporaryDirectory() as directory:
        voice = KokoroVoice(VoiceConfig(), random_files(Path(directory)))
        voice.warm_up(lambda step, fraction: None)
        try:
            yield voice
        finally:
            voice.close()


def random_files(directory: Path, config: dict[str, Any] = CONFIG) -> Any:
    """Write the three files of Kokoro into `directory`."""
    import hibari

    from voxtui.models.installed import KokoroFiles
    from voxtui.voices.kokoro_torch import model_code

    package = Path(str(hibari.__file__)).parent
    vocabulary = json.loads((package / "assets" / "vocab.json").read_text())
    files = KokoroFiles(*(directory / name for name in ("kokoro.pth", "config.json", "voice.pt")))
    files.config.write_text(json.dumps(config | {"vocab": vocabulary}))
    # Of the CPU only: after a capture that failed, CUDA's own generator is out of use.
    with warnings.catch_warnings(), torch.random.fork_rng(devices=()):
        warnings.simplefilter("ignore")  # its code is older than the torch it runs on
        torch.default_generator.manual_seed(0)
        torch.save({}, files.model)  # nothing is loaded, so the weights stay as they were drawn
        made: Any = model_code().KModel(
            repo_id="random", config=str(files.config), model=str(files.model)
        )
        torch.nn.init.constant_(made.predictor.duration_proj.linear_layer.bias, SHORT_PHONEMES)
        names = ("bert", "bert_encoder", "predictor", "text_encoder", "decoder")
        torch.save({name: getattr(made, name).state_dict() for name in names}, files.model)
        torch.save(torch.randn(510, 1, 256) / 10, files.voice)
    return files
