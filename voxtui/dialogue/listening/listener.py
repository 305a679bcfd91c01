"""Find utterances in a stream of frames. Starts no thread and emits no event."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from voxtui.dialogue.data import FRAME_SAMPLES, FRAME_SECONDS, MICROPHONE, Frame, Utterance
from voxtui.dialogue.listening.endpointing import Endpointer, SpeechGate, end_after_release
from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.protocols import NameDetector, SpeechDetector
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.settings.schema import Config

NAME_SECONDS = 1.2
"""Length of the recording before the end of a name that a detector heard; the name is in it."""

PREROLL_SECONDS = 0.35
"""Length of the pre-roll, the sound from before the key press: the first phoneme begins earlier."""

ECHO_SECONDS = 0.1
"""Reverberation of a room after our own speech."""

CUT_OFF_ECHO_SECONDS = 0.05
"""Reverberation after an answer was cut off: shorter, because the user may speak at once."""

RELEASED_SOURCE_SECONDS = 0.5
"""Maximum wait for the source's next frame after the release."""

STOPPED_SOURCE_SECONDS = 3.0
"""Maximum wait for the next frame, before the release, of a source other than the microphone."""

ENDING_SECONDS = 10.0
"""Time before the end of the recording (`audio.max_utterance_s`) at which the user is warned."""

TAP_SECONDS = 0.25
"""Maximum length of a key press that counts as a slip, or as a tap that stops the answer."""

JUDGED_SECONDS = 1.0
"""Minimum length of a recording without speech that shows the microphone to be too quiet."""


@dataclass(frozen=True, slots=True)
class Started:
    """Hands-free: there was enough speech to begin a turn."""

    at: float
    """the capture time of the frame that completed that speech"""
    called: bool = False
    """whether the frame completed the name"""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The frame was added to the recording in progress."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The recording is complete and holds an utterance."""

    utterance: Utterance
    released_at: float
    too_long: bool
    overflows: int
    """the number of gaps, where sound was lost because the device was not read in time"""
    spoken: str = ""
    """our own speech of which the utterance may be an echo; empty: none"""


@dataclass(frozen=True, slots=True)
class TooQuiet:
    """The recording is complete and holds too little speech (`vad.min_speech_ms`)."""

    released_at: float
    too_long: bool
    overflows: int
    tap: bool
    """whether the key was pressed so briefly that no speech was intended"""
    peak: float | None
    """the microphone's loudest sample, 0 to 1; None for another source or too short a recording"""


Finding: TypeAlias = Started | Recorded | Finished | TooQuiet | None
"""The result of a frame or a release."""

_RECORDED = Recorded()


