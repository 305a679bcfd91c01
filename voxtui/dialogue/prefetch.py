"""Run the producer of a stream on its own thread, ahead of its consumer."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from queue import SimpleQueue
from threading import Event as Flag
from threading import Thread
from typing import TypeVar

T = TypeVar("T")

TICK_SECONDS = 0.02
"""Polling interval of a thread that waits for another one and must notice a cancel meanwhile."""


SWITCH_SECONDS = 0.001
"""Interpreter switch interval. Python's default of 5 ms is paid at every hop between threads while
the screen paints, because the painting thread holds the interpreter: see benchmarks/stages.py."""


class _End:
    pass


@contextmanager
def prefetch(items: Generator[T, None, None], name: str) -> Generator[Iterator[T], None, None]:
    """Pull `items` on a thread called `voxtui-NAME`, as fast as they come.

    An exception of `items` is raised in the consumer. Leaving the block stops the thread at its
    next item, closes `items` on the thread that ran it, and joins the thread.
    """
    queue: SimpleQueue[T | BaseException | _End] = SimpleQueue()
    left = Flag()

    def produce() -> None:
        end: BaseException | _End = _End()
        try:
            with closing(items):
                for item in items:
                    queue.put(item)
                    if left.is_set():
                        break
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer
            end = error
        queue.put(end)

    def consume() -> Iterator[T]:
        while not isinstance(item := queue.get(), _End):
            if isinstance(item, BaseException):
                raise item
            yield item

    producer = Thread(target=produce, name=f"voxtui-{name}", daemon=True)
    producer.start()
    try:
        yield consume()
    finally:
        left.set()
        producer.join()
