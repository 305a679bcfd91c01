"""The commands of an engine, which only `Engine.post` accepts.

They are msgspec structs, because defining a frozen dataclass takes eight times as long, and the
first frame of the screen waits for it. Times are in monotonic seconds; None means now.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from voxtui.dialogue.data import MICROPHONE, FinishedCall
from voxtui.dialogue.fallbacks import Fallbacks
from voxtui.dialogue.history.attachments import Attachment
from voxtui.dialogue.protocols import (
    Brain,
    Microphone,
    Past,
    PastTurn,
    ReplyOptions,
    Speaker,
    Voice,
)
from voxtui.settings.schema import Config, VadConfig


class Command(msgspec.Struct, frozen=True):
    """A request to the engine from a front end, a rule or the engine itself."""


class NewTurn(Command, frozen=True):
    """A command that begins a turn, and ends the one before."""


class Talk(NewTurn, frozen=True):
    """Cut off any answer; listen to `source` from `at` on."""

    at: float | None = None
    source: str = MICROPHONE
    paced: bool = True
    """whether its frames come in real time"""


class Release(Command, frozen=True):
    """End the recording at `at` and answer it.

    It is ignored if another turn than `turn` is being recorded, or if the recording began after
    `at`. If `answers` is False, the utterance enters the history at once and `Answer` may follow;
    all of its frames must have been pushed before.
    """

    at: float | None = None
    turn: int | None = None
    answers: bool = True


class Answer(NewTurn, frozen=True):
    """Answer the user's last words in the history, or speak first if there are none.

    The answer belongs to the turn of the utterance, if that has no answer yet. `options` apply to
    this answer only. If nobody has said anything, `request` is answered, by the instruction of all
    answers. Ends detected speech; `Sync` tells whether speech goes on.
    """

    options: ReplyOptions | None = None
    request: str = ""


class SendText(NewTurn, frozen=True):
    """Answer `text`, sent at `at`."""

    text: str
    at: float | None = None


class Redo(NewTurn, frozen=True):
    """Answer the input of `turn` once more, or `text` instead of it, requested at `at`.

    The answer replaces the newest exchange of the history. The input of an older turn is added
    again at the end.
    """

    turn: int
    text: str | None = None
    at: float | None = None


class Cancel(Command, frozen=True):
    """End `turn`, or the newest turn: discard its utterance, or silence and end its answer.

    The turn's flag is set at once. Ignored if that turn is over. If the sentence of a timer or
    reminder is being spoken, that sentence is ended instead.
    """

    turn: int | None = None


class Confirm(Command, frozen=True):
    """Answer the question whether a tool may run for `turn`, by a key and never by voice."""

    turn: int
    yes: bool


class Silence(Command, frozen=True):
    """Stop the timers and reminders that ring. The result is 0 if none rings, else negative."""

    snooze: bool = False
    """whether they ring again in a few minutes"""
    missed: bool = False
    """whether missed ones leave the list, too"""


class Typing(Command, frozen=True):
    """Let the brain prepare for a text that is being typed. An empty text ends that."""

    text: str = ""


class Attach(Command, frozen=True):
    """Add a text to the conversation. The brain reads it before the next turn."""

    attachment: Attachment


class UseReplyOptions(Command, frozen=True):
    """Use these options for all following answers, and let the brain read the instruction now.

    If `answers` is False, hands-free speech enters the history without an answer. `vad` replaces
    the settings of the detector, unless it is None.
    """

    options: ReplyOptions
    answers: bool = True
    vad: VadConfig | None = None


class InsertTurn(Command, frozen=True):
    """Insert a turn into the history after turn `after`; else at the end, or as the `first`."""

    turn: PastTurn
    after: int | None = None
    first: bool = False


class AddResult(Command, frozen=True):
    """Add the result of a call that the client ran. The next Answer puts it into words."""

    finished: FinishedCall


class RemovePart(Command, frozen=True):
    """Remove the user's part, or the reply, of a turn from the history."""

    turn: int
    user: bool


class Truncate(Command, frozen=True):
    """Reduce the reply of a finished turn to what was heard in its first `seconds` of speech."""

    turn: int
    seconds: float


class NewConversation(Command, frozen=True):
    """End the answer in progress, and replace the history by `past`."""

    past: Past = ()


class RecallConversation(Command, frozen=True):
    """Bring back the history that NewConversation emptied, if no turn was added since."""


class ReplaceComponents(Command, frozen=True):
    """End the answer in progress and use these components; None keeps the present one.

    After a failed start, `brain` and `voice` are loaded instead of those that failed.
    """

    config: Config
    microphone: Microphone | None = None
    speaker: Speaker | None = None
    brain: Brain | Fallbacks[Brain] | None = None
    voice: Voice | Fallbacks[Voice] | Literal["none"] | None = None


class RescanDevices(Command, frozen=True):
    """Look for newly plugged devices; use the chosen ones if they are back."""


class Mute(Command, frozen=True):
    """Turn the voice off, even in the middle of a sentence, or on. The text goes on."""

    muted: bool


class DeviceLost(Command, frozen=True):
    """Replace the microphone, if `opening` is still the one in use. Posted by the engine itself."""

    opening: object
    """the identity of one opening of one microphone"""
    message: str


class Ring(Command, frozen=True):
    """Speak a sentence that is not part of a turn, once neither side speaks. Posted by skills."""

    sentence: str


class Speak(Command, frozen=True):
    """End any recording or answer, and read `text` aloud until the next turn, Cancel or Speak."""

    text: str


class Sync(Command, frozen=True):
    """Emit `Synced` once everything that was posted and pushed before has been handled."""


class Quit(Command, frozen=True):
    """End the engine's thread. Posted by `Engine.close`."""
