"""The commands that travel through the engine's inbox, and the handle of a turn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from voxtui.dialogue.given import GivenText
from voxtui.dialogue.history import History
from voxtui.dialogue.interfaces import Brain, Manner, Microphone, Speaker, Voice
from voxtui.dialogue.loaders import Loaders
from voxtui.dialogue.marks import Mark, Marks
from voxtui.settings.schema import Config, VadConfig


@dataclass(slots=True)
class TurnHandle:
    """The part of a turn that several threads share: its number, its cancel flag and its marks."""

    number: int
    cancelled: threading.Event = field(default_factory=threading.Event)
    marks: Marks = field(default_factory=Marks)
    over: bool = False
    """the turn has finished; only its idle transcript may still run"""
    kept: bool = False
    """the utterance enters the history without an answer"""
    asked: bool = False
    """an answer to it was asked for"""

    def cancel(self) -> None:
        """Set the cancel flag, and write CANCELLED unless the turn is over. Any thread.

        Ignored for an utterance that is only kept: the next turn does not take it back.
        """
        if not self.cancelled.is_set() and (self.asked or not self.kept):
            if not self.over:
                self.marks.mark(Mark.CANCELLED)
            self.cancelled.set()


@dataclass(frozen=True, slots=True)
class Talk:
    """Listen to `source` from `at` on. `paced` False: faster than real time."""

    turn: TurnHandle
    at: float
    source: str
    paced: bool


@dataclass(frozen=True, slots=True)
class Release:
    """End the recording of `turn` at `at`; None: of any turn that began before `at`."""

    at: float
    turn: int | None
    answers: bool = True
    """False: the utterance only enters the history"""


@dataclass(frozen=True, slots=True)
class SendText:
    """Answer a typed text."""

    turn: TurnHandle
    text: str
    begun: datetime | None
    """local time of its first key, where the brain is told the time"""


@dataclass(frozen=True, slots=True)
class Give:
    """Add a text to the conversation, to talk about."""

    given: GivenText


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the history as it stands; `manner` None: as every turn."""

    turn: TurnHandle
    manner: Manner | None


@dataclass(frozen=True, slots=True)
class UseManner:
    """Answer in this manner from now on. `answers` False: hands-free speech is only kept."""

    manner: Manner
    answers: bool
    vad: VadConfig | None


@dataclass(frozen=True, slots=True)
class Edit:
    """Change the history between two turns."""

    change: Callable[[History], object]


@dataclass(frozen=True, slots=True)
class Truncate:
    """Of the speech of `turn` only so many seconds were heard."""

    turn: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Typing:
    """Prepare for a text that is being typed; empty: for none."""

    text: str
    cancelled: threading.Event
    begun: datetime | None = None
    """local time of its first key, where the brain is told the time"""


@dataclass(frozen=True, slots=True)
class Redo:
    """Answer the input of turn `again` once more, or `text` in its place."""

    turn: TurnHandle
    again: int
    text: str | None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Abandon the utterance of this turn. Its flag is set already."""

    turn: int


@dataclass(frozen=True, slots=True)
class NewConversation:
    """Empty the history."""


@dataclass(frozen=True, slots=True)
class RecallConversation:
    """Undo NewConversation, unless a turn was answered since."""


@dataclass(frozen=True, slots=True)
class ReplaceParts:
    """Use these parts from now on; a part that is None stays."""

    config: Config
    microphone: Microphone | None = None
    speaker: Speaker | None = None
    brain: Brain | Loaders[Brain] | None = None
    voice: Voice | Loaders[Voice] | Literal["none"] | None = None


@dataclass(frozen=True, slots=True)
class RescanDevices:
    """Look for devices that were plugged in."""


@dataclass(frozen=True, slots=True)
class DeviceLost:
    """Replace the microphone, if `opening` is still the one in use."""

    opening: object
    """identifies one opening of one microphone"""
    message: str


@dataclass(frozen=True, slots=True)
class Ring:
    """Speak a sentence that is not part of a turn, once neither side speaks."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Quit:
    """End the engine's thread."""


NewTurn: TypeAlias = Talk | SendText | Answer | Redo
"""A command that begins a turn, and ends the one before."""

Command: TypeAlias = (
    NewTurn
    | Release
    | Give
    | UseManner
    | Edit
    | Truncate
    | Typing
    | Cancel
    | NewConversation
    | RecallConversation
    | ReplaceParts
    | RescanDevices
    | DeviceLost
    | Ring
    | Quit
)