class Listener:
    """Records one utterance at a time, and stores the microphone's latest frames as pre-roll.

    It returns its findings and starts nothing itself. Used by one thread.
    """

    def __init__(
        self,
        detector: SpeechDetector,
        config: LiveConfig,
        name_detector: NameDetector | None = None,
    ) -> None:
        self._detector = detector
        self.name_detector = name_detector
        self._live_config = config
        self._vad = config.current.vad
        self._gate = SpeechGate(self._vad.threshold)
        self._endpointer = Endpointer(self._vad)
        # Hands-free, a turn begins only after `start_ms` of speech.
        seconds = 1 + self._vad.start_ms / 1000
        self._recent: deque[Frame] = deque(maxlen=int(seconds / FRAME_SECONDS))
        self._live: _LiveRecording | None = None
        self._echo = (0.0, 0.0)
        """the start and end of our own speech (monotonic seconds)"""
        self._spoken = ("", 0.0)
        """our latest words, and the monotonic time of their end"""

    @property
    def recording(self) -> Recording | None:
        return self._live.recording if self._live else None

    @property
    def source(self) -> str | None:
        return self._live.source if self._live else None

    @property
    def attentive(self) -> bool:
        """True while a frame of the microphone may begin, continue or end a recording."""
        return self._live is not None or self._config.vad.hands_free

    @property
    def patience_s(self) -> float | None:
        """Seconds after which the source counts as stopped; None if there is no limit."""
        return self._live.patience_s if self._live else None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until `audio.max_utterance_s` ends the recording, if there is one. Any thread."""
        live = self._live
        if live is None or live.released_at is not None:
            return None
        return max(0.0, self._config.audio.max_utterance_s - live.recording.extent.seconds)

    def begin(
        self, source: str, at: float, hands_free: bool = False, called: bool = False
    ) -> list[Frame]:
        """Begin a recording at `at`. Return the pre-roll, which the caller must push again."""
        preroll = PREROLL_SECONDS + (self._config.vad.start_ms / 1000 if hands_free else 0.0)
        if called:
            preroll = NAME_SECONDS
        since = at - preroll
        counted = [*self._recent][-round(preroll / FRAME_SECONDS) :]
        if hands_free and counted and counted[0].echo_free:  # a client's sound, which may come late
            since = min(since, counted[0].captured_at - FRAME_SECONDS)
        self._live = _LiveRecording(source, at, since, hands_free)
        self._detector.reset()
        self._gate.reset()
        recent = [frame for frame in self._recent if frame.captured_at > since]
        self._recent.clear()
        return recent

    def push(self, frame: Frame) -> Finding:
        self._follow_config()
        live = self._live
        if live is not None and frame.source == live.source:
            early = frame.captured_at <= live.heard_from and frame.source == MICROPHONE
            if early or self._is_echo(frame, CUT_OFF_ECHO_SECONDS):
                return None
            return self._record(live, frame)
        if frame.source == MICROPHONE and not self._is_echo(frame, ECHO_SECONDS):
            self._recent.append(frame)
            if live is None and self._config.vad.hands_free:
                if self.name_detector and self.name_detector.heard(frame):
                    return Started(frame.captured_at, called=True)
                if self._starts(frame):
                    return Started(frame.captured_at)
        if live is not None and live.source_stopped():
            return self.finish()
        return None

    def release(self, at: float, complete: bool = False) -> Finding:
        """End the recording at `at`, unless it began later.

        Earlier frames may still follow and later ones may have been pushed, unless it is
        `complete`.
        """
        live = self._live
        if live is None or live.released_at is not None or at < live.began_at:
            return None
        if complete:
            live.released_at, live.complete = at, True
            return self.finish()
        return self._release(live, at)

    def finish(self) -> Finding:
        live, self._live = self._live, None
        if live is None:
            return None
        recording, frames = live.recording, live.recording.frames
        overflows = sum(frame.overflow for frame in frames)
        released_at = time.monotonic() if live.released_at is None else live.released_at
        utterance = recording.utterance()
        enough = recording.extent.speech_seconds >= self._config.vad.min_speech_ms / 1000
        if utterance is not None and enough:
            spoken = self._spoken_over(utterance) if live.source == MICROPHONE else ""
            return Finished(utterance, released_at, live.too_long, overflows, spoken)
        if not live.complete:
            self._give_back(live, frames)
        seconds = released_at - live.began_at
        by_microphone = live.source == MICROPHONE
        tap = by_microphone and seconds < TAP_SECONDS
        peak = _peak(frames) if by_microphone and seconds >= JUDGED_SECONDS else None
        return TooQuiet(released_at, live.too_long, overflows, tap, peak)

    def abandon(self) -> None:
        self._live = None

    def may_interrupt(self, frame: Frame) -> bool:
        """Return True if speech in `frame` ends an answer. Any thread."""
        vad = self._config.vad
        enabled = vad.hands_free and (frame.echo_free or vad.listen_while_speaking)
        return enabled and frame.source == MICROPHONE

    def skip(self) -> None:
        self._endpointer.skip()

    def note_speech(self, timestamps: Timestamps, words: str = "") -> None:
        """Drop the frames in which our `words`, or another sound of ours, were audible."""
        first = timestamps.at(Milestone.FIRST_SOUND)
        if first is None:
            return
        last = timestamps.at(Milestone.LAST_SOUND)
        ended_at = time.monotonic() if last is None else last
        self._echo = (first, ended_at)
        if words:
            self._spoken = (words, ended_at)

    @property
    def _config(self) -> Config:
        return self._live_config.current

    def _follow_config(self) -> None:
        vad = self._config.vad
        if vad != self._vad:
            self._gate, self._endpointer = SpeechGate(vad.threshold), Endpointer(vad)
        self._vad = vad

    def _starts(self, frame: Frame) -> bool:
        return self._endpointer.starts(self._gate.verdict(self._detector.probability(frame)))

    def _record(self, live: _LiveRecording, frame: Frame) -> Finding:
        live.recording.append(frame, self._gate.verdict(self._detector.probability(frame)))
        live.waited_s = 0.0
        if live.released_at is not None:
            over = end_after_release(live.recording, live.released_at) is not None
            return self.finish() if over else _RECORDED
        if live.recording.extent.seconds >= self._config.audio.max_utterance_s:
            live.too_long = True
            return self._release(live, frame.captured_at) or _RECORDED
        if live.hands_free and self._endpointer.ends(live.recording):
            live.released_at = frame.captured_at
            return self.finish()
        return _RECORDED

    def _release(self, live: _LiveRecording, at: float) -> Finding:
        live.released_at, live.waited_s = at, 0.0
        if (end := end_after_release(live.recording, at)) is None:
            return None
        self._give_back(live, live.recording.cut(end))
        return self.finish()

    def _give_back(self, live: _LiveRecording, frames: Iterable[Frame]) -> None:
        if live.source == MICROPHONE:
            self._recent = deque([*frames, *self._recent], self._recent.maxlen)

    def _spoken_over(self, utterance: Utterance) -> str:
        """Return our speech of which this utterance may be an echo; empty: none."""
        words, ended_at = self._spoken
        if not self._config.vad.listen_while_speaking or not utterance.speech:
            return ""
        began_at = utterance.ended_at - (utterance.speech[-1][1] - utterance.speech[0][0])
        return words if began_at < ended_at else ""

    def _is_echo(self, frame: Frame, seconds: float) -> bool:
        if frame.source != MICROPHONE or frame.echo_free:
            return False
        if self._config.vad.listen_while_speaking:
            return False
        first, last = self._echo
        return first < frame.captured_at and frame.captured_at - FRAME_SECONDS < last + seconds


@dataclass(slots=True, eq=False)
class _LiveRecording:
    source: str
    began_at: float
    heard_from: float
    """the monotonic time at which the pre-roll begins"""
    hands_free: bool
    recording: Recording = field(default_factory=Recording)
    released_at: float | None = None
    complete: bool = False
    """whether the release came with exactly the frames of the utterance"""
    too_long: bool = False
    waited_s: float = 0.0
    """seconds of other sources' frames since its latest frame, or since the release"""

    @property
    def patience_s(self) -> float | None:
        if self.released_at is not None:
            return RELEASED_SOURCE_SECONDS
        return None if self.source == MICROPHONE else STOPPED_SOURCE_SECONDS

    def source_stopped(self) -> bool:
        """Count a frame of another source; return True if its own source has been silent too long.

        It counts frames, because the clock goes on during a suspend (Ctrl+Z).
        """
        self.waited_s += FRAME_SECONDS
        patience = self.patience_s
        return patience is not None and self.waited_s > patience


def warm_up(detectors: Iterable[SpeechDetector], name_detector: NameDetector | None = None) -> None:
    """Load the detectors by a frame of silence. Raises ModelError."""
    import numpy as np

    silence = Frame(np.zeros(FRAME_SAMPLES, np.float32), 0.0)
    for detector in detectors:
        detector.probability(silence)
    if name_detector:
        name_detector.heard(silence)


def _peak(frames: list[Frame]) -> float | None:
    return max((float(abs(frame.samples).max()) for frame in frames), default=None)
