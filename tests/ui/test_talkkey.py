"""When talking begins and ends, from the times of presses alone."""

import random
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxtui.ui.talk.talkkey import SETTLE_SECONDS, Begin, End, TalkKey


def type_keys(key, presses, until):
    """Press at each time, and let every deadline in between pass."""
    acts = []
    for at in [*presses, until]:
        while key.deadline is not None and key.deadline < at:
            acts += key.settle(key.deadline)
        if at != until:
            acts += key.press(at)
    return acts


def held(start, seconds, delay, gap):
    """Return the presses that auto-repeat makes of a held key."""
    times, at = [start], start + delay
    while at < start + seconds:
        times.append(at)
        at += gap
    return times


# A terminal that reports releases.


@pytest.fixture
def reported():
    key = TalkKey()
    key.releases = True
    return key


def test_down_begins_and_up_ends(reported):
    assert reported.press(1.0) == [Begin(1.0)]
    assert reported.press(1.5, repeated=True) == []
    assert reported.release(2.0) == [End(2.0)]
    assert reported.release(2.1) == []
    assert reported.press(3.0) == [Begin(3.0)]


def test_a_repeat_of_a_key_that_went_down_elsewhere_does_not_begin(reported):
    assert reported.press(1.0, repeated=True) == []
    assert reported.release(2.0) == []


def test_the_next_press_ends_a_talk_whose_release_was_lost(reported):
    reported.press(1.0)
    assert reported.press(2.0) == [End(2.0)]
    assert reported.release(2.1) == []
    assert reported.press(3.0) == [Begin(3.0)]


def test_losing_the_focus_is_a_release(reported):
    reported.press(1.0)
    assert reported.lose_focus(1.5) == [End(1.5)]
    assert reported.release(2.0) == []


def test_a_talk_that_was_dropped_does_not_end_when_the_key_comes_up(reported):
    reported.press(1.0)
    reported.abandon()
    assert reported.press(1.5, repeated=True) == []
    assert reported.release(2.0) == []
    assert reported.press(3.0) == [Begin(3.0)]


def test_the_first_release_proves_that_releases_are_reported():
    key = TalkKey()
    assert key.press(1.0) == [Begin(1.0)]
    assert key.release(1.2) == [End(1.2)]
    assert key.releases


# A terminal that does not.


@pytest.mark.parametrize("gap", [0.2, 0.4, 1.0, 1.5, 60.0])
def test_a_tap_begins_and_a_tap_ends(gap):
    assert type_keys(TalkKey(), [5.0, 5.0 + gap], 100.0) == [Begin(5.0), End(5.0 + gap)]


def test_a_tap_that_cannot_be_a_repeat_ends_at_once():
    key = TalkKey()
    key.press(1.0)
    assert key.press(2.2) == [End(2.2)]


@pytest.mark.parametrize("gap", [0.2, 0.5, 1.0])
def test_the_tap_that_ends_is_known_as_one_150_ms_later(gap):
    key = TalkKey()
    key.press(1.0)
    key.press(1.0 + gap)
    assert key.deadline == pytest.approx(1.0 + gap + 0.15)


def test_losing_the_focus_between_two_taps_does_not_end():
    key = TalkKey()
    key.press(1.0)
    assert key.lose_focus(2.0) == []
    assert key.press(9.0) == [End(9.0)]


# Delay and gap: X11, the Linux console, macOS fast and slow, Windows slow, a fast gamer's.
RATES = [(0.66, 0.04), (0.25, 0.033), (0.225, 0.03), (1.0, 0.09), (1.0, 0.12), (0.15, 0.015)]


@pytest.mark.parametrize(("delay", "gap"), RATES)
@pytest.mark.parametrize("seconds", [1.5, 3.0, 30.0])
def test_a_run_of_repeats_is_a_hold_that_ends_with_its_last(delay, gap, seconds):
    begin, end = type_keys(TalkKey(), held(5.0, seconds, delay, gap), 100.0)
    assert begin == Begin(5.0)
    assert isinstance(end, End)
    assert seconds - gap - 1e-6 <= end.at - 5.0 <= seconds


@pytest.mark.parametrize(
    ("gaps", "known"),
    [([0.03] * 12, 0.12), ([0.1] * 12, 0.3), ([0.1] * 3 + [0.29] * 9, 0.5)],
)
def test_the_end_of_a_hold_is_known_after_three_of_its_gaps_within_bounds(gaps, known):
    key, presses = TalkKey(), [*accumulate([5.0, 0.5, *gaps])]
    type_keys(key, presses[:-1], presses[-1])
    key.press(presses[-1])
    assert key.deadline == pytest.approx(presses[-1] + known)


@pytest.mark.parametrize(("delay", "gap"), RATES)
def test_two_holds_are_two_talks(delay, gap):
    presses = held(5.0, 2.0, delay, gap) + held(9.0, 2.0, delay, gap)
    acts = type_keys(TalkKey(), presses, 100.0)
    assert [type(act) for act in acts] == [Begin, End, Begin, End]


@pytest.mark.parametrize("seed", range(20))
def test_uneven_repeats_never_end_a_talk(seed):
    shaken = random.Random(seed)
    presses = sorted(at + shaken.uniform(0, 0.08) for at in held(5.0, 4.0, 0.5, 0.033))
    acts = type_keys(TalkKey(), presses, 100.0)
    assert [type(act) for act in acts] == [Begin, End]


@given(st.floats(0.15, 1.05), st.floats(0.01, 0.34), st.floats(0.3, 10))
def test_a_held_key_begins_only_once_at_any_repeat_rate(delay, gap, seconds):
    acts = type_keys(TalkKey(), held(5.0, seconds, delay, gap), 100.0)
    assert sum(isinstance(act, Begin) for act in acts) == 1


def test_repeats_after_a_talk_was_dropped_do_not_begin_another():
    key = TalkKey()
    presses = held(5.0, 3.0, 0.5, 0.04)
    assert [type(act) for act in type_keys(key, presses[:20], presses[20])] == [Begin]
    key.abandon()
    assert type_keys(key, presses[20:], presses[-1] + SETTLE_SECONDS + 0.01) == []
    assert key.press(presses[-1] + SETTLE_SECONDS + 0.01) != []


@given(
    st.lists(
        st.tuples(
            st.floats(0, 2),
            st.sampled_from(["press", "repeat", "release", "settle", "blur", "abandon"]),
        ),
        max_size=60,
    )
)
def test_talks_begin_and_end_alternately_for_any_input(steps):
    key, now, talking = TalkKey(), 0.0, False
    for gap, what in steps:
        now += gap
        match what:
            case "press" | "repeat":
                acts = key.press(now, what == "repeat")
            case "release":
                acts = key.release(now)
            case "settle":
                acts = key.settle(now)
            case "blur":
                acts = key.lose_focus(now)
            case "abandon":
                key.abandon()
                acts, talking = [], False
        for act in acts:
            assert isinstance(act, End) == talking
            assert act.at <= now
            talking = not talking
