"""The commands of a person to an engine, for any front end and without a device."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from voxtui.dialogue.data import MICROPHONE, Frame, Token
from voxtui.dialogue.events import Event, Loaded, LoadFailed, State, TurnFinished
from voxtui.dialogue.protocols import PastTurn
from voxtui.errors import VoxtuiError

if TYPE_CHECKING:
    from voxtui.dialogue.attachments import Attachment
    from voxtui.dialogue.engine import Engine
    from voxtui.dialogue.protocols import ReplyOptions
    from voxtui.settings.schema import VadConfig

Severity: TypeAlias = Literal["information", "warning", "error"]

MakeEngine: TypeAlias = Callable[[Callable[[Event], object]], "Engine"]
"""Makes an engine that reports its events to the given function."""


class NotAllowed(Exception):
    """Something cannot be done now. The message is one sentence or two for the user."""

    def __init__(self, message: str, severity: Severity = "warning") -> None:
        super().__init__(message)
        self.severity: Severity = severity


@dataclass(frozen=True, slots=True)
class ClipEnded:
    """A sample clip was spoken, was stopped, or could not be read."""

    clip: threading.Event = field(repr=False)
    """the flag that would have stopped it"""
    error: str = ""


UserSessionEvent: TypeAlias = Event | ClipEnded


class UserSession:
    """Drives an engine for any front end, also without a microphone, clips or a screen."""

    def __init__(
        self, make_engine: MakeEngine, deliver: Callable[[UserSessionEvent], object]
    ) -> None:
        """`deliver` gets every event, on several threads, and returns at once."""
        self.engine = make_engine(deliver)
        self.failed: VoxtuiError | None = None
        """why no model is loaded"""
        self._unfinished: set[int] = set()
        self._inserted = itertools.count(-1, -1)

    @property
    def state(self) -> State:
        return self.engine.state

    @property
    def busy(self) -> bool:
        """True while a turn that was begun here has not finished."""
        return bool(self._unfinished)

    def start(self) -> None:
        """Load the models, on the engine's thread."""
        self.engine.start()

    def begin_closing(self) -> None:
        """Begin to end everything, and return at once. `close` must follow."""
        self.engine.close(0)

    def close(self, seconds: float | None = None) -> None:
        """End everything. Wait for the parts no longer than `seconds`."""
        self.engine.close(seconds)

    def take(self, event: UserSessionEvent) -> None:
        """Update the state from an event of the engine. Call it before the event is shown."""
        match event:
            case LoadFailed(error):
                self.failed = error
            case Loaded():
                self.failed = None
            case TurnFinished(turn):
                # A turn finishes before the next one begins.
                older = {number for number in tuple(self._unfinished) if number <= turn.number}
                self._unfinished -= older
            case _:
                pass

    def talk(self, at: float | None = None, source: str = MICROPHONE, paced: bool = True) -> int:
        """Begin an utterance whose frames come from `source`. Returns the number of its turn.

        It ends an answer in progress. `at`: in monotonic seconds, as everywhere here. `paced`
        False: the frames come faster than in real time. Raises NotAllowed.
        """
        self._require_model()
        return self._began(self.engine.talk(at, source, paced))

    def push_frame(self, frame: Frame) -> None:
        """Add the next frame of any source. Any thread."""
        self.engine.push_frame(frame)

    def release(
        self, at: float | None = None, turn: int | None = None, answers: bool = True
    ) -> None:
        """End the utterance of `turn`, or the one in progress, at `at`, and answer it.

        `answers` False: it only enters the conversation, at once and with the frames it has.
        """
        self.engine.release(at, turn, answers)

    def answer(self, options: ReplyOptions | None = None) -> int | None:
        """Answer the conversation as it stands, `options` being of this answer only.

        Returns the number of the turn, which is that of an utterance that was kept just before;
        None, and no answer, while the user is heard to speak. Raises NotAllowed.
        """
        self._require_model()
        turn = self.engine.answer(options)
        return None if turn is None else self._began(turn)

    def use_manner(
        self, options: ReplyOptions, answers: bool = True, vad: VadConfig | None = None
    ) -> None:
        """Answer in this manner from now on, and listen as `vad` says; None: as before.

        `answers` False: hands-free speech is only kept.
        """
        self.engine.use_manner(options, answers, vad)

    def insert_text(self, user: bool, text: str, after: int | None, first: bool = False) -> int:
        """Put a text of the user, or a reply, into the conversation. Returns its number.

        It follows turn `after`; None: it is the last, or the `first`.
        """
        number = next(self._inserted)
        said, reply = (text, ()) if user else ("", (Token(text),))
        turn = PastTurn(said, None, reply, number=number)
        self.engine.edit(lambda history: history.insert(turn, after, first))
        return number

    def delete(self, turn: int, user: bool) -> None:
        """Remove the part of the user, or the reply, of a turn from the conversation."""
        self.engine.edit(
            lambda history: history.remove_input(turn) if user else history.cut(turn, None)
        )

    def truncate(self, turn: int, seconds: float) -> None:
        """Keep of a finished reply what was heard in the first `seconds` of its speech."""
        self.engine.truncate(turn, seconds)

    def cancel(self, turn: int | None = None) -> None:
        """Discard the utterance of `turn` or end its answer; None: of the newest turn."""
        self.engine.cancel(turn)

    def send_text(self, text: str, at: float | None = None) -> int:
        """Answer `text`. Returns the number of its turn. Raises NotAllowed."""
        self._require_model()
        return self._began(self.engine.send_text(text, at))

    def attach(self, attachment: Attachment) -> None:
        """Add a text to the conversation, to talk about. Raises NotAllowed if it is empty."""
        if not attachment.text.strip():
            raise NotAllowed(f"There is no text in {attachment.name}.")
        self.engine.attach(attachment)

    def typing(self, text: str) -> None:
        """Let the brain prepare for `text`, which is being typed; empty: for none."""
        self.engine.typing(text)

    def redo(self, turn: int, text: str | None = None, at: float | None = None) -> int:
        """Answer the input of `turn` once more, or `text` instead of it.

        The newest exchange is replaced; an older one is asked again at the end. Returns the new
        turn's number. Raises NotAllowed.
        """
        self._require_model()
        return self._began(self.engine.redo(turn, text, at))

    def silence(self) -> bool:
        """End the sentence of a timer or reminder. Return False if none is spoken."""
        return self.engine.silence()

    def new_conversation(self) -> None:
        """End an answer in progress and empty the history."""
        self.engine.new_conversation()

    def _began(self, turn: int) -> int:
        self._unfinished.add(turn)
        return turn

    def _require_model(self) -> None:
        if self.failed:
            raise NotAllowed("No model is loaded. Text is kept until one is.", "error")
        if self.state is State.LOADING:
            raise NotAllowed("Still loading. Text is kept until that is done.", "information")
