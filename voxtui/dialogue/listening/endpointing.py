"""Decide from speech probabilities where an utterance begins and ends, or interrupts an answer."""

from __future__ import annotations

from voxtui.dialogue.data import AUDIBLE, FRAME_SECONDS, Frame
from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.protocols import SpeechDetector
from voxtui.dialogue.recording import Recording
from voxtui.settings.schema import VadConfig

HYSTERESIS = 0.15
"""Speech continues until the probability is this far below the threshold (Silero's own rule)."""

QUIET_FRAMES = 2
"""Frames in a row (64 ms) without speech after which the utterance is over."""

TAIL_SECONDS = 0.2
"""Maximum recording time after the release while speech continues."""


def end_after_release(recording: Recording, released_at: float) -> int | None:
    """Return the number of frames of the utterance, or None while more may follow.

    It ends at the capture time of the release (monotonic seconds). While the last 64 ms held
    speech, recording continues for at most 200 ms. A release that is reported late has further
    frames behind the end.
    """
    quiet = 0
    verdicts = recording.verdicts
    for count, (frame, speech) in enumerate(zip(recording.frames, verdicts, strict=False), 1):
        quiet = 0 if speech else quiet + 1
        past = frame.captured_at - released_at
        if past > -FRAME_SECONDS and (quiet >= QUIET_FRAMES or past >= TAIL_SECONDS):
            return count
    return None


class SpeechGate:
    """Turns probabilities into decisions, with hysteresis so that they do not flicker."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._speech = False

    def reset(self) -> None:
        self._speech = False

    def verdict(self, probability: float) -> bool:
        floor = self._threshold - HYSTERESIS if self._speech else self._threshold
        self._speech = probability >= max(floor, 0.01)
        return self._speech


class Endpointer:
    """Begins a turn after `vad.start_ms` of speech, ends it after `vad.end_ms` of silence."""

    def __init__(self, vad: VadConfig) -> None:
        # To the nearest frame: rounded up, a turn would begin 32 ms later.
        self._start = vad.start_ms / 1000 - FRAME_SECONDS / 2
        self._end = vad.end_ms / 1000
        self._voiced = 0.0
        self._skipping = False
        self._quiet = 0.0

    def skip(self) -> None:
        """Ignore the speech in progress: begin no turn before `end_ms` of silence."""
        self._skipping, self._quiet = True, 0.0

    def starts(self, speech: bool) -> bool:
        if self._skipping:
            self._quiet = 0.0 if speech else self._quiet + FRAME_SECONDS
            self._skipping = self._quiet < self._end
            return False
        self._voiced = self._voiced + FRAME_SECONDS if speech else 0.0
        if self._voiced < self._start:
            return False
        self._voiced = 0.0
        return True

    def ends(self, recording: Recording) -> bool:
        extent = recording.extent
        return extent.speech_frames > 0 and extent.quiet_frames * FRAME_SECONDS >= self._end


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
