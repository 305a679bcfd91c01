"""Each answer carries its own number, and any turn can be selected to see the others."""

import pytest

from tests.ui.conftest import MARKS, screen
from voxtui.dialogue.events import ReplyText, State, StateChanged, UserWords
from voxtui.ui.conversation.drawn_entries import SELECTED


async def answer(s, reply="It is Paris.", first_sound=0.25, **fields):
    timestamps = {**MARKS, "first_sound": first_sound} if first_sound else _silent()
    s.engine.begin()
    s.engine.report(UserWords(s.engine.turns, f"Question {s.engine.turns}?"))
    s.engine.report(ReplyText(s.engine.turns, reply))
    s.engine.finish(timestamps=timestamps, reply=reply, **fields)
    await s.settle()


def _silent():
    return {name: at for name, at in MARKS.items() if name != "first_sound"}


async def test_an_answer_ends_with_its_first_sound_and_a_silent_one_with_its_first_word():
    async with screen() as s:
        await answer(s)
        await answer(s, "Quiet.", first_sound=None)
        assert s.line("It is Paris.").rstrip().endswith("  ♪ 250 ms")
        assert s.line("Quiet.").rstrip().endswith("  84 ms")


async def test_a_slow_answer_is_not_judged_in_the_conversation():
    async with screen() as s:
        await answer(s)
        await answer(s, "Slow.", first_sound=1.24)
        assert s.line("Slow.").rstrip().endswith("  ♪ 1.24 s")
        lines = s.app.screen._compositor.render_strips()
        figures = [piece for line in lines for piece in line if "♪" in piece.text]
        inks = {piece.style.color for piece in figures if len(piece.text) > 2}
        assert "✗" not in s.text and len(inks) == 2  # those of the conversation, and the strip's


async def test_a_number_without_room_is_left_out_and_is_never_part_of_the_text():
    async with screen(size=(40, 24)) as s:
        reply = "Thirty-one cells of text to see"
        await answer(s, reply)
        assert "♪" not in s.line(reply)
        await s.pilot.resize_terminal(80, 24)
        await s.settle()
        assert "♪ 250 ms" in s.line(reply)
        assert "♪" not in s.app.transcript.text


async def test_up_and_down_select_a_turn_whose_times_the_panel_shows_until_down_or_escape():
    async with screen(size=(120, 40)) as s:
        for first_sound in (0.21, 0.22, 0.23):
            await answer(s, f"Answer {s.engine.turns + 1}.", first_sound)
        await s.pilot.press("up", "up")
        await s.settle()
        assert s.app.turns.selected == 2
        assert SELECTED in s.line("Question 2?") and SELECTED in s.line("Answer 2.")
        assert SELECTED not in s.line("Answer 3.")
        assert sum(SELECTED in line for line in s.lines) == 2  # not the empty line above
        assert s.app.panel.turn.number == 2 and "◂ ♪ 220 ms" in s.text
        await s.pilot.press("up", "up", "up")
        await s.settle()
        assert s.app.turns.selected == 1
        await s.pilot.press("down", "down", "down")
        await s.settle()
        assert s.app.turns.selected is None and s.app.panel.turn.number == 3
        assert SELECTED not in s.text and "◂" not in s.text
        await s.pilot.press("up")
        await s.press("escape")
        assert s.app.turns.selected is None


@pytest.mark.slow
async def test_a_click_selects_a_turn_and_the_next_turn_shows_the_newest_again():
    async with screen() as s:
        await answer(s)
        await answer(s, "A second answer.", first_sound=0.4)
        row = next(y for y, line in enumerate(s.lines) if "It is Paris." in line)
        await s.pilot.click(offset=(12, row))
        await s.settle()
        assert s.app.turns.selected == 1
        assert "◂ ♪ 250 ms" in s.text
        await answer(s, "A third one.")
        assert s.app.turns.selected is None and "◂" not in s.text


