"""Run the producer of a stream on its own thread, ahead of its consumer."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from queue import SimpleQueue
from threading import Event as Flag
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")

TICK_SECONDS = 0.02
"""Polling interval of a thread that waits for another one and must also notice a cancel."""

SWITCH_SECONDS = 0.001
"""Interpreter switch interval. Python's default is 5 ms, which every hop between threads costs
while the painting thread holds the interpreter: see benchmarks/stages.py."""


class _End:
    pass


class Prefetched(Iterator[T], Generic[T]):
    def __init__(self) -> None:
        self._queue: SimpleQueue[T | BaseException | _End] = SimpleQueue()
        self._over = False

    def put(self, item: T | BaseException | _End) -> None:
        self._queue.put(item)

    def __next__(self) -> T:
        return self.within(None)

    def within(self, seconds: float | None) -> T:
        """Return the next item. Raises queue.Empty after `seconds` (None: never).

        Raises StopIteration at the end, and the producer's exception.
        """
        if self._over:
            raise StopIteration
        item = self._queue.get(timeout=seconds)
        if not isinstance(item, _End | BaseException):
            return item
        self._over = True
        raise StopIteration if isinstance(item, _End) else item


@contextmanager
def prefetch(items: Generator[T, None, None], name: str) -> Generator[Prefetched[T], None, None]:
    """Pull `items` on a thread named `voxtui-NAME`, as fast as they come.

    The consumer gets an exception of `items`. Leaving the context stops the thread at its next
    item, closes `items` on that thread, and joins it.
    """
    prefetched = Prefetched[T]()
    left = Flag()

    def produce() -> None:
        end: BaseException | _End = _End()
        try:
            with closing(items):
                for item in items:
                    prefetched.put(item)
                    if left.is_set():
                        break
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer
            end = error
        prefetched.put(end)

    producer = Thread(target=produce, name=f"voxtui-{name}", daemon=True)
    producer.start()
    try:
        yield prefetched
    finally:
        left.set()
        producer.join()
