"""Kokoro's weights in 8 bits by onnxruntime, on the CPU, without torch.

It takes 0.2 to 0.7 s per second of sound, so it speaks only the languages that the embedded voice
lacks.
"""

from __future__ import annotations

import json
import os
from importlib import resources
from pathlib import Path
from typing import Any

from voxtui.dialogue.data import Samples
from voxtui.errors import ModelError, first_line
from voxtui.onnx_runtime import import_onnxruntime

REFETCH = "Fetch it again: `voxtui models fetch kokoro-small`."

STYLE_SIZE = 256


class OnnxKokoro:
    """Kokoro's weights. See TorchKokoro for what `sound` raises."""

    processor = "CPU"

    def __init__(self, path: Path) -> None:
        onnxruntime = import_onnxruntime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = min(4, os.cpu_count() or 1)
        # Threads that poll for each other keep the chat model from a core.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 4
        try:
            self._session: Any = onnxruntime.InferenceSession(str(path), options)
            self._names = [value.name for value in self._session.get_inputs()]
        except Exception as error:  # those of onnxruntime share no base class
            raise ModelError(f"{path} cannot be loaded: {first_line(error)}.", REFETCH) from error
        signs = resources.files("hibari").joinpath("assets", "vocab.json")  # the same as Kokoro's
        self._ids: dict[str, int] = json.loads(signs.read_bytes())

    def style(self, path: Path) -> Any:
        import numpy as np

        try:
            return np.fromfile(path, "<f4").reshape(-1, 1, STYLE_SIZE)
        except (OSError, ValueError) as error:
            raise ModelError(f"{path} is not a voice of Kokoro.", REFETCH) from error

    def sound(self, phonemes: str, styles: Any, speed: float) -> Samples:
        import numpy as np

        known = [self._ids[p] for p in phonemes if p in self._ids]
        if not known:
            return np.zeros(0, np.float32)
        style = styles[min(len(phonemes), len(styles)) - 1]
        inputs = (np.array([[0, *known, 0]]), style, np.array([speed], np.float32))
        try:
            samples, *_ = self._session.run(None, dict(zip(self._names, inputs, strict=True)))
        except Exception as error:  # as above
            raise RuntimeError(first_line(error)) from error
        return samples.reshape(-1).astype(np.float32)