@pytest.mark.slow
async def test_a_new_conversation_leaves_nothing_to_select():
    async with screen() as s:
        await answer(s)
        await s.pilot.press("up")
        s.app.turns.forget()
        await s.pilot.press("up")
        await s.settle()
        assert s.app.turns.selected is None


@pytest.mark.slow
async def test_a_selected_turn_out_of_view_is_scrolled_into_it():
    async with screen() as s:
        for n in range(20):
            await answer(s, f"Answer {n + 1}.")
        assert "Answer 2." not in s.text
        await s.pilot.press(*["up"] * 19)
        await s.settle()
        assert s.app.turns.selected == 2 and "Answer 2." in s.text
        await s.press("escape")
        await s.settle()
        assert "Answer 20." in s.text


# What one can do with it.


async def test_the_footer_names_what_can_be_done_with_a_selected_turn():
    async with screen() as s:
        await answer(s)
        assert "Edit" not in s.lines[-1]
        await s.pilot.press("up")
        await s.settle()
        named = "Enter Edit  ^r Again  ^y Copy  ^g Speak  Del Delete  Esc Newest  ↑ Select"
        assert [*s.lines[-1].split()] == [*named.split()]
        await s.type("a")
        assert "Delete" not in s.lines[-1] and "Esc Leave" in s.lines[-1]


async def test_while_a_selected_answer_is_read_aloud_the_footer_names_the_key_that_stops_it():
    async with screen() as s:
        await answer(s)
        await s.pilot.press("up", "ctrl+g")
        s.engine.report(StateChanged(State.SPEAKING))
        await s.settle()
        assert "Esc Stop" in s.lines[-1] and "Edit" in s.lines[-1]
        await s.press("escape")
        assert s.commands[-1] == "cancel" and s.app.turns.selected == 1
        s.engine.report(StateChanged(State.READY))
        await s.settle()
        assert "Esc Newest" in s.lines[-1]


async def test_enter_edits_the_selected_turn():
    async with screen() as s:
        await answer(s)
        await answer(s, "A second answer.")
        await s.pilot.press("up", "up", "enter")
        await s.settle()
        assert s.app.bar.field.value == "Question 1?" and s.app.bar.corrected == 1
        await s.press("delete", "backspace")  # they edit the text
        assert s.app.bar.field.value == "Question 1" and "It is Paris." in s.text


async def test_a_click_on_a_turn_and_on_the_footer_does_the_same():
    async with screen() as s:
        await answer(s)
        await answer(s, "A second answer.")
        row = next(y for y, line in enumerate(s.lines) if "It is Paris." in line)
        await s.pilot.click(offset=(12, row))
        await s.settle()
        await s.pilot.click(offset=(s.lines[-1].index("Speak"), 23))
        await s.settle()
        assert s.engine.calls[-1] == ("speak", "It is Paris.")


async def test_copy_takes_the_selected_answer():
    async with screen() as s:
        await answer(s)
        await answer(s, "A second answer.")
        await s.pilot.press("up", "up", "ctrl+y")
        await s.settle()
        assert s.app.clipboard == "It is Paris."
        assert "The selected answer was handed" in s.toasts[-1]


async def test_a_deleted_turn_is_gone_from_screen_and_record_until_undo():
    async with screen() as s:
        for n in range(3):
            await answer(s, f"Answer {n + 1}.")
        before = s.app.transcript.text
        await s.pilot.press("up", "up", "delete")
        await s.settle()
        assert "Answer 2." not in s.text and [*s.app.session.record.turns] == [1, 3]
        assert s.app.turns.selected is None
        assert "The turn was removed. /undo brings it back." in s.toasts
        await s.send("/undo")
        assert not s.toasts
        assert s.app.transcript.text == before and [*s.app.session.record.turns] == [1, 2, 3]
        await s.press("escape")
        await s.pilot.press("up", "up")
        await s.settle()
        assert s.app.turns.selected == 2
