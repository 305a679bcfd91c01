"""The commands to an engine. `Engine.post` takes them, and nothing else does.

Commands are structs of msgspec, because to define a frozen dataclass takes eight times as long, and
the first frame of the screen waits for that. Times are monotonic seconds; None means now.
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
    """What a front end, a rule or the engine itself wants the engine to do."""


class NewTurn(Command, frozen=True):
    """A command that begins a turn, and ends the one before."""


class Talk(NewTurn, frozen=True):
    """Cut off any answer; listen to `source` from `at` on. `paced` False: not in real time."""

    at: float | None = None
    source: str = MICROPHONE
    paced: bool = True


class Release(Command, frozen=True):
    """End the recording at `at` and answer it.

    Ignored if `turn` is not the turn being recorded, or if the recording began after `at`.
    `answers` False: the utterance enters the history at once, and `Answer` may follow. All of its
    frames must have been pushed.
    """

    at: float | None = None
    turn: int | None = None
    answers: bool = True


class Answer(NewTurn, frozen=True):
    """Answer the history as it stands: the last words of the user, else without a question.

    The turn is that of the utterance, if that has no answer yet. `options`: of this answer only.
    It ends detected speech; `Sync` tells whether any goes on.
    """

    options: ReplyOptions | None = None


class SendText(NewTurn, frozen=True):
    """Answer `text`, sent at `at`."""

    text: str
    at: float | None = None


class Redo(NewTurn, frozen=True):
    """Answer the input of `turn` once more, or `text` instead of it, requested at `at`.

    The newest exchange of the history is replaced; an older one is asked again at the end.
    """

    turn: int
    text: str | None = None
    at: float | None = None


class Cancel(Command, frozen=True):
    """End `turn`, or the newest turn: abandon its utterance, or silence and end its answer.

    Its flag is set at once. Ignored if that turn is over. While the sentence of a timer or
    reminder is spoken, that is ended instead.
    """

    turn: int | None = None


class Confirm(Command, frozen=True):
    """Answer the question whether a tool may run for `turn`. A key did this, never a voice."""

    turn: int
    yes: bool


class Silence(Command, frozen=True):
    """Stop the timers and reminders that ring. The result is 0 if none does, else negative."""

    snooze: bool = False
    """have them ring again in a few minutes"""
    missed: bool = False
    """also take those that were missed from the list"""


class Typing(Command, frozen=True):
    """Let the brain prepare for a text that is being typed; empty: for none."""

    text: str = ""


class Attach(Command, frozen=True):
    """Add a text to the conversation. The brain reads it before the next turn."""

    attachment: Attachment


class UseReplyOptions(Command, frozen=True):
    """Answer by these options from now on, and read its instruction at once.

    `answers` False: hands-free speech enters the history without an answer. `vad`: listen in
    another way; None: as before.
    """

    options: ReplyOptions
    answers: bool = True
    vad: VadConfig | None = None


class InsertTurn(Command, frozen=True):
    """Put a turn into the history: after turn `after`; None: as the last, or the `first`."""

    turn: PastTurn
    after: int | None = None
    first: bool = False


class AddResult(Command, frozen=True):
    """Add the result of a call that the client ran. The next Answer words it."""

    finished: FinishedCall


class RemovePart(Command, frozen=True):
    """Remove the user's part, or the reply, of a turn from the history."""

    turn: int
    user: bool


class Truncate(Command, frozen=True):
    """Keep what was heard in the first `seconds` of the speech of a finished turn."""

    turn: int
    seconds: float


class NewConversation(Command, frozen=True):
    """End the answer in progress, and put `past` in place of the history."""

    past: Past = ()


class RecallConversation(Command, frozen=True):
    """Bring back the history that NewConversation emptied, if no turn was added since."""


class ReplaceComponents(Command, frozen=True):
    """End the answer in progress and use these parts; a part that is None stays.

    After a start that failed, brain and voice are loaded in place of the others.
    """

    config: Config
    microphone: Microphone | None = None
    speaker: Speaker | None = None
    brain: Brain | Fallbacks[Brain] | None = None
    voice: Voice | Fallbacks[Voice] | Literal["none"] | None = None


class RescanDevices(Command, frozen=True):
    """Find devices that were plugged in; use the chosen ones if they are back."""


class Mute(Command, frozen=True):
    """Turn the voice off, even in the middle of a sentence, or on. Text goes on."""

    muted: bool


class DeviceLost(Command, frozen=True):
    """Replace the microphone, if `opening` is still the one in use. Posted by the engine itself."""

    opening: object
    """identifies one opening of one microphone"""
    message: str


class Ring(Command, frozen=True):
    """Speak a sentence that is not part of a turn, once neither side speaks. Posted by skills."""

    sentence: str


class Speak(Command, frozen=True):
    """End any recording or answer, and read `text` aloud, up to the next turn, Cancel or Speak."""

    text: str


class Sync(Command, frozen=True):
    """Report `Synced` once all that was posted and pushed before has been taken."""


class Quit(Command, frozen=True):
    """End the engine's thread. Posted by `Engine.close`."""
