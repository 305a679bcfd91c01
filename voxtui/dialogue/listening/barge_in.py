from __future__ import annotations

from voxtui.dialogue.data import AUDIBLE, FRAME_SECONDS, Frame
from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.protocols import SpeechDetector


class VoiceBargeIn:
    """Detects `vad.interrupt_ms` of speech over our own answer. Not thread-safe.

    Each frame counts by its probability, so two frames of clear speech interrupt, or three to four
    of doubtful speech. Faint frames count as silence, because the detector finds speech in the
    remains of an echo.
    """

    def __init__(self, detector: SpeechDetector, config: LiveConfig) -> None:
        self._detector = detector
        self._config = config
        self._spoken_s = 0.0
        """seconds of speech up to the latest frame, weighted by probability"""
        self._turn: int | None = None

    def interrupts(self, frame: Frame, turn: int) -> bool:
        if turn != self._turn:
            self._turn, self._spoken_s = turn, 0.0
            self._detector.reset()
        vad = self._config.current.vad
        probability = self._detector.probability(frame)
        loud = float(frame.samples @ frame.samples) >= len(frame.samples) * AUDIBLE**2
        speech = probability >= vad.threshold and loud
        self._spoken_s = self._spoken_s + probability * FRAME_SECONDS if speech else 0.0
        if self._spoken_s * 1000 < vad.interrupt_ms:
            return False
        self._spoken_s = 0.0
        return True
