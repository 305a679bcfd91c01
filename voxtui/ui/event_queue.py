"""Queue the engine's events on their way to the screen."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from voxtui.dialogue.events import ReplyText
from voxtui.session.user_session import UserSessionEvent

CHARACTERS_AT_ONCE = 4000
"""Maximum characters shown before keys are handled again, about 10 ms of wrapping."""

LEAST_PAUSE_SECONDS = 0.003


def pause_after(seconds: float) -> float:
    """Return the pause in seconds before the next pieces of a growing answer are shown.

    `seconds` is how long the last ones and their painting occupied the event loop. The pause is as
    long, so keys and other widgets get half of the loop's time. The first words of an answer and
    all other events are shown at once.
    """
    return max(LEAST_PAUSE_SECONDS, seconds)


class EventQueue:
    """Queues events in order, and merges waiting pieces of one answer.

    A piece has two words. A server that sends a whole answer at once causes thousands of pieces,
    which would delay every key if they were shown one by one.
    """

    def __init__(
        self, wake: Callable[[], bool], later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        """`wake` makes the UI thread call `take` soon; it returns False after teardown.

        `later(seconds, call)` calls `call` on the UI thread.
        """
        self._wake = wake
        self._later = later
        self._growing: int | None = None
        """the number of the turn whose next pieces wait for the pause to end"""
        self._events: deque[UserSessionEvent] = deque()
        self._woken = False

    def put(self, event: UserSessionEvent) -> None:
        """Append an event. Any thread."""
        self._events.append(event)
        growing = self._growing  # read behind the append, because `_resume` clears it before a look
        if growing is None or not isinstance(event, ReplyText) or event.turn != growing:
            self._wake_up()

    def take(self) -> Iterator[UserSessionEvent]:
        """Yield the waiting events, up to CHARACTERS_AT_ONCE of answer text. UI thread.

        Events that arrive meanwhile are taken later, so keys are handled between.
        """
        self._woken = False  # first, so that an event put from now on wakes again
        began = time.monotonic()
        characters, left, begins = 0, len(self._events), False
        while left > 0 and characters < CHARACTERS_AT_ONCE:
            event = self._events.popleft()
            left -= 1
            if isinstance(event, ReplyText):
                event, more = self._merged(event, CHARACTERS_AT_ONCE - characters)
                left -= more
                characters += len(event.text)
                if event.text.strip():
                    begins |= self._growing is None
                    self._growing = event.turn
            yield event
        if characters >= CHARACTERS_AT_ONCE and self._events:
            self._wake_up()
        if begins:
            self._later(pause_after(time.monotonic() - began), self._resume)

    def _resume(self) -> None:
        self._growing = None
        if self._events:
            self._wake_up()

    def _merged(self, first: ReplyText, most: int) -> tuple[ReplyText, int]:
        """Return `first` merged with the pieces after it, and their number.

        The result has at most `most` characters; the rest waits.
        """
        pieces, characters = [first.text], len(first.text)
        while characters < most and self._events:
            piece = self._events[0]
            if not isinstance(piece, ReplyText) or piece.turn != first.turn:
                break
            self._events.popleft()
            pieces.append(piece.text)
            characters += len(piece.text)
        text = "".join(pieces)
        if len(text) > most:
            self._events.appendleft(ReplyText(first.turn, text[most:]))
        return ReplyText(first.turn, text[:most]), len(pieces) - 1

    def _wake_up(self) -> None:
        if not self._woken:
            self._woken = True
            if not self._wake():
                self._woken = False
