"""Engine events on their way to the screen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from voxtui.controls import ControlEvent
from voxtui.dialogue.events import ReplyText

CHARACTERS_AT_ONCE = 4000
"""Answer text shown before keys are looked at again: about 10 ms of wrapping."""


class EventQueue:
    """A queue of events in their order. Waiting pieces of one answer are merged.

    A piece has two words. A server that sends a whole answer at once produces thousands of pieces.
    Shown one by one, they would delay every key behind them.
    """

    def __init__(self, wake: Callable[[], bool]) -> None:
        """`wake` makes the UI thread call `take` soon. It returns False after teardown."""
        self._wake = wake
        self._events: deque[ControlEvent] = deque()
        self._woken = False

    def put(self, event: ControlEvent) -> None:
        """Add an event. Any thread."""
        self._events.append(event)
        self._wake_up()

    def take(self) -> Iterator[ControlEvent]:
        """Yield the events that wait, up to CHARACTERS_AT_ONCE of answer text. UI thread.

        Wakes the UI again for the rest.
        """
        self._woken = False  # first, so that an event put from now on wakes again
        characters = 0
        while self._events and characters < CHARACTERS_AT_ONCE:
            event = self._events.popleft()
            if isinstance(event, ReplyText):
                event = self._merged(event, CHARACTERS_AT_ONCE - characters)
                characters += len(event.text)
            yield event
        if self._events:
            self._wake_up()

    def _merged(self, first: ReplyText, most: int) -> ReplyText:
        """Return `first` with the pieces behind it, at most `most` characters. The rest waits."""
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
        return ReplyText(first.turn, text[:most])

    def _wake_up(self) -> None:
        if not self._woken:
            self._woken = True
            if not self._wake():
                self._woken = False
