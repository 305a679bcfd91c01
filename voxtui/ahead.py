"""The one way a stage runs concurrently with the stage that consumes it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from queue import Empty, Queue
from threading import Event as Flag
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


class _Done:
    pass


@contextmanager
def ahead(items: Generator[T, None, None], limit: int, name: str) -> Generator[Iterator[T], None, None]:
    """Pull `items` on another thread, up to `limit` of them ahead of the consumer.

    An exception there is raised here. Leaving the block stops the thread at its next item, closes
    the generator on the thread that ran it, and joins.
    """
    buffer: Queue[T | BaseException | _Done] = Queue(limit)
    left = Flag()

    def produce() -> None:
        last: BaseException | _Done = _Done()
        try:
            with closing(items):
                for item in items:
                    buffer.put(item)
                    if left.is_set():
                        return
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer
            last = error
        buffer.put(last)

    def consume() -> Iterator[T]:
        while not isinstance(item := buffer.get(), _Done):
            if isinstance(item, BaseException):
                raise item
            yield item

    producer = Thread(target=produce, name=f"voxtui-{name}", daemon=True)
    producer.start()
    try:
        yield consume()
    finally:
        left.set()
        while producer.is_alive():  # it may be waiting for room
            try:
                buffer.get(timeout=0.005)
            except Empty:
                continue
