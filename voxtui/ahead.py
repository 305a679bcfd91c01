"""The one way a stage runs concurrently with the stage that consumes it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from queue import Empty, Queue
from threading import Event as Flag
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


class Stalled(Exception):
    """The first item did not come in time; `thread` is still at it."""

    def __init__(self, thread: Thread) -> None:
        super().__init__(f"{thread.name} gave nothing in time")
        self.thread = thread


class _Done:
    pass


@contextmanager
def ahead(
    items: Generator[T, None, None], limit: int, name: str, first_within: float | None = None
) -> Generator[Iterator[T], None, None]:
    """Pull `items` on another thread, up to `limit` of them ahead of the consumer.

    An exception there is raised here. Leaving the block stops the thread at its next item, closes
    the generator on the thread that ran it, and joins. If the first item takes longer than
    `first_within` seconds, Stalled is raised and the thread, which cannot be stopped, is left to
    end by itself.
    """
    buffer: Queue[T | BaseException | _Done] = Queue(limit)
    left = Flag()
    stalled = False

    def put(item: T | BaseException | _Done) -> None:
        if not stalled:
            buffer.put(item)

    def produce() -> None:
        last: BaseException | _Done = _Done()
        try:
            with closing(items):
                for item in items:
                    put(item)
                    if left.is_set():
                        return
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer
            last = error
        put(last)

    def consume() -> Iterator[T]:
        nonlocal stalled
        try:
            item = buffer.get(timeout=first_within)
        except Empty:
            stalled = True
            raise Stalled(producer) from None
        while not isinstance(item, _Done):
            if isinstance(item, BaseException):
                raise item
            yield item
            item = buffer.get()

    producer = Thread(target=produce, name=f"voxtui-{name}", daemon=True)
    producer.start()
    try:
        yield consume()
    finally:
        left.set()
        while producer.is_alive() and not stalled:  # it may be waiting for room
            try:
                buffer.get(timeout=0.005)
            except Empty:
                continue
