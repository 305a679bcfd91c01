"""The engine's state, and the events it reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from voxtui.errors import VoxtuiError

from voxtui.dialogue.data import Utterance
from voxtui.dialogue.marks import Marks, Turn


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
    brain_name: str = ""
    """the brain's short name, such as `embedded`"""
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
