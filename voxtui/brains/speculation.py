"""Replies that are computed before they are requested, on one thread per model.

The newest request wins. A speculation is computed up to `ahead` tokens. Then a request with the
same key claims it and it is completed, or a newer one replaces it. A speculation records when the
model worked on it, so that a turn can show what was done before the release.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable
from functools import partial
from threading import Event as Flag
from typing import Any, Generic, TypeVar, cast

from voxtui.dialogue.prefetch import TICK_SECONDS

T = TypeVar("T")
S = TypeVar("S", bound="Speculation[Any]")


class Speculation(ABC, Generic[T]):
    """The tokens of one computation, which may begin before they are requested.

    Only requests with equal keys share a speculation; one with the key None is never shared.
    `ahead` limits the tokens computed before it is claimed; None computes all of them at once.
    Nothing is computed before `due_at` (monotonic seconds).
    """

    def __init__(
        self, key: Hashable, cancelled: Flag, ahead: int | None = None, due_at: float = 0.0
    ) -> None:
        self.key = key
        self.ended = False
        self.error: BaseException | None = None
        self._cancelled = cancelled
        self._ahead = ahead
        self._due_at = due_at
        self._abandoned = False
        self._tokens: list[T] = []
        self._worked: list[tuple[float, float]] = []
        self._changed = threading.Condition()

    # Called on the speculation thread; subclasses implement the first, and may override the second.

    @abstractmethod
    def advance(self, wanted: Callable[[], bool]) -> bool:
        """Add tokens. Return True at the end, or False soon after `wanted()` became false.

        May be called again to continue.
        """

    def release(self) -> None:
        """Free the resources of an unfinished computation. Called once nothing more is needed."""

    def add(self, token: T) -> None:
        with self._changed:
            self._tokens.append(token)
            self._changed.notify_all()

    def run(self, newest: Callable[[], bool]) -> None:
        """Compute until the end, until `ahead` tokens are computed, or until it is not `newest`."""
        started = time.monotonic()
        self._worked.append((started, math.inf))
        ended = False
        try:
            ended = self.advance(lambda: newest() and self.has_work)
        except BaseException as error:  # noqa: BLE001 - raised again where the tokens are read
            self.error = error
        with self._changed:
            self._worked[-1] = (started, time.monotonic())
            self.ended = ended or self.error is not None
            self._changed.notify_all()

    def drop(self) -> None:
        """End unfinished, because a newer speculation replaces it."""
        self.release()
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    # Called on any thread.

    @property
    def has_work(self) -> bool:
        """True while there are tokens to compute now."""
        if self.ended or self._abandoned or self._cancelled.is_set():
            return False
        return self._ahead is None or len(self._tokens) < max(self._ahead, 1)

    @property
    def due_at(self) -> float:
        return self._due_at

    @property
    def computed(self) -> list[T]:
        return list(self._tokens)

    def serves(self, other: Speculation[Any]) -> bool:
        """Return True if its tokens are those that `other` would compute."""
        same = type(self) is type(other) and self.key is not None and self.key == other.key
        return same and self.error is None and not self._abandoned

    def claim(self, other: Speculation[Any]) -> None:
        """Continue in place of `other`: with its `ahead`, its `due_at` and its cancel flag."""
        self._cancelled, self._ahead, self._due_at = other._cancelled, other._ahead, other._due_at

    def abandon(self) -> None:
        """Stop the computation. Its tokens so far stay readable."""
        self._abandoned = True

    def worked_before(self, at: float) -> float:
        """Return the seconds that the model worked on it before `at` (monotonic)."""
        return sum(max(0.0, min(end, at) - start) for start, end in tuple(self._worked))

    def wait(self, seconds: float) -> bool:
        """Wait for the end, up to `seconds`. Return True once it has ended."""
        with self._changed:
            return self._changed.wait_for(lambda: self.ended, seconds)

    def tokens(self) -> Generator[T]:
        """Yield the tokens as they come, until a cancel. Raises the error of the computation."""
        count = 0
        try:
            while not self._cancelled.is_set():
                with self._changed:
                    while len(self._tokens) == count and not self.ended:
                        if self._cancelled.is_set():
                            return
                        self._changed.wait(TICK_SECONDS)
                    new = self._tokens[count:]
                if not new:
                    break
                for token in new:
                    if self._cancelled.is_set():
                        return
                    yield token
                count += len(new)
            if self.error is not None and not self._cancelled.is_set():
                raise self.error
        finally:
            self.abandon()


class SpeculationThread:
    """Owns a model and works on the newest speculation. Its methods may be called on any thread."""

    def __init__(self, name: str) -> None:
        self._changed = threading.Condition()
        self._newest: Speculation[Any] | None = None
        self._current: Speculation[Any] | None = None
        """the one that the thread took last"""
        self._paused = False
        self._working = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def request(self, speculation: S) -> S:
        """Work on `speculation`, or on the newest one if it serves the same request; return it.

        Ends a pause.
        """
        with self._changed:
            newest = self._newest
            if newest is not None and newest.serves(speculation):
                newest.claim(speculation)
                speculation = cast("S", newest)
            else:
                if newest is not None and newest is not self._current:
                    newest.drop()
                self._newest = speculation
            self._paused = False
            self._changed.notify_all()
            return speculation

    @property
    def newest(self) -> Speculation[Any] | None:
        return self._newest

    def abandon_newest(self) -> None:
        """Stop the computation that nobody will claim, at the next token or batch."""
        if (newest := self._newest) is not None:
            newest.abandon()

    def pause(self, seconds: float) -> None:
        """Stop at the next token or batch, and wait for that, up to `seconds`.

        Computed tokens remain.
        """
        with self._changed:
            self._paused = True
            self._changed.wait_for(lambda: not self._working, seconds)

    def close(self, wait: bool = True) -> None:
        """Stop the thread, and `wait` for its end. May be called twice."""
        with self._changed:
            self._closed = self._paused = True
            self._changed.notify_all()
        if wait and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_due():
                    self._changed.wait(self._seconds_until_due())
                before, current = self._current, self._newest
                self._current = current
                closed = self._closed
                self._working = current is not None and not closed
            if before is not None and before is not current:
                before.drop()
            if closed:
                if current is not None:
                    current.drop()
                return
            if current is not None:
                if self._wants(current):
                    current.run(partial(self._wants, current))
                with self._changed:
                    self._working = False
                    self._changed.notify_all()

    def _is_due(self) -> bool:
        newest = self._newest
        if self._closed or newest is not self._current:
            return True
        return newest is not None and self._wants(newest)

    def _seconds_until_due(self) -> float | None:
        newest = self._newest
        if newest is None or self._paused or not newest.has_work:
            return None
        return max(0.0, newest.due_at - time.monotonic())

    def _wants(self, speculation: Speculation[Any]) -> bool:
        newest = self._newest is speculation and not self._paused and speculation.has_work
        return newest and speculation.due_at <= time.monotonic()
