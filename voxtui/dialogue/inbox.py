"""The engine's queue of frames and commands, which numbers the turns and cancels the newest.

Frames and commands share one queue, so a key press is ordered among the frames around it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from queue import SimpleQueue

from msgspec.structs import replace

from voxtui.dialogue import engine_commands as commands
from voxtui.dialogue.data import Frame
from voxtui.dialogue.timestamps import Milestone
from voxtui.dialogue.turn_handle import TurnHandle


@dataclass(frozen=True, slots=True, eq=False)
class TypedText:
    text: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)
    begun: datetime | None = None
    """the local time of its first key, or None if the brain is not told the time"""


@dataclass(frozen=True, slots=True)
class Posted:
    command: commands.Command
    turn: TurnHandle | None
    """the turn that the command begins or answers, or its announcement"""
    typed: TypedText


class Inbox:
    """The queue between all other threads, which post, and the engine's thread, which gets."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Frame | Posted] = SimpleQueue()
        self._replayed: deque[Frame] = deque()
        """frames of the pre-roll, which are returned before those of the queue"""
        self._posting = threading.Lock()
        """guards the creation and queueing of a turn, so that queue order equals turn order"""
        self.newest = self.taken = TurnHandle(0)
        """the latest turn created, and the latest turn taken out of the queue"""
        self.typing = TypedText()
        self.answering: TurnHandle | None = None
        """the turn that is being answered; with a negative number, the announcement being spoken"""
        self._requested: TurnHandle | None = None
        """the announcement of the newest Speak"""
        self._announcements = itertools.count(-1, -1)

    @property
    def turn_waits(self) -> bool:
        return self.newest is not self.taken

    # On any thread.

    def push(self, frame: Frame) -> None:
        self._queue.put(frame)

    def post(self, command: commands.Command, begun: datetime | None = None) -> int:
        """Queue `command`. Return the number of its turn, 0, or a negative one of an announcement.

        `begun` is the local time of the first key of a typed text.
        """
        match command:
            case commands.Silence():
                return self._silence()
            case commands.Confirm():
                return self._confirm(command)
            case (
                commands.Cancel()
                | commands.NewConversation()
                | commands.ReplaceComponents()
                | commands.Speak()
                | commands.Quit()
            ):
                silenced = self._silence()
                if silenced and isinstance(command, commands.Cancel):
                    return silenced
            case commands.Talk(at=None) | commands.Release(at=None):
                command = replace(command, at=time.monotonic())
            case _:
                pass
        with self._posting:
            return self._enqueue(command, begun)

    def _enqueue(self, command: commands.Command, begun: datetime | None) -> int:
        """Do what must not wait for the engine's thread, and queue. The caller holds the lock."""
        turn, typed = None, self.typing
        match command:
            case commands.Talk():
                turn = self._create()
                typed.cancelled.set()
            case commands.SendText(at=at):
                turn = self._create()
                turn.timestamps.record(Milestone.RELEASED, at)
            case commands.Redo(at=at):
                turn = self._create()
                turn.timestamps.record(Milestone.RELEASED, at)
                typed.cancelled.set()
            case commands.Answer():
                turn = self._answered()
            case commands.Release(turn=number, answers=answers):
                self.newest.committed |= not answers and number == self.newest.number
            case commands.Cancel(turn=number):
                turn = self.newest
                if turn.over or number not in (None, turn.number):
                    return 0  # each older turn was cancelled when the next one was created
                turn.cancel()
            case commands.Typing(text=text):
                if not text.strip():
                    typed.cancelled.set()
                typed = self.typing = TypedText(text.strip(), begun=begun)
            case commands.NewConversation() | commands.ReplaceComponents() | commands.Quit():
                self.newest.cancel()
                typed.cancelled.set()
            case commands.Ring():
                turn = TurnHandle(next(self._announcements))
            case commands.Speak():
                self.newest.cancel()
                turn = self._requested = TurnHandle(next(self._announcements))
            case _:
                pass
        self._queue.put(Posted(command, turn, typed))
        return turn.number if turn else 0

    def _confirm(self, confirm: commands.Confirm) -> int:
        turn = self.newest
        if turn.number != confirm.turn or turn.over or turn.decided.is_set():
            return 0
        turn.confirmed = confirm.yes
        turn.decided.set()
        return turn.number

    def _create(self) -> TurnHandle:
        """Cancel the newest turn and return a new one. The caller holds the lock."""
        before = self.newest
        self.newest = TurnHandle(before.number + 1)
        self._silence()  # what is announced only later sees the new turn
        before.cancel()
        return self.newest

    def _answered(self) -> TurnHandle:
        """Return the newest turn if it is committed and has no answer yet, else a new one."""
        turn = self.newest
        if not turn.committed or turn.answer_requested:
            turn = self._create()
            turn.timestamps.record(Milestone.RELEASED)
        turn.answer_requested = True
        return turn

    def _silence(self) -> int:
        """End the announcement being spoken, and drop a waiting Speak. Returns its number, or 0."""
        answering, requested = self.answering, self._requested
        if requested is not None and requested is not answering:
            requested.cancel()
        if answering is None or answering.number > 0 or answering.cancelled.is_set():
            return 0
        answering.cancel()
        return answering.number

    # On the engine's thread.

    def begin(self) -> TurnHandle | None:
        """Create a turn that counts as taken; return None if a newer one waits in the queue."""
        with self._posting:
            if self.turn_waits:
                return None
            self.taken = self._create()
            self.taken.detected = True
            return self.taken

    def replay(self, frames: Sequence[Frame]) -> None:
        self._replayed.extendleft(reversed(frames))

    def empty(self) -> bool:
        return not self._replayed and self._queue.empty()

    def get(self, timeout: float | None) -> Frame | Posted:
        """Wait `timeout` seconds at most. Raises queue.Empty."""
        return self._replayed.popleft() if self._replayed else self._queue.get(timeout=timeout)
