"""The commands that travel through the engine's inbox, and the handle of a turn.

Commands are structs of msgspec, because to define a frozen dataclass takes eight times as long, and
the first frame of the screen waits for that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from voxtui.dialogue.attachments import Attachment
from voxtui.dialogue.fallbacks import Fallbacks
from voxtui.dialogue.history import History
from voxtui.dialogue.protocols import Brain, Microphone, ReplyOptions, Speaker, Voice
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.settings.schema import Config, VadConfig


@dataclass(slots=True)
class TurnHandle:
    """The part of a turn that several threads share: its number, its cancel flag and its marks."""

    number: int
    cancelled: threading.Event = field(default_factory=threading.Event)
    timestamps: Timestamps = field(default_factory=Timestamps)
    over: bool = False
    """the turn has finished; only its idle transcript may still run"""
    kept: bool = False
    """the utterance enters the history without an answer"""
    asked: bool = False
    """an answer to it was asked for"""
    detected: bool = False
    """its speech began by itself, hands-free"""

    @property
    def being_said(self) -> bool:
        """True while its speech, which was detected, has not ended."""
        return self.detected and not (self.kept or self.over or self.cancelled.is_set())

    def cancel(self) -> None:
        """Set the cancel flag, and write CANCELLED unless the turn is over. Any thread.

        Ignored for an utterance that is only kept: the next turn does not take it back.
        """
        if not self.cancelled.is_set() and (self.asked or not self.kept):
            if not self.over:
                self.timestamps.record(Milestone.CANCELLED)
            self.cancelled.set()


class Talk(msgspec.Struct, frozen=True):
    """Listen to `source` from `at` on. `paced` False: faster than real time."""

    turn: TurnHandle
    at: float
    source: str
    paced: bool


class Release(msgspec.Struct, frozen=True):
    """End the recording of `turn` at `at`; None: of any turn that began before `at`."""

    at: float
    turn: int | None
    answers: bool = True
    """False: the utterance only enters the history"""


class SendText(msgspec.Struct, frozen=True):
    """Answer a typed text."""

    turn: TurnHandle
    text: str
    begun: datetime | None
    """local time of its first key, where the brain is told the time"""


class Attach(msgspec.Struct, frozen=True):
    """Add a text to the conversation, to talk about."""

    attachment: Attachment


class Answer(msgspec.Struct, frozen=True):
    """Answer the history as it stands; `options` None: as every turn."""

    turn: TurnHandle
    options: ReplyOptions | None


class UseReplyOptions(msgspec.Struct, frozen=True):
    """Answer in this manner from now on. `answers` False: hands-free speech is only kept."""

    options: ReplyOptions
    answers: bool
    vad: VadConfig | None


class Edit(msgspec.Struct, frozen=True):
    """Change the history between two turns."""

    change: Callable[[History], object]


class Truncate(msgspec.Struct, frozen=True):
    """Of the speech of `turn` only so many seconds were heard."""

    turn: int
    seconds: float


class Typing(msgspec.Struct, frozen=True):
    """Prepare for a text that is being typed; empty: for none."""

    text: str
    cancelled: threading.Event
    begun: datetime | None = None
    """local time of its first key, where the brain is told the time"""


class Redo(msgspec.Struct, frozen=True):
    """Answer the input of turn `again` once more, or `text` in its place."""

    turn: TurnHandle
    again: int
    text: str | None


class Cancel(msgspec.Struct, frozen=True):
    """Abandon the utterance of this turn. Its flag is set already."""

    turn: int


class NewConversation(msgspec.Struct, frozen=True):
    """Empty the history."""


class RecallConversation(msgspec.Struct, frozen=True):
    """Undo NewConversation, unless a turn was answered since."""


class ReplaceComponents(msgspec.Struct, frozen=True):
    """Use these parts from now on; a part that is None stays."""

    config: Config
    microphone: Microphone | None = None
    speaker: Speaker | None = None
    brain: Brain | Fallbacks[Brain] | None = None
    voice: Voice | Fallbacks[Voice] | Literal["none"] | None = None


class RescanDevices(msgspec.Struct, frozen=True):
    """Look for devices that were plugged in."""


class DeviceLost(msgspec.Struct, frozen=True):
    """Replace the microphone, if `opening` is still the one in use."""

    opening: object
    """identifies one opening of one microphone"""
    message: str


class Ring(msgspec.Struct, frozen=True):
    """Speak a sentence that is not part of a turn, once neither side speaks."""

    sentence: str


class Quit(msgspec.Struct, frozen=True):
    """End the engine's thread."""


NewTurn: TypeAlias = Talk | SendText | Answer | Redo
"""A command that begins a turn, and ends the one before."""

Command: TypeAlias = (
    NewTurn
    | Release
    | Attach
    | UseReplyOptions
    | Edit
    | Truncate
    | Typing
    | Cancel
    | NewConversation
    | RecallConversation
    | ReplaceComponents
    | RescanDevices
    | DeviceLost
    | Ring
    | Quit
)
