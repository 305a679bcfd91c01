"""One thread owns the model and works on one thing at a time: the newest that was asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from threading import Event as Flag

CANCEL_SECONDS = 0.02
"""How soon a reader that waits for a token notices that nobody wants it."""

Work = Callable[[], Generator[int | None, None, None]]
"""Gives tokens, and None wherever it can be stopped. Runs on the model's thread."""


class Draft:
    """Tokens that are worked out, perhaps before anybody asked.

    `ahead`: how many tokens are worked out before somebody does; None: somebody has.
    """

    def __init__(self, work: Work, cancelled: Flag, ahead: int | None = 0) -> None:
        self.worked: list[tuple[float, float]] = []
        """when the model was at it: start and end"""
        self.ended = False
        self.error: BaseException | None = None
        self._work = work
        self._cancelled = cancelled
        self._ahead = ahead
        self._left = False
        self._items: Generator[int | None, None, None] | None = None
        self._tokens: list[int] = []
        self._changed = threading.Condition()

    # On the model's thread.

    def advance(self, newest: Callable[[], bool]) -> None:
        """Go on until it ends, has gone far enough, or something else is wanted."""
        started = time.monotonic()
        try:
            self._items = self._items or self._work()
            while newest() and self.wanting:
                token = next(self._items)
                if token is not None:
                    with self._changed:
                        self._tokens.append(token)
                        self._changed.notify_all()
        except StopIteration:
            self.ended = True
        except BaseException as error:  # noqa: BLE001 - raised again where the tokens are read
            self.error = error
            self.ended = True
        with self._changed:
            self.worked.append((started, time.monotonic()))
            self._changed.notify_all()

    def abandon(self) -> None:
        """Nobody will come for it. What was worked out of it ends here, on its own thread."""
        self.ended = True
        items, self._items = self._items, None
        if items is not None:
            items.close()
        with self._changed:
            self._changed.notify_all()

    @property
    def wanting(self) -> bool:
        """Whether there is work left that somebody wants now."""
        if self.ended or self._left or self._cancelled.is_set():
            return False
        return self._ahead is None or len(self._tokens) < max(self._ahead, 1)

    # By the one who wants the tokens.

    def claim(self) -> None:
        """Work it out to its end."""
        self._ahead = None

    def leave(self) -> None:
        """No more of it is wanted."""
        self._left = True

    def tokens(self) -> Iterator[int]:
        """The tokens as they come. Raises what the work failed with."""
        count = 0
        while not self._cancelled.is_set():
            with self._changed:
                while len(self._tokens) == count and not self.ended:
                    self._changed.wait(CANCEL_SECONDS)
                    if self._cancelled.is_set():
                        return
                fresh = self._tokens[count:]
            if not fresh:
                break
            for token in fresh:
                if self._cancelled.is_set():
                    return
                yield token
            count += len(fresh)
        if self.error is not None and not self._cancelled.is_set():
            raise self.error


class ModelThread:
    """Works on the newest draft; an older one is dropped at its next stop."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._draft: Draft | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="voxtui-voxtral", daemon=True)
        self._thread.start()

    def ask(self, draft: Draft) -> None:
        with self._changed:
            self._draft = draft
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        at: Draft | None = None
        while True:
            with self._changed:
                self._changed.wait_for(partial(self._due, at))
                before, at = at, self._draft
                closed = self._closed
            if before is not None and (before is not at or closed):
                before.abandon()
            if closed:
                return
            if at is not None:
                at.advance(lambda draft=at: self._draft is draft and not self._closed)

    def _due(self, at: Draft | None) -> bool:
        draft = self._draft
        return self._closed or draft is not at or (draft is not None and draft.wanting)
