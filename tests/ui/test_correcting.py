"""What was heard is corrected in the text field, and any turn is answered again."""

import pytest

from tests.ui.conftest import Screen, screen
from voxtui.dialogue.events import (
    LoadFailed,
    ReplyText,
    SpokenUpTo,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.timestamps import Milestone, Outcome, Timestamps
from voxtui.errors import ModelError

MARKS = {"released": 0.0, "first_token": 0.1, "first_sound": 0.2, "last_token": 0.5}


async def answered(s: Screen, words: str, reply: str, replaces: int | None = None, **fields):
    s.engine.turns += 1
    number, timestamps = s.engine.turns, Timestamps()
    timestamps.record(Milestone.RELEASED, 100.0)
    s.engine.report(
        TurnStarted(number, "microphone", timestamps, replaces), UserWords(number, words)
    )
    s.engine.report(ReplyText(number, reply))
    if "cut" in fields:
        s.engine.report(SpokenUpTo(number, fields.pop("cut")))
    s.engine.finish(**{"timestamps": MARKS, "reply": reply, **fields})
    await s.settle()


async def test_what_was_heard_stands_in_the_field_and_enter_sends_it_in_place_of_that_turn():
    async with screen() as s:
        await answered(s, "the capital of Brussels", "It is a city.")
        await s.press("ctrl+o")
        assert s.app.bar.field.value == "the capital of Brussels"
        assert "Enter: answer this instead" in s.text
        await s.press(*["backspace"] * len("Brussels"))
        await s.type("Belgium?")
        await s.press("enter")
        assert s.engine.calls[-1] == ("redo", 1, "the capital of Belgium?")
        assert s.app.bar.field.value == ""
        await s.send("hello")
        assert s.engine.calls[-1] == ("say", "hello")


@pytest.mark.slow
async def test_escape_leaves_the_turn_as_it_was_and_brings_no_draft_back():
    async with screen() as s:
        await answered(s, "the capital of Brussels", "It is a city.")
        await s.send("/edit")
        await s.type("x")
        await s.press("escape")
        assert s.commands == []
        assert "the capital of Brussels" in s.text and "Brusselsx" not in s.text
        await s.send("hello")
        assert s.commands == ["say"]


@pytest.mark.slow
async def test_a_selected_turn_is_corrected_and_answered_again():
    async with screen() as s:
        for n in (1, 2, 3):
            await answered(s, f"Question {n}?", f"Answer {n}.")
        await s.pilot.press("up", "up")
        await s.press("ctrl+r")
        assert s.engine.calls[-1] == ("redo", 2, None)
        await s.press("ctrl+o")
        assert s.app.bar.field.value == "Question 2?"
        await s.press("enter")
        assert s.engine.calls[-1] == ("redo", 2, "Question 2?")
        await answered(s, "Question 2?", "Answer 4.")  # no longer selected
        await s.press("ctrl+r")
        assert s.engine.calls[-1] == ("redo", 4, None)


@pytest.mark.slow
async def test_a_text_that_was_begun_is_kept_as_a_draft():
    async with screen() as s:
        await answered(s, "Question?", "Answer.")
        await s.type("a thought")
        await s.press("ctrl+o")
        assert s.app.bar.field.value == "Question?"
        await s.press("escape")
        await s.pilot.press("up")
        assert s.app.bar.field.value == "a thought"


@pytest.mark.slow
async def test_a_command_in_the_field_is_obeyed_and_corrects_nothing():
    async with screen() as s:
        await answered(s, "Question?", "Answer.")
        await s.press("ctrl+o", "ctrl+u")
        await s.send("/mute")
        await s.send("hello")
        assert s.commands == ["mute", "say"]


@pytest.mark.slow
async def test_a_correction_that_is_refused_stays_in_the_field():
    async with screen() as s:
        await answered(s, "Question?", "Answer.")
        await s.press("ctrl+o")
        s.engine.report(LoadFailed(ModelError("Lost.")))
        await s.settle()
        await s.press("enter")
        assert s.app.bar.field.value == "Question?"
        assert s.app.bar.corrected == 1
        assert s.commands == []


@pytest.mark.slow
async def test_an_answer_that_replaces_another_takes_its_place_on_the_screen_and_in_the_record():
    async with screen() as s:
        await answered(s, "Question 1?", "Answer 1.")
        await answered(s, "Wrong?", "Answer 2.")
        await answered(s, "Right?", "Answer 3.", replaces=2)
        assert "Wrong?" not in s.text and "Answer 2." not in s.text
        assert "Answer 1." in s.text and "Answer 3." in s.text
        assert [t.words for t in s.app.session.record.finished] == ["Question 1?", "Right?"]
        await s.pilot.press("up", "up")
        assert s.app.turns.selected == 1


async def test_an_answer_of_which_nothing_was_heard_replaces_nothing():
    async with screen() as s:
        await answered(s, "Wrong?", "Answer 1.")
        await answered(s, "Right?", "Answer 2.", replaces=1, cut="", outcome=Outcome.CANCELLED)
        assert "Answer 1." in s.text and "Right?" in s.text
        assert len(s.app.session.record.finished) == 2
