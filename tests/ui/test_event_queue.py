"""Events on their way to the screen: none is lost, and waiting text is merged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxtui.dialogue.events import Event, ReplyText, State, StateChanged
from voxtui.ui.event_queue import CHARACTERS_AT_ONCE, EventQueue

THINKING = StateChanged(State.THINKING)


class Screen:
    """Takes the events when it is woken, as the UI loop does, one wake-up at a time."""

    def __init__(self) -> None:
        self.wakes = 0
        self.later: list[Callable[[], None]] = []
        self.queue = EventQueue(self._wake, lambda seconds, call: self.later.append(call))

    def _wake(self) -> bool:
        self.wakes += 1
        return True

    def drain(self) -> list[list[Event]]:
        batches: list[list[Event]] = []
        while self.wakes or self.later:
            batches += self.look()
            if self.later:
                self.later.pop(0)()
        return batches

    def look(self) -> list[list[Event]]:
        """Take the events for which it was woken by now."""
        batches: list[list[Event]] = []
        while self.wakes:
            self.wakes -= 1
            batches.append(list(self.queue.take()))
        return batches


def test_text_that_waits_is_one_event_and_other_events_keep_their_place() -> None:
    screen = Screen()
    events = [ReplyText(1, "a "), ReplyText(1, "b"), THINKING, ReplyText(1, "c"), ReplyText(2, "d")]
    for event in events:
        screen.queue.put(event)
    assert screen.wakes == 1
    merged = [ReplyText(1, "a b"), THINKING, ReplyText(1, "c"), ReplyText(2, "d")]
    assert screen.drain() == [merged]


def test_a_long_text_is_shown_in_steps_so_that_keys_are_looked_at_between() -> None:
    screen = Screen()
    screen.queue.put(ReplyText(1, "x" * (2 * CHARACTERS_AT_ONCE + 1)))
    screen.queue.put(THINKING)
    batches = screen.drain()
    sizes = [len(e.text) for batch in batches for e in batch if isinstance(e, ReplyText)]
    assert sizes == [CHARACTERS_AT_ONCE, CHARACTERS_AT_ONCE, 1]
    assert len(batches) == 3 and batches[-1][-1] == THINKING


def test_an_event_put_while_events_are_taken_wakes_the_screen_again() -> None:
    screen = Screen()
    screen.queue.put(THINKING)
    for _ in screen.queue.take():
        screen.queue.put(ReplyText(1, "later"))
    assert screen.drain()[-1] in ([], [ReplyText(1, "later")])


def test_pieces_that_come_while_others_are_shown_wait_for_the_next_look() -> None:
    screen = Screen()
    screen.queue.put(ReplyText(1, "a"))
    shown = []
    for event in screen.queue.take():
        shown.append(event)
        screen.queue.put(ReplyText(1, "b"))
        screen.queue.put(ReplyText(1, "c"))
    assert shown == [ReplyText(1, "a")]
    assert screen.wakes == 1 and len(screen.later) == 1
    assert screen.drain()[-1] == [ReplyText(1, "bc")]


def test_an_event_put_without_a_screen_is_taken_with_the_next_one() -> None:
    there = False
    queue = EventQueue(lambda: there, lambda seconds, call: call())
    queue.put(THINKING)
    there = True
    queue.put(ReplyText(1, "a"))
    assert list(queue.take()) == [THINKING, ReplyText(1, "a")]


def test_after_its_first_words_an_answer_is_looked_at_by_time() -> None:
    screen = Screen()
    pieces = [ReplyText(1, text) for text in (" ", "a ", "b ", "c ")]
    for shown_at_once in pieces[:2]:  # white space shows nothing
        screen.queue.put(shown_at_once)
        assert screen.look() == [[shown_at_once]]
    for waits in pieces[2:]:
        screen.queue.put(waits)
        assert screen.look() == []
    screen.later.pop()()
    assert screen.look() == [[ReplyText(1, "b c ")]]
    screen.later.pop()()  # nothing came meanwhile
    screen.queue.put(ReplyText(1, "d"))
    assert screen.look() == [[ReplyText(1, "d")]]


@pytest.mark.parametrize("event", [THINKING, ReplyText(2, "a")], ids=["event", "next answer"])
def test_other_events_and_the_words_before_them_do_not_wait(event: Event) -> None:
    screen = Screen()
    screen.queue.put(ReplyText(1, "a "))
    screen.look()
    screen.queue.put(ReplyText(1, "b "))
    screen.queue.put(event)
    assert screen.look() == [[ReplyText(1, "b "), event]]


PIECES = st.builds(ReplyText, st.integers(1, 2), st.text("ab", max_size=6000))


@given(st.lists(st.one_of(PIECES, st.just(THINKING)), max_size=20))
def test_no_text_is_lost_or_put_in_another_order(events: list[Event]) -> None:
    screen = Screen()
    for event in events:
        screen.queue.put(event)
    taken = [event for batch in screen.drain() for event in batch]
    assert spelled(taken) == spelled(events)


def spelled(events: list[Event]) -> list[object]:
    """Every character with its turn, and every other event."""
    return [
        part
        for event in events
        for part in (
            [(event.turn, c) for c in event.text] if isinstance(event, ReplyText) else [event]
        )
    ]
