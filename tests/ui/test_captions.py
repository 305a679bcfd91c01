"""The words appear while they are spoken."""

import pytest

from tests.ui.conftest import Screen, screen
from tests.ui.states import speech
from voxtui.dialogue.events import Caption, Captured, State, StateChanged, UserWords
from voxtui.dialogue.timestamps import Outcome
from voxtui.ui.talk.talkbar import caption

WORDS = "What is the capital of"


async def listening(s: Screen) -> None:
    s.engine.begin()
    s.engine.report(StateChanged(State.LISTENING))
    await s.settle()


async def said(s: Screen, text: str = WORDS, settled: int = 8) -> None:
    s.engine.report(Caption(s.engine.turns, text, settled))
    await s.settle()
    s.app.tick()
    await s.settle()


def prompt(s: Screen) -> str:
    """Return the middle line of the bar at the bottom."""
    return next(line for line in reversed(s.lines) if any(b in line for b in "○●◐♪"))


@pytest.mark.slow
async def test_the_words_stand_at_the_prompt_while_one_speaks_and_the_hint_above_them():
    async with screen() as s:
        await listening(s)
        await said(s)
        assert WORDS in prompt(s)
        assert "Esc: drop" in s.lines[s.lines.index(prompt(s)) - 1]
        await said(s, "What is the capital of France?", len(WORDS))
        assert "What is the capital of France?" in prompt(s)
        assert s.text.count("capital") == 1


@pytest.mark.slow
async def test_on_release_the_words_move_up_and_the_final_ones_replace_them():
    async with screen() as s:
        await listening(s)
        await said(s)
        s.engine.report(Captured(s.engine.turns, speech()), StateChanged(State.THINKING))
        await s.settle()
        assert WORDS not in prompt(s)
        assert s.text.count(WORDS) == 1
        s.engine.report(UserWords(s.engine.turns, "What is the cattle of Spain?"))
        await s.settle()
        assert "What is the cattle of Spain?" in s.text
        assert WORDS not in s.text


@pytest.mark.slow
async def test_an_empty_text_field_gives_way_to_the_words():
    async with screen() as s:
        await s.send("/clip 1")
        await listening(s)
        await said(s)
        assert WORDS in prompt(s)


async def test_words_that_come_after_the_release_change_nothing():
    async with screen() as s:
        await listening(s)
        s.engine.report(Captured(s.engine.turns, speech()), StateChanged(State.THINKING))
        s.engine.report(UserWords(s.engine.turns, "Hello."))
        await said(s)
        assert WORDS not in s.text


@pytest.mark.slow
async def test_a_tap_or_escape_ends_the_words_and_leaves_nothing():
    async with screen() as s:
        await listening(s)
        await said(s)
        s.engine.finish(Outcome.CANCELLED)
        await s.settle()
        await said(s)
        assert WORDS not in s.text
        assert "speak, or type" in prompt(s)
        assert s.app.session.record.finished == []


@pytest.mark.parametrize(
    ("settled", "cells", "shown", "may_change"),
    [
        (7, 10, "one two", ""),
        (4, 10, "one two", "two"),
        (5, 10, "one two", "two"),  # a part of a word is not settled
        (7, 6, "…e two", ""),
        (4, 4, "…two", "two"),
        (7, 0, "", ""),
    ],
)
def test_the_end_of_a_long_text_stays_in_view_and_a_word_that_may_change_looks_so(
    settled: int, cells: int, shown: str, may_change: str
) -> None:
    content = caption("one two", settled, cells)
    parts = [
        content.plain[span.start : span.end] for span in content.spans if "italic" in span.style
    ]
    assert (content.plain[:cells], "".join(parts)) == (shown, may_change)


def test_wide_characters_fit_too() -> None:
    assert caption("日本語", 3, 5).plain == "…本語"
