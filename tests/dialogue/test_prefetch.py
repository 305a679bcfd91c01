from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from tests.fakes import SECONDS
from voxtui.dialogue.prefetch import prefetch


def alive() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("voxtui-test")]


def numbers(closed: threading.Event | None = None) -> Generator[int, None, None]:
    try:
        yield from range(1000)
    finally:
        if closed:
            closed.set()


def test_items_arrive_in_order() -> None:
    with prefetch(numbers(), "test") as items:
        assert list(items) == list(range(1000))
    assert alive() == []


def test_the_producer_runs_ahead_of_the_consumer() -> None:
    made = threading.Event()

    def source() -> Generator[int, None, None]:
        yield 1
        yield 2
        made.set()

    with prefetch(source(), "test") as items:
        assert made.wait(SECONDS)
        assert list(items) == [1, 2]


def test_leaving_early_closes_the_generator_on_its_thread_and_joins() -> None:
    more, closed_on, went_on = threading.Event(), list[threading.Thread](), threading.Event()

    def source() -> Generator[int, None, None]:
        try:
            yield 1
            assert more.wait(SECONDS)
            yield 2
            went_on.set()
        finally:
            closed_on.append(threading.current_thread())

    with prefetch(source(), "test") as items:
        assert next(items) == 1
        threading.Timer(0.05, more.set).start()
    assert [thread.name for thread in closed_on] == ["voxtui-test"] and alive() == []
    assert not went_on.is_set()


def test_an_exception_is_raised_in_the_consumer_after_the_items_before_it() -> None:
    def broken() -> Generator[int, None, None]:
        yield 1
        raise LookupError("lost")

    with prefetch(broken(), "test") as items:
        assert next(items) == 1
        with pytest.raises(LookupError, match="lost"):
            next(items)
    assert alive() == []


def test_a_consumer_that_raises_leaves_no_thread() -> None:
    closed = threading.Event()
    with pytest.raises(KeyError), prefetch(numbers(closed), "test") as items:
        next(items)
        raise KeyError
    assert closed.is_set() and alive() == []
