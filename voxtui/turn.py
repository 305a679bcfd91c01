"""The data that flows through a turn, in flow order; its marks; the events that report it.

Every time is `time.monotonic()` seconds. Samples are mono float32 in [-1, 1].
"""

from __future__ import annotations

import io
import threading
import time
import wave
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    Samples: TypeAlias = NDArray[np.float32]
    Indices: TypeAlias = NDArray[np.intp]

    from voxtui.errors import VoxtuiError

SAMPLE_RATE = 16_000
"""Hz. What every detector and brain is given."""

FRAME_SAMPLES = 512
"""Samples in a frame: 32 ms, the window Silero VAD is trained on."""

FRAME_SECONDS = FRAME_SAMPLES / SAMPLE_RATE

AUDIBLE = 10 ** (-50 / 20)
"""-50 dBFS: what is quieter is not heard, so it is neither a first nor a last sound."""

MICROPHONE = "microphone"

TYPED = "typed"

REPLAY = "replay"
"""The source of a turn that answers the last utterance once more."""

OWN_SOURCES = (MICROPHONE, TYPED, REPLAY)
"""Sources that are not the name of a clip."""


def audible(samples: Samples) -> Indices:
    """The indices of the samples that can be heard: shape (k,), ascending, none for silence."""
    import numpy as np

    return np.flatnonzero(np.abs(samples) > AUDIBLE)


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """32 ms of sound as it was captured."""

    samples: Samples
    """shape (512,), float32, 16 kHz"""
    captured_at: float
    """monotonic seconds at which its last sample was captured"""
    source: str = MICROPHONE
    """`microphone`, or the name of the clip that is being spoken instead"""


