"""Report the progress of a step of loading that blocks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Event as Flag
from typing import TypeVar, cast

from voxtui.dialogue.protocols import Progress

POLL_SECONDS = 0.2

T = TypeVar("T")


def report_while(
    progress: Progress, step: str, work: Callable[[Flag], T],
    done: Callable[[], float | None] = lambda: None,
) -> T:  # fmt: skip
    """Run `work(stopping)` on a thread of its own, and report `step` and `done()` until it ends.

    If `progress` raises, `stopping` is set, and the exception is raised once the thread has ended.
    """
    stopping = Flag()
    ended: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            ended.put((work(stopping), None))
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            ended.put((None, error))

    thread = threading.Thread(target=run, name="voxtui-loading", daemon=True)
    thread.start()
    try:
        while True:
            progress(step, done())
            with contextlib.suppress(Empty):
                result, error = ended.get(timeout=POLL_SECONDS)
                if error is not None:
                    raise error
                return cast("T", result)
    finally:
        stopping.set()
        thread.join()
