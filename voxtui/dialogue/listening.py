"""From frames and verdicts to the trimmed utterance; when one begins, ends, or interrupts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxtui.dialogue.data import FRAME_SECONDS, Frame, Utterance

if TYPE_CHECKING:
    from voxtui.dialogue.interfaces import SpeechDetector
    from voxtui.settings.schema import VadConfig

LEAD_FRAMES = 6
"""192 ms of real sound kept before the first speech frame: the detector is sure of a soft onset
only one or two frames after it began."""

TRAIL_SAMPLES = 3200
"""200 ms of digital zeros after the last speech frame. Recognisers drop or garble a last word that
ends at the very end of their input; zeros cost no waiting, unlike recorded silence."""

QUIET_FRAMES = 2
"""The utterance is over when so many frames (64 ms) in a row hold no speech."""

TAIL_SECONDS = 0.2
"""How long past the release speech that goes on is still listened to."""

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


class Recording:
    """The frames of one utterance, and for each whether it held speech."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.verdicts: list[bool] = []

    def append(self, frame: Frame, speech: bool) -> None:
        self.frames.append(frame)
        self.verdicts.append(speech)

    @property
    def seconds(self) -> float:
        return len(self.frames) * FRAME_SECONDS

    @property
    def speech_seconds(self) -> float:
        """Of `seconds`, those that held speech."""
        return sum(self.verdicts) * FRAME_SECONDS

    @property
    def quiet_frames(self) -> int:
        """How many frames at the end hold no speech."""
        for count, speech in enumerate(reversed(self.verdicts)):
            if speech:
                return count
        return len(self.verdicts)

    def over(self, released_at: float) -> bool:
        """Whether nothing that comes after the frames so far belongs to the utterance.

        It ends at the capture time of the release; while the last 64 ms held speech, listening
        goes on, for at most 200 ms.
        """
        return self._end(released_at) is not None

    def cut(self, released_at: float) -> list[Frame]:
        """Let go of the frames after its end, and return them: a release may be known late."""
        end = self._end(released_at)
        if end is None:
            return []
        after = self.frames[end:]
        del self.frames[end:], self.verdicts[end:]
        return after

    def _end(self, released_at: float) -> int | None:
        """How many frames it has; None while there may be more."""
        quiet = 0
        for count, (frame, speech) in enumerate(zip(self.frames, self.verdicts, strict=True), 1):
            quiet = 0 if speech else quiet + 1
            past = frame.captured_at - released_at
            if past > -FRAME_SECONDS and (quiet >= QUIET_FRAMES or past >= TAIL_SECONDS):
                return count
        return None

    def utterance(self) -> Utterance | None:
        """From the first to the last speech frame, padded; None without any speech."""
        import numpy as np

        spoken = [i for i, speech in enumerate(self.verdicts) if speech]
        if not spoken:
            return None
        begin, last = max(0, spoken[0] - LEAD_FRAMES), spoken[-1]
        sound = [frame.samples for frame in self.frames[begin : last + 1]]
        samples = np.concatenate([*sound, np.zeros(TRAIL_SAMPLES, np.float32)])
        samples.flags.writeable = False
        return Utterance(
            samples=samples,
            speech=tuple(_stretches(self.verdicts[begin : last + 1])),
            ended_at=self.frames[last].captured_at,
        )


def _stretches(speech: list[bool]) -> list[tuple[float, float]]:
    """(start, end) seconds of each run of speech frames."""
    found: list[tuple[float, float]] = []
    start: int | None = None
    for i, voiced in enumerate([*speech, False]):
        if voiced and start is None:
            start = i
        elif not voiced and start is not None:
            found.append((start * FRAME_SECONDS, i * FRAME_SECONDS))
            start = None
    return found


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
        quiet = recording.quiet_frames
        return quiet < len(recording.verdicts) and quiet * FRAME_SECONDS >= self._end


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