@dataclass(frozen=True, slots=True, eq=False)
class Utterance:
    """What was said: from the first to the last speech frame, plus fixed padding."""

    samples: Samples
    """shape (n,), float32, 16 kHz; the padding at the end is digital zeros"""
    speech: tuple[tuple[float, float], ...]
    """(start, end) seconds of each stretch of speech within `samples`"""
    ended_at: float
    """capture time of the last frame that held speech"""

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE

    def as_wav(self) -> bytes:
        """16-bit PCM, mono, 16 kHz."""
        import numpy as np

        file = io.BytesIO()
        with wave.open(file, "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(SAMPLE_RATE)
            out.writeframes((np.clip(self.samples, -1, 1) * 32767).round().astype("<i2").tobytes())
        return file.getvalue()


@dataclass(frozen=True, slots=True)
class Token:
    """One step of a brain, with the text it made visible (which may be empty)."""

    text: str
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """The user's words, from a brain that knows them before it answers."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class SpeechChunk:
    """A piece of spoken reply, and the text it says."""

    samples: Samples
    """shape (n,), float32, mono"""
    rate: int
    """Hz"""
    text: str
    """the clause this chunk says; for a clause in several chunks, on its first chunk only"""

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


class Mark(StrEnum):
    """A moment of a turn, written where it happens. In the order of a usual turn."""

    SPEECH_ENDED = "speech_ended"
    RELEASED = "released"
    CAPTURED = "captured"
    SENT = "sent"
    TRANSCRIBED = "transcribed"
    ENCODED = "encoded"
    PREFILLED = "prefilled"
    FIRST_TOKEN = "first_token"
    FIRST_SHOWN = "first_shown"
    FIRST_SENTENCE = "first_sentence"
    FIRST_AUDIO = "first_audio"
    FIRST_SOUND = "first_sound"
    LAST_TOKEN = "last_token"
    LAST_SOUND = "last_sound"
    CANCELLED = "cancelled"


class Marks:
    """When each mark of one turn was reached. Any thread may write; the first write wins."""

    def __init__(self) -> None:
        self._times: dict[Mark, float] = {}
        self._lock = threading.Lock()
        self.hidden_s = 0.0
        """seconds of work on this turn that were done before `released` and kept"""
        self.speech_s = 0.0
        """seconds of speech the voice has made so far"""
        self.gpu_bytes: int | None = None
        """GPU memory the brain holds, where it knows"""
        self.network_s: float | None = None
        """seconds to the first token that were the network's, where the brain uses one"""

    def mark(self, name: Mark, at: float | None = None) -> None:
        """`name` was reached at `at` (monotonic seconds), or just now; unless it was before."""
        at = time.monotonic() if at is None else float(at)  # it may come out of an array
        with self._lock:
            self._times.setdefault(name, at)

    def at(self, name: Mark) -> float | None:
        """Monotonic seconds, or None for a mark that was not reached."""
        return self._times.get(name)

    def since_release(self) -> dict[str, float]:
        """Mark name -> seconds since `released` (negative before it), unreached ones absent."""
        with self._lock:
            times = dict(self._times)
        released = times.get(Mark.RELEASED)
        if released is None:
            return {}
        return {m.value: times[m] - released for m in Mark if m in times}


class Outcome(StrEnum):
    ANSWERED = "answered"
    NO_SPEECH = "no_speech"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Turn:
    """A finished turn. Durations are derived from the marks, never stored."""

    number: int
    brain: str
    outcome: Outcome
    marks: Mapping[str, float]
    """seconds relative to `released`"""
    clip: str | None = None
    """the name of the clip that was heard in place of the microphone"""
    heard: str | None = None
    """the user's words, where the brain knows them"""
    reply: str = ""
    tokens: int = 0
    """of the reply"""
    hidden_s: float = 0.0
    gpu_bytes: int | None = None
    network_s: float | None = None
    """these three as in Marks"""
    paced: bool = True
    """False: a clip that was not played in real time, so its times compare with no other's"""
    error: str | None = None

    def ms(self, mark: Mark, since: Mark = Mark.RELEASED) -> float | None:
        """Milliseconds from `since` to `mark`, or None where either was not reached."""
        if mark.value not in self.marks or since.value not in self.marks:
            return None
        return (self.marks[mark.value] - self.marks[since.value]) * 1000

    @property
    def ttft_ms(self) -> float | None:
        return self.ms(Mark.FIRST_TOKEN)

    @property
    def first_sound_ms(self) -> float | None:
        return self.ms(Mark.FIRST_SOUND)

    @property
    def total_ms(self) -> float | None:
        return self.ms(Mark.LAST_TOKEN)

    @property
    def network_ms(self) -> float | None:
        """How much of TTFT was the network, at least."""
        return None if self.network_s is None else self.network_s * 1000

    @property
    def tokens_per_s(self) -> float | None:
        """Between first and last token."""
        span = self.ms(Mark.LAST_TOKEN, since=Mark.FIRST_TOKEN)
        return (self.tokens - 1) / (span / 1000) if span and self.tokens > 1 else None

    def as_json(self) -> dict[str, Any]:
        """The one shape in which a turn is written anywhere. Names are stable."""

        def rounded(value: float | None) -> float | None:
            return None if value is None else round(value, 1)

        return {
            "clip": self.clip,
            "brain": self.brain,
            "heard": self.heard,
            "reply": self.reply,
            "tokens": self.tokens,
            "marks": {name: round(at, 4) for name, at in self.marks.items()},
            "ttft_ms": rounded(self.ttft_ms),
            "first_sound_ms": rounded(self.first_sound_ms),
            "total_ms": rounded(self.total_ms),
            "hidden_ms": round(self.hidden_s * 1000, 1),
            "network_ms": rounded(self.network_ms),
            "paced": self.paced,
            "outcome": self.outcome.value,
            "error": self.error,
        }


class State(StrEnum):
    """What the engine is doing. The engine alone changes it."""

    LOADING = "loading"
    READY = "ready"
    LISTENING = "listening"
    THINKING = "thinking"
    SPEAKING = "speaking"


@dataclass(frozen=True, slots=True)
class StateChanged:
    state: State


@dataclass(frozen=True, slots=True)
class Loading:
    """A step of start-up; `fraction` 0..1 where it is known."""

    step: str
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything is in place, after start-up or after another part was chosen."""

    brain: str
    """the brain in words, e.g. `embedded (small local model, English)`"""
    voice: str
    microphone: str | None
    """its device name, or None: no microphone, clips and text only"""
    speaker: str | None
    sends_to: str = ""
    """where the user's voice and words go; empty: they stay on this machine"""
    changed: bool = False
    """the part that was asked for is among them"""


@dataclass(frozen=True, slots=True)
class MicrophoneOpened:
    """At start-up, before the models are loaded: its level can be seen from now on."""

    name: str


@dataclass(frozen=True, slots=True)
class MicrophoneLost:
    """There is no microphone (any more). What was captured is answered; clips and text go on."""


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The key went down, a clip began, or a text was sent."""

    turn: int
    source: str
    """`microphone`, `typed`, `replay`, or the clip's name"""
    marks: Marks = field(compare=False)


@dataclass(frozen=True, slots=True)
class Captured:
    """What was said is complete, and goes to the brain."""

    turn: int
    said: Utterance = field(compare=False)


@dataclass(frozen=True, slots=True)
class UserWords:
    """What the user said or typed in this turn."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class ReplyText:
    """The next piece of the reply, as the chunker lets it out."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class SpokenUpTo:
    """After a barge-in: the part of the reply that was heard, which is what history keeps."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence for the user that belongs to no reply."""

    message: str
    severity: Literal["information", "warning", "error"] = "warning"


@dataclass(frozen=True, slots=True)
class TurnFinished:
    turn: Turn


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """Start-up failed for a reason the user can do something about."""

    error: VoxtuiError


@dataclass(frozen=True, slots=True)
class ChangeFailed:
    """What was chosen cannot be used, for this reason: every part is as it was."""

    error: VoxtuiError


@dataclass(frozen=True, slots=True)
class Died:
    """A bug on the engine's or any other thread. The front end raises it."""

    error: BaseException


Event: TypeAlias = (
    StateChanged
    | Loading
    | Loaded
    | LoadFailed
    | ChangeFailed
    | MicrophoneOpened
    | MicrophoneLost
    | TurnStarted
    | Captured
    | UserWords
    | ReplyText
    | SpokenUpTo
    | Notice
    | TurnFinished
    | Died
)
