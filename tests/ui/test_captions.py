"""The words appear in the conversation while they are spoken, in full."""

import pytest

from tests.ui.conftest import Screen, screen
from tests.ui.states import speech
from voxtui.dialogue.events import Caption, Captured, State, StateChanged, UserWords
from voxtui.dialogue.timestamps import Outcome

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


@pytest.mark.slow
async def test_the_words_stand_in_the_conversation_and_the_hint_at_the_prompt():
    async with screen() as s:
        await listening(s)
        assert "You  (speaking…)" in s.text
        await said(s)
        assert f"You  {WORDS}" in s.text and "(speaking" not in s.text
        assert "s  Esc: drop" in s.line("LISTENING")
        await said(s, "What is the capital of France?", len(WORDS))
        assert "You  What is the capital of France?" in s.text
        assert s.text.count("capital") == 1


@pytest.mark.slow
async def test_no_word_of_a_long_utterance_is_cut():
    words = [f"word{n}" for n in range(60)]
    async with screen() as s:
        await listening(s)
        await said(s, " ".join(words), 40)
        assert [word for word in words if word not in s.text] == []


@pytest.mark.slow
async def test_on_release_the_words_stay_and_the_final_ones_replace_them():
    async with screen() as s:
        await listening(s)
        await said(s)
        s.engine.report(Captured(s.engine.turns, speech()), StateChanged(State.THINKING))
        await s.settle()
        assert s.text.count(WORDS) == 1
        s.engine.report(UserWords(s.engine.turns, "What is the cattle of Spain?"))
        await s.settle()
        assert "What is the cattle of Spain?" in s.text
        assert WORDS not in s.text


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
        assert "speak, or type" in s.line("READY")
        assert s.app.session.record.finished == []


@pytest.mark.parametrize(
    ("settled", "may_change"),
    [(7, ""), (4, "two"), (5, "two"), (0, "one two")],  # a part of a word is not settled
)
async def test_a_word_that_may_change_looks_so(settled: int, may_change: str) -> None:
    async with screen() as s:
        await listening(s)
        await said(s, "one two", settled)
        content = s.app.transcript.entries[-1].content
        slanted = [content.plain[p.start : p.end] for p in content.spans if "italic" in p.style]
        assert "".join(slanted) == may_change
