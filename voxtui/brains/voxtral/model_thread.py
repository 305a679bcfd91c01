"""The thread of the model, and what a failure on it means."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TypeAlias, TypeVar

from voxtui.brains.speculation import SpeculationThread
from voxtui.brains.voxtral.failures import is_failure, is_sticky, sentence_of
from voxtui.brains.voxtral.work import ModelWork
from voxtui.errors import ModelError, ModelLost

FAILURES = 2
"""Failed turns in a row after which the model counts as lost."""

RESTART = "Restart voxtui to load Voxtral again."

Tokens: TypeAlias = "Callable[[], Generator[int | None, None, None]]"
"""Begins work, which yields tokens, and None where it can be stopped."""

Work = TypeVar("Work", bound=ModelWork)


class ModelThread:
    """Runs work one after the other. Counts its failures.

    `recover(error, again)` is called on the thread after each failure; `again`: one more and the
    model is lost. It returns True if it ended the cause, so that the count begins anew.
    """

    def __init__(self, recover: Callable[[Exception, bool], bool]) -> None:
        self._recover = recover
        self._thread: SpeculationThread | None = None
        self._failures = 0
        self.lost = False
        """the device is unusable until the process ends"""

    def start(self) -> None:
        self._thread = SpeculationThread("voxtui-voxtral")

    def request(self, work: Work) -> Work:
        """Begin `work`, in place of what is under way. Raises ModelError before `start`."""
        if self._thread is None:
            raise ModelError("Voxtral is not loaded.")
        return self._thread.request(work)

    def tokens(self, work: ModelWork) -> Iterator[int]:
        """Yield the tokens of `work`. Raises ModelError, or ModelLost if the model is lost."""
        try:
            yield from work.tokens()
        except Exception as error:
            raise self._explained(error) from error

    def guarded(self, work: Tokens) -> Tokens:
        """Return `work`, changed to recover if it fails."""

        def guarded() -> Generator[int | None, None, None]:
            try:
                yield from work()
            except Exception as error:
                again = self._failures + is_failure(error) >= FAILURES and not is_sticky(error)
                if self._recover(error, again):
                    self._failures = 0
                raise

        return guarded

    def succeeded(self) -> None:
        """Note that a turn has not failed."""
        self._failures = 0

    @property
    def newest(self) -> ModelWork | None:
        """The work that was requested last, for tests and benchmarks to wait for."""
        newest = self._thread.newest if self._thread is not None else None
        return newest if isinstance(newest, ModelWork) else None

    def close(self) -> None:
        """End the thread. May be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    def _explained(self, error: Exception) -> Exception:
        """Return a ModelError with one sentence for `error`; `error` itself if it is a bug."""
        sentence = sentence_of(error)
        if sentence is None:
            return error
        self._failures += is_failure(error)
        self.lost |= is_sticky(error)
        if self._failures < FAILURES and not self.lost:
            return ModelError(sentence)
        return ModelLost(sentence, RESTART)
