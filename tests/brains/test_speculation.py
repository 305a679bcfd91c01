"""The thread that computes replies before they are requested."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from math import inf

import pytest

from tests.fakes import SECONDS, Flag
from voxtui.brains.speculation import Speculation, SpeculationThread


class Counting(Speculation[int]):
    """Counts up to `end`; waits for `gate` before the token `gated`."""

    def __init__(
        self,
        key: Hashable = None,
        *,
        cancelled: Flag | None = None,
        ahead: int | None = None,
        due_at: float = 0.0,
        end: int = 5,
        gated: int | None = None,
    ) -> None:
        super().__init__(key, cancelled or Flag(), ahead, due_at)
        self.gate = Flag()
        self.at_gate = Flag()
        self.released = Flag()
        self._end, self._gated = end, gated

    def advance(self, wanted: Callable[[], bool]) -> bool:
        while wanted():
            count = len(self.computed)
            if count == self._end:
                return True
            if count == self._gated:
                self.at_gate.set()
                assert self.gate.wait(SECONDS)
            self.add(count)
        return False

    def release(self) -> None:
        self.released.set()


class Failing(Counting):
    def advance(self, wanted: Callable[[], bool]) -> bool:
        self.add(0)
        raise ZeroDivisionError


@pytest.fixture
def thread() -> Iterator[SpeculationThread]:
    thread = SpeculationThread("voxtui-test")
    yield thread
    thread.close()


def test_a_request_gets_all_tokens(thread: SpeculationThread) -> None:
    assert list(thread.request(Counting()).tokens()) == [0, 1, 2, 3, 4]


def test_nothing_is_computed_beyond_the_limit_before_a_claim(thread: SpeculationThread) -> None:
    ahead = thread.request(Counting("key", ahead=2))
    following = thread.request(Counting(end=1))  # so the thread has finished with the first
    assert list(following.tokens()) == [0]
    assert ahead.computed in ([], [0, 1])


def test_a_request_with_the_same_key_continues_the_speculation(
    thread: SpeculationThread,
) -> None:
    ahead = thread.request(Counting("key", ahead=3, gated=2))
    assert ahead.at_gate.wait(SECONDS)
    claimed = thread.request(Counting("key"))
    ahead.gate.set()
    assert claimed is ahead
    assert list(claimed.tokens()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("key", ["another", None])
def test_a_request_with_another_key_replaces_the_speculation(
    thread: SpeculationThread, key: str | None
) -> None:
    ahead = thread.request(Counting(None if key is None else "key", gated=1))
    assert ahead.at_gate.wait(SECONDS)
    other = thread.request(Counting(key))
    ahead.gate.set()
    assert other is not ahead
    assert list(other.tokens()) == [0, 1, 2, 3, 4]
    assert ahead.released.wait(SECONDS) and ahead.wait(SECONDS)
    assert len(ahead.computed) <= 2


def test_a_request_that_is_replaced_before_it_began_ends(thread: SpeculationThread) -> None:
    working = thread.request(Counting(gated=1))
    assert working.at_gate.wait(SECONDS)
    never_begun = thread.request(Counting())
    thread.request(Counting())
    assert never_begun.wait(SECONDS)
    working.gate.set()


def test_a_speculation_that_failed_is_not_claimed(thread: SpeculationThread) -> None:
    failed = thread.request(Failing("key"))
    assert failed.wait(SECONDS)
    assert list(thread.request(Counting("key")).tokens()) == [0, 1, 2, 3, 4]


def test_its_error_is_raised_after_its_tokens(thread: SpeculationThread) -> None:
    tokens = thread.request(Failing()).tokens()
    assert next(tokens) == 0
    with pytest.raises(ZeroDivisionError):
        next(tokens)


def test_a_cancelled_request_ends_its_reader_and_its_work(thread: SpeculationThread) -> None:
    cancelled = Flag()
    endless = thread.request(Counting(cancelled=cancelled, end=10**9))
    for _ in endless.tokens():
        cancelled.set()
    assert list(thread.request(Counting()).tokens()) == [0, 1, 2, 3, 4]


def test_closing_the_reader_ends_the_work(thread: SpeculationThread) -> None:
    endless = thread.request(Counting(end=10**9))
    tokens = endless.tokens()
    assert next(tokens) == 0
    tokens.close()  # type: ignore[attr-defined]
    assert not endless.has_work


def test_a_pause_waits_for_the_next_token_and_a_request_ends_it(
    thread: SpeculationThread,
) -> None:
    ahead = thread.request(Counting("key", gated=2))
    assert ahead.at_gate.wait(SECONDS)
    thread.pause(0.01)  # it waits no longer
    assert ahead.computed == [0, 1]
    ahead.gate.set()
    thread.pause(SECONDS)
    assert ahead.computed in ([0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4])
    assert list(thread.request(Counting("key")).tokens()) == [0, 1, 2, 3, 4]


def test_nothing_is_computed_before_it_is_due_unless_it_is_claimed(
    thread: SpeculationThread,
) -> None:
    later = thread.request(Counting("key", due_at=time.monotonic() + 1000))
    assert not later.wait(0.01) and not later.computed
    assert thread.request(Counting("key")) is later
    assert list(later.tokens()) == [0, 1, 2, 3, 4]


def test_it_is_computed_once_it_is_due(thread: SpeculationThread) -> None:
    soon = thread.request(Counting("key", due_at=time.monotonic() + 0.01))
    assert soon.wait(SECONDS)
    assert soon.worked_before(inf) > 0


def test_it_remembers_how_long_the_model_worked_before_a_time(thread: SpeculationThread) -> None:
    began = time.monotonic()
    ahead = thread.request(Counting("key", gated=1))
    assert ahead.at_gate.wait(SECONDS)
    released = time.monotonic()
    assert 0 < ahead.worked_before(released) <= released - began
    ahead.gate.set()
    assert ahead.wait(SECONDS)
    assert ahead.worked_before(released) <= released - began
    assert ahead.worked_before(began) == 0


def test_closing_twice_is_fine() -> None:
    thread = SpeculationThread("voxtui-test")
    unfinished = thread.request(Counting(ahead=1))
    thread.close()
    thread.close()
    assert unfinished.wait(SECONDS)
