"""Kokoro's files with random weights, in its layout, at a tenth of its size."""

from __future__ import annotations

from pathlib import Path

from benchmarks.voxtral.voice import CONFIG, random_files
from voxtui.models.installed import KokoroFiles

SMALL = {
    "n_layer": 1,
    "istftnet": CONFIG["istftnet"]
    | {"resblock_dilation_sizes": [[1, 3, 5]], "resblock_kernel_sizes": [3]},
    "plbert": CONFIG["plbert"]
    | {
        "hidden_size": 48,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
    },
}


def make(directory: Path) -> KokoroFiles:
    """Write the three files to `directory`. Widths that the code fixes are the real ones."""
    return random_files(directory, CONFIG | SMALL)
