"""The one way a stage runs concurrently with the stage that consumes it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from queue import Empty, Queue
from threading import Event as Flag
from threading import Thread
from typing import TypeVar

T = TypeVar("T")

TICK_SECONDS = 0.02
"""How soon whoever waits for another thread notices that nobody wants the result any more."""


SWITCH_SECONDS = 0.001
"""How long a thread may keep the interpreter from the others. Python's own 5 ms are paid anew at
every hop from thread to thread while the screen paints: `python -m benchmarks.stages`."""


class FirstItemTimeout(Exception):
    """The first item did not come in time, or the items became unwanted before the next.

    `thread` is still working on it.
    """

    def __init__(self, thread: Thread) -> None:
        super().__init__(f"{thread.name} gave nothing in time")
        self.thread = thread


class _Done:
    pass


@contextmanager
def prefetch(
    items: Generator[T, None, None],
    limit: int,
    name: str,
    first_within: float | None = None,
    unwanted: Callable[[], bool] = lambda: False,
) -> Generator[Iterator[T], None, None]:
    """Pull `items` on another thread, up to `limit` of them ahead of the consumer.

    An exception there is raised here. Leaving the block stops the thread at its next item, closes
    the generator on the thread that ran it, and joins. With `first_within` the thread is one that
    cannot be stopped: if its first item takes longer than so many seconds, or the items become
    `unwanted` before the next has come, FirstItemTimeout is raised, and it
    is left to end by itself.
    """
    buffer: Queue[T | BaseException | _Done] = Queue(limit)
    left = Flag()
    stalled = False

    def put(item: T | BaseException | _Done) -> None:
        if not left.is_set():
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

    def take(within: float | None) -> T | BaseException | _Done:
        nonlocal stalled
        waited = 0.0
        while True:
            try:
                return buffer.get(timeout=None if first_within is None else TICK_SECONDS)
            except Empty:
                waited += TICK_SECONDS  # the clock goes on while the process is suspended (Ctrl+Z)
                stalled = unwanted() or (within is not None and waited > within)
                if stalled:
                    raise FirstItemTimeout(producer) from None

    def consume() -> Iterator[T]:
        item = take(first_within)
        while not isinstance(item, _Done):
            if isinstance(item, BaseException):
                raise item
            yield item
            item = take(None)

    producer = Thread(target=produce, name=f"voxtui-{name}", daemon=True)
    producer.start()
    try:
        yield consume()
    finally:
        left.set()
        while producer.is_alive():
            try:
                buffer.get(timeout=0.005)  # it may be waiting for room
            except Empty:
                if stalled or unwanted():
                    break
