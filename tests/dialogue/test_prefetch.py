from __future__ import annotations

import threading
import time
from collections.abc import Generator
from itertools import count

import pytest

from tests.fakes import SECONDS
from voxtui.dialogue.prefetch import FirstItemTimeout, prefetch


def alive() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("voxtui-test")]


def numbers(closed: threading.Event | None = None) -> Generator[int, None, None]:
    try:
        yield from range(1000)
    finally:
        if closed:
            closed.set()


def test_items_arrive_in_order() -> None:
    with prefetch(numbers(), 3, "test") as items:
        assert list(items) == list(range(1000))
    assert alive() == []


def test_the_producer_runs_ahead_of_the_consumer() -> None:
    made = threading.Event()

    def source() -> Generator[int, None, None]:
        yield 1
        yield 2
        made.set()

    with prefetch(source(), 4, "test") as items:
        assert made.wait(SECONDS)
        assert list(items) == [1, 2]


def test_leaving_early_closes_the_generator_and_joins() -> None:
    closed = threading.Event()
    with prefetch(numbers(closed), 2, "test") as items:
        assert next(items) == 0
    assert closed.is_set() and alive() == []


def test_leaving_waits_for_the_item_that_is_worked_on() -> None:
    working, go_on = threading.Event(), threading.Event()

    def slow() -> Generator[int, None, None]:
        working.set()
        go_on.wait(SECONDS)
        yield 1

    with prefetch(slow(), 1, "test"):
        assert working.wait(SECONDS)
        threading.Timer(0.1, go_on.set).start()
    assert go_on.is_set() and alive() == []


def test_an_exception_is_raised_in_the_consumer() -> None:
    def broken() -> Generator[int, None, None]:
        yield 1
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"), prefetch(broken(), 2, "test") as items:
        list(items)
    assert alive() == []


def test_a_consumer_that_raises_leaves_no_thread_not_even_a_nested_one() -> None:
    closed = threading.Event()

    def outer() -> Generator[int, None, None]:
        with prefetch(numbers(closed), 2, "test-inner") as items:
            yield from items

    with pytest.raises(KeyError), prefetch(outer(), 2, "test-outer") as items:
        next(items)
        raise KeyError
    assert closed.is_set() and alive() == []


def test_a_first_item_that_does_not_come_is_not_waited_for() -> None:
    go_on = threading.Event()

    def slow() -> Generator[int, None, None]:
        go_on.wait(SECONDS)
        yield 1

    with (
        pytest.raises(FirstItemTimeout) as stalled,
        prefetch(slow(), 1, "test", first_within=0.01) as items,
    ):
        next(items)
    thread = stalled.value.thread
    assert thread.is_alive()
    go_on.set()
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_a_first_item_that_comes_late_but_in_time_is_waited_for() -> None:
    waited_for = threading.Event()

    def slow() -> Generator[int, None, None]:
        waited_for.wait(SECONDS)
        yield 1

    def unwanted() -> bool:
        waited_for.set()
        return False

    with prefetch(slow(), 1, "test", 2 * SECONDS, unwanted) as items:
        assert list(items) == [1]


def test_what_is_unwanted_is_not_waited_for_and_nobody_reads_what_comes_of_it() -> None:
    go_on, unwanted, closed = threading.Event(), threading.Event(), threading.Event()

    def deep() -> Generator[int, None, None]:
        try:
            yield 1
            go_on.wait(SECONDS)
            yield 2
        finally:
            closed.set()

    with (
        pytest.raises(FirstItemTimeout) as stalled,
        prefetch(deep(), 1, "test", 1.0, unwanted.is_set) as items,
    ):
        assert next(items) == 1
        unwanted.set()
        next(items)
    go_on.set()
    stalled.value.thread.join(SECONDS)
    assert closed.is_set() and alive() == []


def test_leaving_what_is_unwanted_does_not_wait_for_it() -> None:
    go_on = threading.Event()

    def deep() -> Generator[int, None, None]:
        yield 1
        go_on.wait(SECONDS)

    with prefetch(deep(), 1, "test", 1.0, lambda: True) as items:
        assert next(items) == 1
    assert alive() == ["voxtui-test"]
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "voxtui-test":
            thread.join(SECONDS)


def test_a_first_item_is_not_late_because_the_process_was_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While it is stopped by Ctrl+Z, the clock goes on."""
    monkeypatch.setattr(time, "monotonic", count(0.0, 100.0).__next__)
    waited, go_on = threading.Event(), threading.Event()

    def slow() -> Generator[int, None, None]:
        assert go_on.wait(SECONDS)
        yield 1

    def unwanted() -> bool:
        (go_on if waited.is_set() else waited).set()
        return False

    with prefetch(slow(), 1, "test", first_within=SECONDS, unwanted=unwanted) as items:
        assert list(items) == [1]
