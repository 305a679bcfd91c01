"""The door between the engine's thread and all others: what was asked for, in its order.

Frames and commands share one queue, so that a key press is ordered among the samples around it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from queue import SimpleQueue

from voxtui.dialogue.commands import (
    Answer,
    Cancel,
    Command,
    Redo,
    Release,
    SendText,
    Talk,
    TurnHandle,
    Typing,
)
from voxtui.dialogue.data import Frame
from voxtui.dialogue.protocols import ReplyOptions
from voxtui.dialogue.timestamps import Milestone


class Inbox:
    """Any thread puts; the engine's thread gets, and says which turn it has taken."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Frame | Command] = SimpleQueue()
        self._replayed: deque[Frame] = deque()
        """frames of the pre-roll, which come before those of the queue"""
        self._creating = threading.Lock()
        """guards creating and enqueueing a turn, so that queue order equals turn order"""
        self.newest = self.taken = TurnHandle(0)
        """the latest turn created; the latest turn taken out of the queue"""
        self.typing = Typing("", threading.Event())
        """the latest state of the text that is being typed"""
        self.answering: TurnHandle | None = None
        """the turn that is answered; a negative number: the sentence of a timer or reminder"""

    @property
    def turn_waits(self) -> bool:
        """True while a newer turn is in the queue."""
        return self.newest is not self.taken

    # On any thread.

    def put(self, item: Frame | Command) -> None:
        self._queue.put(item)

    def put_turn(self, handle: TurnHandle, command: Talk | SendText | Redo) -> int:
        """Give a new turn its number, enqueue it, and cancel the turn before it."""
        with self._creating:
            self._create(handle)
            if not isinstance(command, SendText):
                self.typing.cancelled.set()
            self._queue.put(command)
            return handle.number

    def put_after_cancel(self, command: Command) -> None:
        """End the turn in progress, and enqueue `command`."""
        self.silence()
        with self._creating:
            self.newest.cancel()
            self.typing.cancelled.set()
            self._queue.put(command)

    def put_release(self, at: float, turn: int | None, answers: bool) -> None:
        with self._creating:
            self.newest.kept |= not answers and turn == self.newest.number
            self._queue.put(Release(at, turn, answers))

    def put_answer(self, options: ReplyOptions | None) -> int | None:
        """Ask for an answer to the newest turn if it is only kept, else in a turn of its own.

        Return None while an utterance is detected: a new turn would end it.
        """
        with self._creating:
            handle = self.newest
            if handle.being_said:
                return None
            if not handle.kept or handle.asked:
                handle = TurnHandle(0)
                handle.timestamps.record(Milestone.RELEASED)
                self._create(handle)
            handle.asked = True
            self._queue.put(Answer(handle, options))
            return handle.number

    def put_typing(
        self, text: str, local_time: Callable[[datetime | None], datetime | None]
    ) -> None:
        """Enqueue the text that is being typed. `local_time` gets when it was begun before."""
        with self._creating:
            before, begun = self.typing, None
            if text:
                begun = local_time(before.begun if before.text else None)
            self.typing = Typing(text, threading.Event(), begun)
            if not text:
                before.cancelled.set()
            self._queue.put(self.typing)

    def cancel(self, turn: int | None) -> None:
        """Set the flag of `turn`, or of the newest turn, and enqueue the command."""
        with self._creating:
            handle = self.newest
            if handle.over or turn not in (None, handle.number):
                return  # each older turn was cancelled when the next one was created
            handle.cancel()
            self._queue.put(Cancel(handle.number))

    def silence(self) -> bool:
        """End the sentence of a timer or reminder. Return False if none is spoken."""
        answering = self.answering
        if answering is None or answering.number > 0 or answering.cancelled.is_set():
            return False
        answering.cancel()
        return True

    def _create(self, handle: TurnHandle) -> None:
        """Make `handle` the newest turn. The caller holds the lock."""
        self.silence()
        self.newest.cancel()
        handle.number = self.newest.number + 1
        self.newest = handle

    # On the engine's thread.

    def begin(self, handle: TurnHandle) -> bool:
        """Make `handle` the newest turn, taken at once. Return False if a newer one waits."""
        with self._creating:
            if self.turn_waits:
                return False
            self._create(handle)
            handle.detected = True
            self.taken = handle
            return True

    def replay(self, frames: Sequence[Frame]) -> None:
        """Put `frames` before everything else."""
        self._replayed.extendleft(reversed(frames))

    def replayed(self) -> Frame | None:
        """Return the next frame of the pre-roll."""
        return self._replayed.popleft() if self._replayed else None

    def empty(self) -> bool:
        return self._queue.empty()

    def get(self, timeout: float | None) -> Frame | Command:
        """Wait `timeout` seconds at most. Raises queue.Empty."""
        return self._queue.get(timeout=timeout)


def now(at: float | None) -> float:
    """Return `at`, or the present (monotonic seconds)."""
    return time.monotonic() if at is None else at
