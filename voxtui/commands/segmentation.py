"""Cut sound into utterances at pauses, while it arrives."""

from __future__ import annotations

from collections.abc import Iterator

from voxtui.dialogue.data import FRAME_SECONDS, Frame, Utterance
from voxtui.dialogue.listening.endpointing import SpeechGate
from voxtui.dialogue.protocols import SpeechDetector
from voxtui.dialogue.recording import LEAD_FRAMES, Recording
from voxtui.settings.schema import VadConfig

PAUSE_SECONDS = 0.5
"""Silence that ends a segment."""

LONGEST_SECONDS = 25.0
"""Maximum length of a segment, because Moonshine was trained on less than 30 s."""


class Segmenter:
    """Collects frames, and returns an utterance as soon as the pause after it is long enough.

    A pause ends a segment of at least `least_seconds`. Used by one thread.
    """

    def __init__(
        self, vad: VadConfig, detector: SpeechDetector, least_seconds: float = 0.0
    ) -> None:
        self._min_speech = vad.min_speech_ms / 1000
        self._detector = detector
        self._least = least_seconds
        self._gate, self.recording = SpeechGate(vad.threshold), Recording()
        detector.reset()

    @property
    def has_speech(self) -> bool:
        return self.recording.extent.speech_seconds >= self._min_speech

    def push(self, frame: Frame) -> Utterance | None:
        """Take the next frame; return an utterance that it ends. Raises the detector's error."""
        self.recording.append(frame, self._gate.verdict(self._detector.probability(frame)))
        recording = self.recording
        if not recording.extent.speech_seconds:
            self.recording = _part(recording, -LEAD_FRAMES, None)
            return None
        paused = recording.extent.quiet_frames * FRAME_SECONDS >= PAUSE_SECONDS
        if paused and recording.extent.seconds >= self._least:
            return self.finish()
        if recording.extent.seconds >= LONGEST_SECONDS:
            cut = _best_cut(recording)
            self.recording = _part(recording, cut, None)
            return self.speech(_part(recording, 0, cut))
        return None

    def finish(self) -> Utterance | None:
        over, self.recording = self.recording, Recording()
        return self.speech(over)

    def speech(self, recording: Recording) -> Utterance | None:
        enough = recording.extent.speech_seconds >= self._min_speech
        return recording.utterance() if enough else None


def utterances(frames: Iterator[Frame], segmenter: Segmenter) -> Iterator[Utterance]:
    for frame in frames:
        if utterance := segmenter.push(frame):
            yield utterance
    if utterance := segmenter.finish():
        yield utterance


def _part(recording: Recording, start: int, end: int | None) -> Recording:
    part = Recording()
    span = slice(start, end)
    for frame, speech in zip(recording.frames[span], recording.verdicts[span], strict=True):
        part.append(frame, speech)
    return part


def _best_cut(recording: Recording) -> int:
    """Return the middle of the longest pause in the second half, or the end without a pause."""
    verdicts = recording.verdicts
    best = (0, len(verdicts))
    length = 0
    for index in range(len(verdicts) // 2, len(verdicts)):
        length = 0 if verdicts[index] else length + 1
        best = max(best, (length, index + 1 - length // 2), key=lambda pause: pause[0])
    return best[1]
