"""The data that flows through a turn, in flow order.

Every time is `time.monotonic()` seconds. Samples are mono float32 in [-1, 1]."""

from __future__ import annotations

import io
import wave
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Samples: TypeAlias = "NDArray[np.float32]"
Indices: TypeAlias = "NDArray[np.intp]"

SAMPLE_RATE = 16_000
"""Sample rate in Hz of the input of every detector and brain."""

FRAME_SAMPLES = 512
"""Samples in a frame: 32 ms, the window Silero VAD is trained on."""

FRAME_SECONDS = FRAME_SAMPLES / SAMPLE_RATE

AUDIBLE = 10 ** (-50 / 20)
"""Amplitude of -50 dBFS. A quieter sample is inaudible: neither a first nor a last sound. Speech
into the right microphone is louder."""

CHARACTERS_PER_TOKEN = 32
"""Maximum characters of a text per allowed token. A token of text has about 4, so only a server
that ignores `max_tokens` reaches this. Without it one huge piece would block the screen."""

MICROPHONE = "microphone"

TYPED = "typed"

REPLAY = "replay"
"""The source of a turn that answers the last utterance once more."""

SKILL = "skill"
"""The brain of a turn that a skill, or a rule about voxtui itself, answered."""

OWN_SOURCES = (MICROPHONE, TYPED, REPLAY)
"""Sources that are not the name of a clip."""


def audible(samples: Samples) -> Indices:
    """Return the indices of the audible samples: shape (k,), ascending, empty for silence."""
    import numpy as np

    return np.flatnonzero(np.abs(samples) > AUDIBLE)


def as_pcm(samples: Samples) -> bytes:
    """Return 16-bit mono PCM."""
    import numpy as np

    return (np.clip(samples, -1, 1) * 32767).round().astype("<i2").tobytes()


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """32 ms of captured sound."""

    samples: Samples
    """shape (512,), float32, 16 kHz"""
    captured_at: float
    """monotonic seconds at which its last sample was captured"""
    source: str = MICROPHONE
    """`microphone`, or the name of the clip that replaces it"""
    overflow: bool = False
    """whether sound was lost just before this frame, because the device was not read in time"""
    echo_free: bool = False
    """whether our own speech was removed from it"""


@dataclass(frozen=True, slots=True)
class Origin:
    """The frames that an utterance was made of. Equal origins mean equal samples."""

    recording: int
    """number of the recording, unique in this process"""
    start: int
    end: int
    """index after its last frame"""


@dataclass(frozen=True, slots=True, eq=False)
class Utterance:
    """The user's speech, from the first to the last speech frame, plus fixed padding."""

    samples: Samples
    """shape (n,), float32, 16 kHz; the padding at the end is digital zeros"""
    speech: tuple[tuple[float, float], ...]
    """(start, end) seconds of each stretch of speech within `samples`"""
    ended_at: float
    """capture time of the last frame that held speech"""
    origin: Origin | None = None
    """the place in a recording; None for other sound, such as a file's"""

    def is_same(self, other: Utterance) -> bool:
        """Return True if both were made of the same frames. Compares no samples."""
        return self is other or (self.origin is not None and self.origin == other.origin)

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE

    def as_wav(self) -> bytes:
        file = io.BytesIO()
        with wave.open(file, "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(SAMPLE_RATE)
            out.writeframes(as_pcm(self.samples))
        return file.getvalue()


@dataclass(frozen=True, slots=True)
class Token:
    """One step of a brain, with the text that it completed. The text may be empty."""

    text: str
    id: int | None = None


@dataclass(frozen=True, slots=True)
class UserTranscript:
    """The user's words, from a brain that knows them before it answers."""

    text: str
    doubtful: tuple[int, ...] = ()
    """the numbers, from 0, of the words of `text` that the recogniser doubts"""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A brain's request, instead of words, to run a tool."""

    name: str
    arguments: str = "{}"
    """the arguments, a JSON object"""
    id: str = ""
    """the brain's own name for this call; may be empty"""


@dataclass(frozen=True, slots=True)
class FinishedCall:
    call: ToolCall
    result: str


@dataclass(frozen=True, slots=True, eq=False)
class SpeechChunk:
    samples: Samples
    rate: int
    text: str
    """the clause that is spoken; empty in all but the first of several chunks of a clause"""

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate
