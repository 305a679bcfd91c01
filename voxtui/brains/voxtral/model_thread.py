"""The model's thread, its work, and the consequences of failures there."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from voxtui.brains.speculation import Speculation, SpeculationThread
from voxtui.brains.voxtral.cuda_errors import is_failure, is_sticky, sentence_of
from voxtui.errors import ModelError, ModelLost

if TYPE_CHECKING:
    # The benchmark of random weights imports this module without msgspec.
    from voxtui.dialogue.protocols import Progress

FAILURES = 2
"""Number of failed turns in a row after which the model counts as lost."""

RESTART = "Restart voxtui to load Voxtral again."

POLL_SECONDS = 0.1

Tokens: TypeAlias = "Callable[[], Generator[int | None, None, None]]"
"""Begins work that yields tokens, and None where it can be stopped."""

T = TypeVar("T")


class ModelWork(Speculation[int]):
    """A generator of tokens on the model's thread. It yields None where it can be stopped."""

    def __init__(
        self,
        work: Tokens,
        cancelled: Flag,
        ahead: int | None = None,
        key: Hashable = None,
        timing: PrefillTimes | None = None,
    ) -> None:
        super().__init__(key, cancelled, ahead)
        self.timing = timing or PrefillTimes()
        self._work = work
        self._items: Generator[int | None, None, None] | None = None

    def advance(self, wanted: Callable[[], bool]) -> bool:
        self._items = self._items or self._work()
        while wanted():
            try:
                token = next(self._items)
            except StopIteration:
                return True
            if token is not None:
                self.add(token)
        return False

    def release(self) -> None:
        items, self._items = self._items, None
        if items is not None:
            items.close()


@dataclass(slots=True)
class PrefillTimes:
    """The monotonic times at which a reply's audio was encoded and its prompt prefilled."""

    encoded_at: float | None = None
    prefilled_at: float | None = None
    prompt_tokens: int = 0


class ModelThread:
    """Runs one work after another, and counts failures.

    `recover(error, again)` is called on the thread after each failure; `again` if one more makes
    the model lost. It returns True if it removed the cause, so that the count begins anew.
    """

    def __init__(self, recover: Callable[[Exception, bool], bool]) -> None:
        self._recover = recover
        self._thread: SpeculationThread | None = None
        self._failures = 0
        self.lost = False
        """whether the device is unusable until the process ends"""

    def start(self) -> None:
        self._thread = SpeculationThread("voxtui-voxtral")

    def request(self, work: ModelWork) -> ModelWork:
        """Begin `work` in place of the present work. Raises ModelError before `start`."""
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
        """Return `work` with recovery after a failure."""

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
        self._failures = 0

    @property
    def newest(self) -> ModelWork | None:
        """The newest work, for tests and benchmarks to wait for."""
        newest = self._thread.newest if self._thread is not None else None
        return newest if isinstance(newest, ModelWork) else None

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    def abandon(self) -> None:
        """Give up the thread because its work does not end. The model is lost."""
        thread, self._thread, self.lost = self._thread, None, True
        if thread is not None:
            thread.close(wait=False)

    def _explained(self, error: Exception) -> Exception:
        """Return a ModelError with one sentence for `error`, or `error` itself if it is a bug."""
        sentence = sentence_of(error)
        if sentence is None:
            return error
        self._failures += is_failure(error)
        self.lost |= is_sticky(error)
        if self._failures < FAILURES and not self.lost:
            return ModelError(sentence)
        return ModelLost(sentence, RESTART)


def report_while(progress: Progress, step: str, work: Callable[[Flag], T]) -> T:
    """Run `work(stopping)` on a thread of its own, and report `step` until it ends.

    If `progress` raises, `stopping` is set, and the exception is raised once the thread has ended.
    """
    stopping = Flag()
    working: Future[T] = Future()

    def run() -> None:
        try:
            working.set_result(work(stopping))
        except BaseException as error:  # noqa: BLE001 - raised by `result` below
            working.set_exception(error)

    # A daemon, and not an executor's thread, because a load that hangs must not delay the exit.
    thread = Thread(target=run, name="voxtui-loading", daemon=True)
    thread.start()
    try:
        while True:
            progress(step, None)
            if wait((working,), POLL_SECONDS).done:
                return working.result()
    finally:
        stopping.set()
        thread.join()
