"""From frames and verdicts to the trimmed utterance; when one begins, ends, or interrupts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxtui.dialogue.data import FRAME_SECONDS, Frame

if TYPE_CHECKING:
    from voxtui.dialogue.interfaces import SpeechDetector
    from voxtui.dialogue.recording import Recording
    from voxtui.settings.schema import VadConfig

HYSTERESIS = 0.15
"""Speech goes on until the probability is this far below the threshold (Silero's own rule)."""


class SpeechGate:
    """Turns probabilities into verdicts, with hysteresis so that a verdict does not flutter."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._speech = False

    def reset(self) -> None:
        self._speech = False

    def verdict(self, probability: float) -> bool:
        """Whether the next frame, of this probability (0..1), is speech."""
        floor = self._threshold - HYSTERESIS if self._speech else self._threshold
        self._speech = probability >= max(floor, 0.01)
        return self._speech


class Endpointer:
    """Hands-free turn taking: enough voice starts a turn, enough silence ends it."""

    def __init__(self, vad: VadConfig) -> None:
        self._start = vad.start_ms / 1000
        self._end = vad.end_ms / 1000
        self._voiced = 0.0
        self._unwanted = False
        self._quiet = 0.0

    def skip(self) -> None:
        """Whoever is speaking now does not mean us: what ends a turn has to come first."""
        self._unwanted, self._quiet = True, 0.0

    def starts(self, speech: bool) -> bool:
        """Whether this frame's verdict completes the voice that starts a turn."""
        if self._unwanted:
            self._quiet = 0.0 if speech else self._quiet + FRAME_SECONDS
            self._unwanted = self._quiet < self._end
            return False
        self._voiced = self._voiced + FRAME_SECONDS if speech else 0.0
        if self._voiced < self._start:
            return False
        self._voiced = 0.0
        return True

    def ends(self, recording: Recording) -> bool:
        """Whether enough silence follows its speech."""
        extent = recording.extent
        return extent.speech_frames > 0 and extent.quiet_frames * FRAME_SECONDS >= self._end


class VoiceBargeIn:
    """Barge-in by voice, with headphones: notices speech over our own answer. Not thread-safe."""

    def __init__(self, detector: SpeechDetector, vad: VadConfig) -> None:
        self.detector = detector
        self._vad = vad
        self._gate, self._endpointer = SpeechGate(vad.threshold), Endpointer(vad)
        self._turn: int | None = None

    def interrupts(self, frame: Frame, turn: int) -> bool:
        """Whether the next frame captured during this turn's answer completes an interruption."""
        if turn != self._turn:
            self._turn = turn
            self.detector.reset()
            self._gate, self._endpointer = SpeechGate(self._vad.threshold), Endpointer(self._vad)
        return self._endpointer.starts(self._gate.verdict(self.detector.probability(frame)))
