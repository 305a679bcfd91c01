"""Compare the screen in each state with a picture of it that a person has checked.

After a change that is meant: `pytest tests/ui/test_screens.py --snapshot-update`, and look again
(`python -m tools.states DIRECTORY`).
"""

from __future__ import annotations

import pytest

from tests.ui.states import STATES, Clock, brought_about, frozen, make_app

COMPACT, LARGE, SMALL, TINY = (80, 24), (120, 40), (60, 15), (24, 6)

ALIKE = {
    "ready_toggle", "ready_hands_free", "listening_toggle", "listening_mouse",
    "listening_hands_free", "kept_while_loading", "typing", "again", "copied",
}  # fmt: skip
"""On a large screen these states differ from others by one word at most."""

OF_A_TURN = {
    "starting", "ready", "listening_hold", "thinking", "speaking", "answered", "failed_turn",
}  # fmt: skip
"""Looked at in the fast tests, too."""


def looks_the_same(snap_compare, name: str, size: tuple[int, int]) -> bool:
    act, config = STATES[name]
    clock = Clock()
    with frozen(clock):
        return snap_compare(
            make_app(config),
            terminal_size=size,
            run_before=lambda pilot: brought_about(pilot, act, clock),
        )


@pytest.mark.parametrize("name", sorted(OF_A_TURN))
def test_each_state_of_a_turn_looks_as_it_did_at_80_by_24(snap_compare, name: str) -> None:
    assert looks_the_same(snap_compare, name, COMPACT)


def test_a_tiny_terminal_still_shows_the_state_and_the_answer(snap_compare) -> None:
    assert looks_the_same(snap_compare, "speaking", TINY)


# A function of its own: syrupy fails a run of which some cases of a function are left out.
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(STATES.keys() - OF_A_TURN))
def test_each_other_state_looks_as_it_did_at_80_by_24(snap_compare, name: str) -> None:
    assert looks_the_same(snap_compare, name, COMPACT)


@pytest.mark.slow
@pytest.mark.parametrize("name", STATES)
def test_each_state_looks_as_it_did_at_60_by_15(snap_compare, name: str) -> None:
    assert looks_the_same(snap_compare, name, SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(STATES.keys() - ALIKE))
def test_each_state_looks_as_it_did_at_120_by_40(snap_compare, name: str) -> None:
    assert looks_the_same(snap_compare, name, LARGE)
