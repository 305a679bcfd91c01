"""The engine's state, and the events that it reports.

Most events are msgspec structs, for the same reason as the commands. An event that leaves a field
out of comparisons is a dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from voxtui.dialogue.data import ToolCall, Utterance
from voxtui.dialogue.timestamps import Timestamps, Turn
from voxtui.dialogue.tool_interface import CallReport
from voxtui.errors import VoxtuiError


class State(StrEnum):
    """The activity of the engine. Only the engine changes it."""

    LOADING = "loading"
    READY = "ready"
    LISTENING = "listening"
    THINKING = "thinking"
    SPEAKING = "speaking"


class EngineEvent(msgspec.Struct, frozen=True):
    """What an engine reports to its front end."""


class StateChanged(EngineEvent, frozen=True):
    state: State


class Loading(EngineEvent, frozen=True):
    """A step of loading; `fraction` is 0 to 1, or None if it is unknown."""

    step: str
    fraction: float | None = None


class Loaded(EngineEvent, frozen=True):
    """The components in use, after start-up or after a change."""

    brain: str
    """the brain's description, such as `embedded: qwen3-1.7b (Qwen3 1.7B, English)`"""
    voice: str
    microphone: str | None
    """the microphone's device name, or None for clips and text only"""
    speaker: str | None
    sends_to: str = ""
    """the host that receives the user's voice and words; empty: they stay here"""
    brain_name: str = ""
    changed: bool = False


class MicrophoneOpened(EngineEvent, frozen=True):
    """The microphone delivers sound. At start-up this is emitted before the models are loaded."""

    name: str


class MicrophoneLost(EngineEvent, frozen=True):
    """No microphone is in use. Clips and text still work."""


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn began: by the key, by detected speech, by a clip, by a text or by a replay."""

    turn: int
    source: str
    """`microphone`, `typed`, `replay`, or the clip's name"""
    timestamps: Timestamps = field(compare=False)
    replaces: int | None = None
    """the turn whose place this one takes in the history"""
    at: float = field(default=0.0, compare=False)
    """the key's press, or the capture time of the frame that completed speech; 0 for a text"""


class Caption(EngineEvent, frozen=True):
    """The words so far of an utterance in progress. The next caption replaces it.

    Ignore a caption that arrives after the turn's UserWords, or after the turn.
    """

    turn: int
    text: str
    settled: int
    """the number of first characters on which the last two recogniser passes agree"""


@dataclass(frozen=True, slots=True)
class Captured:
    """The utterance is complete and goes to the brain."""

    turn: int
    utterance: Utterance = field(compare=False)


class UserWords(EngineEvent, frozen=True):
    turn: int
    text: str
    doubtful: tuple[int, ...] = ()
    """the numbers, from 0, of the words of `text` that the recogniser doubts"""


class NoWords(EngineEvent, frozen=True):
    """The utterance of this turn was committed, but no words were recognised in it."""

    turn: int
    reason: str


class ReplyText(EngineEvent, frozen=True):
    turn: int
    text: str


class PrefillProgress(EngineEvent, frozen=True):
    done: int
    total: int
    seconds_left: float | None
    """seconds until the end of the prefill; None while unknown"""

    @property
    def ended(self) -> bool:
        return self.done >= self.total


class SpokenUpTo(EngineEvent, frozen=True):
    """The heard part of a reply that was cut off. The history stores only that part."""

    turn: int
    text: str


class Notice(EngineEvent, frozen=True):
    message: str
    severity: Literal["information", "warning", "error"] = "warning"


class Remark(EngineEvent, frozen=True):
    """A sentence about the last answer, shown beside it."""

    sentence: str


class Countdown(EngineEvent, frozen=True):
    name: str
    ends: float | None
    """the Unix time of its end; None while paused"""
    left: float = 0.0
    """the seconds left while it is paused"""
    clock: bool = False
    """whether it shows the time of day instead of the time left"""
    rings: bool = False
    missed: bool = False
    """whether it rang and nobody stopped it"""


class KeyNeeded(EngineEvent, frozen=True):
    """A call needs to be confirmed by a key: answer by `Confirm`. It is refused after a while."""

    turn: int
    call: ToolCall


class ToolCalled(EngineEvent, frozen=True):
    """A call begins to run. If the client runs it, the turn ends with this event."""

    turn: int
    call: ToolCall


class ToolEnded(EngineEvent, frozen=True):
    """A call has ended, or was refused."""

    turn: int
    report: CallReport


class CountdownsChanged(EngineEvent, frozen=True):
    """The timers and reminders that are set, the next one first."""

    countdowns: tuple[Countdown, ...]


class RingsIn(EngineEvent, frozen=True):
    """A chime is due in `seconds`; None: it was cancelled or stopped."""

    seconds: float | None


class Rang(EngineEvent, frozen=True):
    """A timer or reminder is due."""

    sentence: str


class Reminded(EngineEvent, frozen=True):
    """The chime has sounded; `sentence` is spoken once neither side speaks."""

    sentence: str


class Synced(EngineEvent, frozen=True):
    """Everything that was posted and pushed before a Sync has been handled and reported."""


class TurnFinished(EngineEvent, frozen=True):
    turn: Turn


class LoadFailed(EngineEvent, frozen=True):
    """Start-up failed for a reason that the user can fix."""

    error: VoxtuiError


class ChangeFailed(EngineEvent, frozen=True):
    """A requested change failed. Every component is as before."""

    error: VoxtuiError


class Died(EngineEvent, frozen=True):
    """An exception that nobody handled, on one of our threads. The front end raises it."""

    error: BaseException


Event: TypeAlias = EngineEvent | TurnStarted | Captured
