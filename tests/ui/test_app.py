import asyncio
import queue
import threading
import time
from pathlib import Path
from random import Random

import pytest
from msgspec import structs
from textual import events
from textual.geometry import Offset
from textual.selection import Selection
from textual.widgets import Input, OptionList

from tests.fakes import SECONDS, make_factories
from tests.ui.conftest import MARKS, screen, until
from tests.ui.states import LOADED, turn
from voxtui.dialogue.events import (
    Died,
    LoadFailed,
    Loading,
    MicrophoneLost,
    MicrophoneOpened,
    Notice,
    PrefillProgress,
    ReplyText,
    SpokenUpTo,
    State,
    StateChanged,
    UserWords,
)
from voxtui.dialogue.history.attachments import Attachment
from voxtui.dialogue.timestamps import NO_WORDS, Milestone, Outcome, Turn
from voxtui.errors import InputError, ModelError
from voxtui.settings.schema import Config, VadConfig
from voxtui.ui.app import VoxtuiApp
from voxtui.ui.conversation.transcript import Transcript
from voxtui.ui.help import Help
from voxtui.ui.panel.panel import FullView
from voxtui.ui.panel.waterfall import STAGES
from voxtui.ui.startup import SUGGESTIONS, not_loaded

# The turn, as it is seen.


async def test_a_turn_is_shown_from_the_first_word_to_the_last():
    async with screen() as s:
        s.engine.begin()
        s.engine.report(StateChanged(State.LISTENING))
        await s.settle()
        assert "● LISTENING" in s.text
        assert "(speaking…)" in s.line("You")
        s.engine.report(StateChanged(State.THINKING))
        await s.settle()
        assert "◐ THINKING" in s.text
        assert "…" in s.line("Vox")
        s.engine.report(UserWords(1, "What is the capital?"), ReplyText(1, "It is"))
        await s.settle()
        assert "What is the capital?" in s.line("You")
        assert "It is" in s.line("Vox")
        s.engine.report(ReplyText(1, " Paris."), StateChanged(State.SPEAKING))
        await s.settle()
        assert "It is Paris." in s.line("Vox")
        assert "♪ SPEAKING" in s.text
        s.engine.finish(reply="It is Paris.")
        await s.settle()
        assert "○ READY" in s.text


async def test_without_a_transcript_the_length_of_the_speech_is_shown():
    async with screen() as s:
        s.engine.begin(at=time.monotonic() + 2.0)
        s.engine.report(StateChanged(State.LISTENING), StateChanged(State.THINKING))
        s.engine.report(ReplyText(1, "Yes."))
        s.engine.finish()
        await s.settle()
        assert "(2.0 s)" in s.line("You")


async def test_each_piece_of_text_is_shown_without_waiting_for_the_next():
    async with screen() as s:
        s.engine.begin("typed")
        for piece in ("One", " two", " three"):
            s.engine.report(ReplyText(1, piece))
            await s.settle()
            assert piece in s.line("Vox")


async def test_text_is_never_read_as_markup():
    async with screen() as s:
        s.engine.begin("typed")
        s.engine.report(UserWords(1, "[red]x[/red]"), ReplyText(1, "a [b] [/c] \\[d"))
        await s.settle()
        assert "[red]x[/red]" in s.line("You")
        assert "a [b] [/c] \\[d" in s.line("Vox")


async def test_a_long_answer_wraps_and_its_end_is_in_view():
    async with screen() as s:
        s.engine.begin("typed")
        for n in range(200):
            s.engine.report(ReplyText(1, f"word{n} "))
        await s.settle()
        assert "word199" in s.text
        assert "word0 " not in s.text


@pytest.mark.slow
async def test_the_user_can_scroll_back_while_typing_during_an_answer():
    async with screen() as s:
        s.engine.begin("typed")
        s.engine.report(*(ReplyText(1, f"word{n} ") for n in range(200)))
        await s.type("next")
        for key, seen in (("pageup", False), ("pagedown", True)):
            await s.press(key)
            while ("word199" in s.text) is not seen:  # it glides
                await s.pilot.pause(0.01)
            s.engine.report(ReplyText(1, "more "))
            await s.settle()
            assert ("word199" in s.text) is seen
        assert s.app.focused.value == "next"
        assert s.commands == []


@pytest.mark.parametrize("act", ["turn", "welcome", "undo"])
async def test_a_welcome_that_was_scrolled_back_may_be_replaced(act):
    async with screen(size=(30, 8)) as s:
        if act == "undo":
            turn(s, "Hello", "Hi.")
            await s.settle()
            await s.press("ctrl+n")
        s.app.transcript.scroll_to(y=2, animate=False, force=True, immediate=True)
        await s.settle()
        if act == "turn":
            turn(s, "Hello", "Hi.")
        elif act == "undo":
            s.app.main.action_undo()
        else:
            s.app.transcript.show_welcome(not_loaded())
        await s.settle()
        assert ("What you type" if act == "welcome" else "Hi.") in s.text


@pytest.mark.slow
async def test_an_answer_of_several_paragraphs_keeps_all_of_them():
    async with screen() as s:
        s.engine.begin("typed")
        for piece in ("First\n", "\nSec", "ond\nThird"):
            s.engine.report(ReplyText(1, piece))
        await s.settle()
        first = s.lines.index(s.line("Vox  First"))
        shown = [line.strip() for line in s.lines[first + 1 : first + 3]]
        assert shown == ["Second", "Third"]


async def test_late_text_of_a_turn_that_is_over_is_dropped():
    async with screen() as s:
        s.engine.begin()
        s.engine.report(ReplyText(1, "Old"))
        s.engine.finish(Outcome.CANCELLED)
        s.engine.begin()
        s.engine.report(UserWords(1, "late words"), ReplyText(1, " LATE"), ReplyText(2, "New"))
        s.engine.report(SpokenUpTo(1, ""))
        await s.settle()
        assert "LATE" not in s.text
        assert "late words" not in s.text
        assert "New" in s.text


async def test_the_unheard_part_of_an_interrupted_answer_is_struck_out():
    async with screen() as s:
        s.engine.begin("typed")
        s.engine.report(ReplyText(1, "Heard this. "), ReplyText(1, "Not that."))
        s.engine.report(SpokenUpTo(1, "Heard this."))
        s.engine.finish(Outcome.CANCELLED)
        await s.settle()
        struck = [
            segment.text
            for strip in s.app.screen._compositor.render_strips()
            for segment in strip
            if segment.style and segment.style.strike
        ]
        assert "".join(struck).strip() == "Not that."
        assert "(interrupted)" in s.text


async def test_an_answer_that_fails_after_its_first_words_is_broken_off():
    async with screen() as s:
        s.engine.begin("typed")
        s.engine.report(ReplyText(1, "Once upon"))
        s.engine.finish(Outcome.FAILED, error="Out of memory.")
        await s.settle()
        assert "Once upon (broken off)" in s.text


@pytest.mark.parametrize(
    ("outcome", "fields", "seen"),
    [
        (Outcome.NO_SPEECH, {}, "Nothing was heard."),
        (Outcome.FAILED, {"error": "Out of memory."}, "✗ Out of memory."),
        (Outcome.ANSWERED, {}, f"({NO_WORDS})"),
    ],
)
async def test_a_turn_without_an_answer_shows_the_reason(outcome, fields, seen):
    async with screen() as s:
        s.engine.begin()
        s.engine.report(StateChanged(State.LISTENING))
        s.engine.finish(outcome, **fields)
        await s.settle()
        assert seen in s.text


@pytest.mark.slow
@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.NO_SPEECH])
async def test_a_turn_without_words_leaves_nothing_behind(outcome):
    async with screen() as s:
        turn(s, "Who was that?", "A friend.")
        await s.settle()
        before = s.app.transcript.text
        s.engine.begin()
        s.engine.report(StateChanged(State.LISTENING))
        await s.settle()
        assert s.app.transcript.text != before
        s.engine.finish(outcome)
        await s.settle()
        assert s.app.transcript.text == before
        assert len(s.app.session.record.finished) == 1


@pytest.mark.slow
async def test_what_went_wrong_stands_in_one_place_and_goes_with_the_next_turn():
    async with screen((120, 40)) as s:
        s.engine.begin()
        s.engine.finish(Outcome.FAILED, error="Out of memory.")
        await s.settle()
        assert s.text.count("Out of memory.") == 1
        s.engine.begin()
        await s.settle()
        assert "Out of memory." not in s.text


@pytest.mark.slow
async def test_the_welcome_goes_with_the_first_turn_and_comes_with_a_new_conversation():
    async with screen((120, 40)) as s:
        assert "Press Space, speak, press it again. Or just type." in s.text
        assert "Nothing leaves this machine" in s.text
        turn(s, "Hello", "Good day.")
        await s.settle()
        assert "Nothing leaves" not in s.text and SUGGESTIONS[0] not in s.text
        await s.press("ctrl+n")
        assert "Press Space, speak, press it again. Or just type." in s.text
        assert all(suggestion in s.text for suggestion in SUGGESTIONS)
        assert "Good day." not in s.text
        turn(s, "Hello", "Good evening.")
        await s.settle()
        assert SUGGESTIONS[0] not in s.text and "Good evening." in s.text


async def test_the_first_screen_has_three_things_to_try_and_names_the_model():
    async with screen((60, 16), loaded=False) as s:
        s.engine.report(LOADED)
        await s.settle()
        for suggestion in SUGGESTIONS:
            assert suggestion in s.text
        assert "Nothing leaves this machine: Qwen2.5-Coder 1.5B answers" in s.text


@pytest.mark.slow
async def test_ctrl_c_names_the_key_that_quits_in_our_words():
    async with screen() as s:
        await s.pilot.press("ctrl+c", "ctrl+c")
        assert s.toasts == ["Ctrl+Q quits voxtui."]


async def test_the_first_text_is_marked_as_shown_once_it_is_painted():
    async with screen() as s:
        timestamps = s.engine.begin("typed", at=time.monotonic())
        assert timestamps.at(Milestone.FIRST_SHOWN) is None
        handed_over = time.monotonic()
        s.engine.report(ReplyText(1, "Hello"))
        while timestamps.at(Milestone.FIRST_SHOWN) is None:
            await s.settle()
        assert timestamps.at(Milestone.FIRST_SHOWN) > handed_over
        assert "Hello" in s.text


async def test_the_first_words_are_painted_before_all_else_that_came_with_them():
    async with screen() as s:
        painted = []

        def note(tell):
            painted.append((s.app.turns.view.text, s.app.bar._badge.content))

        s.app.when_written = note
        s.engine.begin()
        s.engine.report(StateChanged(State.LISTENING))
        await s.settle()
        s.engine.report(StateChanged(State.THINKING), UserWords(1, "What is it?"))
        s.engine.report(ReplyText(1, "It "), ReplyText(1, "is."), StateChanged(State.SPEAKING))
        await s.settle()
        assert painted == [("It is.", "● LISTENING")]
        assert "What is it?" in s.line("You") and "It is." in s.line("Vox")
        assert "♪ SPEAKING" in s.text


@pytest.mark.slow
async def test_words_that_arrive_while_the_help_is_open_are_shown_after_it():
    async with screen() as s:
        s.engine.begin("typed")
        await s.press("f1")
        s.engine.report(ReplyText(1, "Hello"))
        await s.settle()
        await s.press("escape")
        assert "Hello" in s.line("Vox")


@pytest.mark.slow
async def test_a_full_collection_runs_after_every_twentieth_turn(monkeypatch):
    looks = []
    monkeypatch.setattr(
        "voxtui.ui.driver.gc_tuning.gc.collect", lambda generation=2: looks.append(generation)
    )
    async with screen() as s:
        looks.clear()
        for n in range(40):
            s.engine.begin("typed")
            s.engine.finish()
            await s.settle()
            assert len(looks) == n + 1
    assert looks == ([1] * 19 + [2]) * 2


@pytest.mark.slow
async def test_a_number_that_grows_lays_nothing_out(monkeypatch):
    async with screen(size=(120, 40)) as s:
        s.engine.begin("typed")
        await s.settle()
        compositor, laid_out = s.app.screen._compositor, []
        lay_out = compositor.reflow
        monkeypatch.setattr(compositor, "reflow", lambda *at: laid_out.append(at) or lay_out(*at))
        for ms in (8, 84, 1234):
            timestamps = {"released": 0.0, "first_token": ms / 1000}
            s.app.panel.finish(Turn(1, "b", Outcome.ANSWERED, timestamps))
            await s.settle()
            await s.settle()
        assert laid_out == []


@pytest.mark.slow
async def test_text_that_is_scrolled_out_of_view_is_not_marked_as_shown():
    async with screen() as s:
        for _ in range(12):
            s.engine.begin("typed")
            s.engine.report(ReplyText(s.engine.turns, "words " * 10))
            s.engine.finish()
        timestamps = s.engine.begin("typed")
        await s.settle()
        await s.pilot.press("home")
        await s.settle()
        s.engine.report(ReplyText(s.engine.turns, "unseen"))
        await s.settle()
        assert "unseen" not in s.text
        assert timestamps.at(Milestone.FIRST_SHOWN) is None


@pytest.mark.slow
async def test_a_long_session_keeps_only_its_last_entries(monkeypatch):
    monkeypatch.setattr("voxtui.ui.conversation.transcript.KEPT_ENTRIES", 20)
    monkeypatch.setattr("voxtui.ui.conversation.transcript.DROPPED_ENTRIES", 1)
    async with screen() as s:
        for n in range(15):
            s.engine.begin("typed")
            s.engine.report(UserWords(n + 1, f"question {n}"), ReplyText(n + 1, f"answer {n}"))
            s.engine.finish()
        await s.settle()
        kept = s.app.query_one(Transcript).text
        assert "question 4" not in kept
        assert "question 5" in kept
        assert "answer 14" in s.text


@pytest.mark.slow
async def test_scrolling_up_stays_where_it_is_and_a_new_turn_returns_to_the_end():
    async with screen() as s:
        s.engine.begin("typed")
        for n in range(200):
            s.engine.report(ReplyText(1, f"word{n} "))
        await s.settle()
        await s.pilot.press("pageup")
        await s.settle()
        assert "word199" not in s.text
        s.engine.report(ReplyText(1, "more " * 30))
        await s.settle()
        assert "more" not in s.text
        s.engine.finish()
        s.engine.begin("typed")
        s.engine.report(ReplyText(2, "Next."))
        await s.settle()
        assert "Next." in s.text


@pytest.mark.slow
async def test_the_end_stays_in_view_when_the_terminal_shrinks():
    async with screen(size=(80, 28)) as s:
        s.engine.begin("typed")
        s.engine.report(ReplyText(1, "line\n" * 14 + "the end"))
        await s.settle()
        await s.pilot.resize_terminal(80, 18)
        await s.settle()
        assert "the end" in s.text


@pytest.mark.slow
async def test_text_can_be_selected_and_copied():
    async with screen() as s:
        s.engine.begin("typed")
        s.engine.report(UserWords(1, "Question?"), ReplyText(1, "An answer."))
        s.engine.finish()
        await s.settle()
        row = next(y for y, line in enumerate(s.lines) if "An answer." in line)
        x = s.lines[row].index("An answer.")
        await s.pilot.mouse_down(offset=(x, row))
        await s.pilot.hover(offset=(x + 5, row))
        await s.pilot.mouse_up(offset=(x + 9, row))
        assert s.app.screen.get_selected_text() in ("An answer", "An answer.")


async def test_a_selection_that_became_shorter_is_not_copied():
    async with screen() as s:
        turn(s, answer="An answer.")
        await s.settle()
        below = s.app.transcript.virtual_size.height
        turn(s, answer="Another.")
        await s.settle()
        selection = Selection(Offset(0, below), Offset(4, below))
        s.app.main.selections = {s.app.transcript: selection}
        await s.press("up", "delete", "ctrl+y")
        await s.settle()
        assert any("answer was handed" in toast for toast in s.toasts)


# Keys.


async def test_space_starts_and_space_ends_with_the_times_of_the_keys():
    async with screen() as s:
        down = await s.press("space")
        up = await s.press("space")
        assert s.engine.calls[-2:] == [("talk", down), ("release", up)]


async def test_space_over_an_answer_talks():
    async with screen() as s:
        s.engine.begin()
        s.engine.report(StateChanged(State.THINKING), StateChanged(State.SPEAKING))
        await s.settle()
        await s.press("space")
        assert s.commands == ["talk"]


async def test_an_utterance_that_ended_by_itself_is_not_ended_again():
    async with screen() as s:
        await s.press("space")
        s.engine.begin()
        s.engine.report(StateChanged(State.LISTENING), StateChanged(State.THINKING))
        await s.settle()
        await s.press("space")
        assert s.commands == ["talk", "talk"]


@pytest.mark.slow
async def test_the_end_of_the_answer_before_does_not_end_the_talking():
    async with screen() as s:
        s.engine.begin()
        s.engine.report(StateChanged(State.SPEAKING))
        await s.settle()
        await s.press("space")
        s.engine.finish(Outcome.CANCELLED)
        await s.settle()
        await s.press("space")
        assert s.commands == ["talk", "release"]


@pytest.mark.slow
async def test_escape_discards_first_then_stops_the_answer_then_leaves_the_field():
    async with screen() as s:
        await s.type("draft")
        s.engine.begin()
        s.engine.report(StateChanged(State.LISTENING))
        await s.settle()
        await s.press("escape")
        assert s.commands == ["cancel"]
        s.engine.report(StateChanged(State.SPEAKING))
        await s.settle()
        await s.press("escape")
        assert s.commands == ["cancel", "cancel"]
        assert isinstance(s.app.focused, Input)
        s.engine.finish(Outcome.CANCELLED)
        await s.settle()
        await s.press("escape")
        assert not isinstance(s.app.focused, Input)
        assert s.commands == ["cancel", "cancel"]
        await s.press("up")
        assert s.app.bar.field.value == "draft"


async def test_escape_right_after_space_discards():
    async with screen() as s:
        await s.press("space", "escape", "space")
        assert s.commands == ["talk", "cancel", "talk"]


async def test_escape_with_nothing_to_stop_does_nothing():
    async with screen() as s:
        await s.press("escape")
        assert s.commands == []
        assert s.app.is_running


async def test_in_the_text_field_letters_and_space_are_text():
    async with screen() as s:
        await s.type("nm 1?/ q")
        assert s.app.focused.value == "nm 1?/ q"
        assert s.commands == []


@pytest.mark.slow
async def test_enter_sends_and_shows_the_typed_text():
    async with screen() as s:
        await s.type("hello there")
        await s.pilot.press("enter")
        assert s.engine.calls[-1] == ("say", "hello there")
        s.engine.begin("typed")
        s.engine.report(UserWords(1, "hello there"), StateChanged(State.THINKING))
        await s.settle()
        assert "hello there" in s.line("You")
        assert s.app.focused.value == ""


@pytest.mark.slow
async def test_the_engine_follows_what_is_typed_until_the_field_is_left():
    async with screen() as s:
        await s.type("hi")
        await s.pilot.press("backspace")
        await s.press("escape")
        assert s.engine.typed == ["h", "hi", "h", ""]


async def test_a_command_is_not_followed_as_a_text():
    async with screen() as s:
        await s.press("slash")
        await s.type("/new")
        assert set(s.engine.typed) == {""}


@pytest.mark.slow
async def test_texts_that_were_given_at_the_start_are_read_with_their_progress():
    given = Attachment("stdin", "a diff")
    async with screen(attachments=[given]) as s:
        assert ("give", given) in s.engine.calls
        s.engine.report(PrefillProgress(450, 980, 14.2))
        await s.settle()
        assert "450 of 980 tokens read, 14 s left" in s.text
        await s.type("What is it?")
        assert "Enter sends · 450 of 980 tokens read, 14 s left" in s.text
        await s.press("enter")
        assert "─ 450 of 980 tokens read, 14 s left" in s.text
        s.engine.report(PrefillProgress(980, 980, 0.0))
        await s.settle()
        assert "tokens read" not in s.text


@pytest.mark.parametrize(
    ("clipboard", "shown"),
    [("a text", ""), (" ", "There is no text in the clipboard."), (None, "No clipboard.")],
)
async def test_the_text_on_the_clipboard_can_be_talked_about(monkeypatch, clipboard, shown):
    def read() -> str:
        if clipboard is None:
            raise InputError("No clipboard.")
        return clipboard

    monkeypatch.setattr("voxtui.ui.main_screen.clipboard_text", read)
    async with screen() as s:
        await s.app.screen.run_action("paste")
        await s.app.workers.wait_for_complete()
        await s.settle()
        expected = [] if shown else [("give", Attachment("the clipboard", "a text"))]
        assert [call for call in s.engine.calls if call[0] == "give"] == expected
        assert shown in s.text + "".join(s.toasts)


@pytest.mark.slow
async def test_an_empty_line_is_not_sent():
    async with screen() as s:
        await s.press("a", "backspace", "enter")
        assert s.commands == []


async def test_a_new_conversation_clears_the_conversation_on_the_screen_too():
    async with screen() as s:
        s.engine.begin("typed")
        s.engine.report(ReplyText(1, "Old answer"), StateChanged(State.SPEAKING))
        await s.settle()
        await s.press("ctrl+n")
        assert s.commands == ["new_conversation"]
        s.engine.report(ReplyText(1, " and its rest"))
        s.engine.finish(Outcome.CANCELLED)
        await s.settle()
        assert "Old answer" not in s.text
        assert "its rest" not in s.text


async def test_a_key_mutes_with_a_notice():
    async with screen() as s:
        assert "voice muted" not in s.text
        await s.press("ctrl+t")
        assert s.engine.calls[-1] == ("mute", True)
        assert "voice muted" in s.text
        await s.press("ctrl+t")
        assert s.engine.calls[-1] == ("mute", False)
        assert "voice muted" not in s.text


@pytest.mark.slow
async def test_the_footer_shows_what_each_key_does_now():
    async with screen(size=(80, 24)) as s:
        s.engine.report(StateChanged(State.READY))
        assert "Space Talk" in s.lines[-1] and "Esc" not in s.lines[-1]
        await s.type("a")
        assert "Enter sends" in s.text
        assert "Esc Leave" in s.lines[-1] and "Space" not in s.lines[-1]
        s.engine.report(StateChanged(State.SPEAKING))
        await s.settle()
        assert "Esc Stop" in s.lines[-1]
        await s.press("backspace")
        assert "or press Space to talk" in s.text and "Space Talk" in s.lines[-1]
        s.engine.report(StateChanged(State.LISTENING))
        await s.settle()
        assert "Esc Drop" in s.lines[-1]


@pytest.mark.slow
async def test_help_is_scrolled_by_its_keys():
    async with screen(size=(80, 24)) as s:
        await s.pilot.press("f1")
        await s.settle()
        assert "speaking  " not in s.text
        await s.pilot.press("end")
        await s.settle()
        assert "speaking  " in s.text


@pytest.mark.slow
async def test_help_explains_every_stage_of_the_panel():
    async with screen(size=(120, 90)) as s:
        await s.pilot.press("f1")
        await s.settle()
        for stage in STAGES:
            assert f" {stage}  " in s.text


@pytest.mark.slow
async def test_help_lists_every_key_of_the_footer():
    async with screen(size=(120, 40)) as s:
        footer = s.lines[-1]
        await s.send("/help")
        await s.settle()
        for shown in ("Space", "/", "^n", "^t", "F1", "^p", "^q"):
            assert f" {shown} " in footer
            assert f" {shown}  " in s.text
        await s.pilot.press("escape")
        assert len(s.app.screen_stack) == 1


@pytest.mark.slow
async def test_a_turn_continues_while_the_help_is_open():
    async with screen(loaded=False) as s:
        await s.pilot.press("f1")
        s.engine.report(Loading("Voice"))
        s.engine.load()
        s.engine.begin()
        s.engine.report(StateChanged(State.LISTENING), StateChanged(State.THINKING))
        s.engine.report(UserWords(1, "Words"), ReplyText(1, "An answer."))
        s.engine.report(Notice("A notice."), StateChanged(State.SPEAKING))
        s.engine.report(LoadFailed(ModelError("Missing.")))
        await s.press("ctrl+t")
        s.engine.finish(timestamps=MARKS, reply="x")
        await s.settle()
        await s.pilot.press("escape")
        await s.settle()
        assert "An answer." in s.text
        assert "♪ 512 ms" in s.text


@pytest.mark.slow
async def test_ctrl_q_quits_also_from_the_text_field():
    async with screen() as s:
        await s.type("a")
        await s.pilot.press("ctrl+q")
        await s.settle()
        assert not s.app.is_running


async def test_the_parts_begin_to_close_before_the_screen_is_left():
    async with screen() as s:
        s.app.exit()
        assert s.engine.calls[-1] == ("close",)
        assert s.app.is_running


# Loading.


@pytest.mark.parametrize("size", [(120, 40), (59, 15)])
async def test_widgets_are_mounted_on_a_screen_that_knows_its_size(monkeypatch, size):
    """A class that came later would style all of them again, before the first frame."""
    seen = []
    mounted = VoxtuiApp.on_mount

    def on_mount(app):
        seen.append((set(app.main.classes), app.panel.chosen))
        mounted(app)

    monkeypatch.setattr(VoxtuiApp, "on_mount", on_mount)
    async with screen(size) as s:
        assert seen == [(set(s.app.main.classes), s.app.panel.chosen)]
        assert not s.app.query(FullView)


async def test_the_library_for_markdown_is_not_imported_by_the_event_loop(monkeypatch):
    importing = queue.SimpleQueue()
    monkeypatch.setattr(
        "voxtui.ui.app.rendered", lambda text: importing.put(threading.current_thread())
    )
    async with screen() as s:
        assert importing.get(timeout=SECONDS) is not threading.main_thread()
        s.engine.load()
        await s.settle()
        assert importing.empty()


async def test_the_screen_is_usable_while_models_load():
    async with screen(loaded=False) as s:
        assert s.engine.calls == [("start",)]
        s.engine.report(Loading("Voice"), Loading("Chat model", 0.45))
        await s.settle()
        assert "◌ LOADING" in s.text
        assert "Chat model 45%" in s.text
        await s.press("ctrl+t")
        assert "voice muted" in s.text


async def test_while_models_load_the_prompt_says_that_one_can_type():
    async with screen(loaded=False) as s:
        s.engine.report(Loading("chat model", 0.45))
        await s.settle()
        assert "chat model 45% · you can type already" in s.text


@pytest.mark.parametrize(
    ("headphones", "removes_echo"), [(False, False), (True, False), (False, True)]
)
async def test_hands_free_the_prompt_says_that_it_does_not_listen_to_an_answer(
    headphones, removes_echo
):
    config = Config(vad=VadConfig(hands_free=True, listen_while_speaking=headphones))
    factories = make_factories(cancels_echo=lambda config: removes_echo)
    async with screen(config=config, factories=factories) as s:
        s.engine.report(StateChanged(State.SPEAKING))
        await s.settle()
        listens = headphones or removes_echo
        assert ("Not listening · Space: talk over it" in s.text) is not listens


async def test_space_while_loading_shows_a_notice():
    async with screen(loaded=False) as s:
        await s.press("space")
        assert s.commands == []
        assert any("still loading" in toast for toast in s.toasts)


@pytest.mark.slow
async def test_texts_typed_while_loading_are_sent_one_by_one_once_ready():
    async with screen(loaded=False) as s:
        for text in ("first", "second"):
            await s.type(text)
            await s.pilot.press("enter")
        assert s.commands == []
        assert "first" in s.text
        s.engine.load()
        await s.settle()
        assert s.engine.calls[-1] == ("say", "first")
        assert s.commands == ["say"]
        s.engine.begin("typed")
        s.engine.finish()
        await s.settle()
        assert s.engine.calls[-1] == ("say", "second")


@pytest.mark.slow
async def test_a_text_typed_while_loading_waits_for_the_end_of_an_utterance():
    async with screen(loaded=False) as s:
        for text in ("first", "second"):
            await s.type(text)
            await s.pilot.press("enter")
        s.engine.load()
        await s.settle()
        s.engine.begin("typed")
        s.engine.report(StateChanged(State.SPEAKING))
        await s.settle()
        await s.press("space")
        s.engine.finish(Outcome.CANCELLED)
        await s.settle()
        assert s.commands == ["say", "talk"]
        await s.press("space")
        s.engine.begin()
        s.engine.finish()
        await s.settle()
        assert s.commands == ["say", "talk", "release", "say"]


@pytest.mark.slow
async def test_a_paste_is_taken_whole_and_as_plain_text():
    async with screen() as s:
        s.app.post_message(events.Paste("Translate:\r\x9b2Jgood\x1b]0;x\x07\r\nmorning\n"))
        await s.type(" now")
        s.app.post_message(events.Paste(" or  later"))
        await s.pilot.press("enter")
        assert s.engine.calls[-1] == ("say", "Translate: 2Jgood]0;x morning now or  later")


async def test_a_failed_start_shows_the_next_step_and_the_screen_stays_usable():
    async with screen(loaded=False) as s:
        await s.type("waiting")
        await s.pilot.press("enter")
        s.engine.report(LoadFailed(ModelError("The model is missing.", "Run `voxtui models`.")))
        await s.settle()
        assert "✗ The model is missing." in s.text
        assert "Run `voxtui models`." in s.text
        assert "Enter: try again" in s.text
        assert "NOT LOADED" in s.text
        assert "What you type is answered once a model is loaded." in s.text
        assert "Space" not in s.text
        await s.type("more")
        await s.pilot.press("enter")
        assert list(s.app.session.queued) == ["waiting", "more"]
        await s.press("escape", "space")
        assert s.commands == []
        assert any("No model is loaded" in toast for toast in s.toasts)


@pytest.mark.slow
async def test_the_model_has_the_name_that_its_makers_use():
    async with screen(size=(160, 40)) as s:
        loaded = structs.replace(LOADED, brain="embedded: a-file-1.5b (A Model 1.5B, English)")
        s.engine.report(loaded)
        await s.settle()
        assert "A Model 1.5B" in s.lines[0]
        assert "a-file-1.5b" not in s.text


@pytest.mark.slow
async def test_a_notice_stands_outside_of_the_conversation():
    async with screen(size=(120, 40)) as s:
        s.engine.report(Notice("The microphone was unplugged.", "error"), Notice("Slow."))
        await s.settle()
        assert "✗ The microphone was unplugged." in s.lines[1]
        assert s.toasts == ["Slow."]
        assert "unplugged" not in s.app.transcript.text


@pytest.mark.slow
async def test_a_bug_on_the_engine_thread_ends_the_app_with_its_error():
    with pytest.raises(ZeroDivisionError):
        async with screen() as s:
            threading.Thread(target=s.engine.report, args=(Died(ZeroDivisionError("bug")),)).start()
            while s.app.is_running:
                await s.settle()


async def test_too_little_memory_ends_the_app_without_a_traceback(capfd):
    async with screen() as s:
        s.engine.report(Died(MemoryError("std::bad_alloc")))
        while s.app.out_of_memory is None:
            await asyncio.sleep(0)
    assert "Traceback" not in "".join(capfd.readouterr())


async def test_engine_events_during_teardown_are_ignored():
    async with screen() as s:
        await s.app.transcript.remove()
        s.engine.load()
        s.engine.begin()
        await s.settle()
        assert s.app.is_running


@pytest.mark.parametrize("state", [State.READY, State.LISTENING])
async def test_periodic_updates_end_with_the_screen(state):
    async with screen() as s:
        s.engine.begin()
        s.engine.report(StateChanged(state))
        await s.settle()
        s.app.session.turn = None  # the first lines still stand there, with the level in them
        s.app.tick()
        await s.app.transcript.remove()
        s.app.tick()
        s.app.status.show_level()
        s.app.status.check_level("a microphone", announce=True)


# No microphone.


@pytest.mark.slow
async def test_without_a_microphone_the_clips_are_offered():
    async with screen(microphone=None) as s:
        assert s.text.lower().count("no microphone") == 1
        assert "1  a question" in s.text
        assert "2  a joke" in s.text
        await s.press("space")
        assert s.commands == []
        assert any("play a sample clip (1 to 2)" in toast for toast in s.toasts)
        assert "Talk" not in s.lines[-1]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["key", "list", "click"])
async def test_a_clip_is_spoken_by_key_list_or_click(how):
    spoken = []

    def open_clip(path):
        def speak(listener, stopped):
            spoken.append((path, threading.current_thread() is threading.main_thread()))

        return speak

    async with screen(microphone=None, open_clip=open_clip) as s:
        if how == "key":
            await s.send("/clip 2")
        elif how == "list":
            s.app.query_one(OptionList).focus()
            await s.pilot.press("down", "enter")
        else:
            await s.pilot.click(OptionList, offset=(3, 1))
        await until(s, lambda: not s.app.session.clips.playing)
        assert spoken == [(Path("joke.wav"), False)]


async def test_a_microphone_that_is_lost_in_a_conversation_opens_no_samples():
    async with screen() as s:
        turn(s)
        s.engine.report(MicrophoneLost())
        await s.settle()
        assert "1  a question" not in s.text and "No microphone is in use" in s.text
        assert "Talk" not in s.lines[-1]
        s.engine.report(MicrophoneOpened("a microphone"))
        await s.settle()
        assert "Space Talk" in s.lines[-1]


async def test_a_number_without_a_clip_names_the_clips():
    async with screen() as s:
        await s.send("/clip 9")
        assert s.toasts == ["There is no sample clip 9. There are: 1 a question, 2 a joke."]
        assert s.commands == []


async def test_a_clip_without_a_number_names_the_clips():
    async with screen() as s:
        await s.send("/clip")
        assert s.toasts == ["Which sample clip? There are: 1 a question, 2 a joke."]


@pytest.mark.slow
async def test_a_clip_that_cannot_be_read_is_one_sentence():
    def open_clip(path):
        raise InputError(f"{path} is not audio.")

    async with screen(size=(120, 40), open_clip=open_clip) as s:
        await s.send("/clip 1")
        await until(s, lambda: not s.app.session.clips.playing)
        await s.settle()
        assert s.toasts == ["question.wav is not audio."]


@pytest.mark.slow
@pytest.mark.parametrize("key", ["escape", "space", "ctrl+n", "ctrl+q"])
async def test_a_clip_stops_when_the_user_does_something_else(key):
    flags = []
    going = threading.Event()

    def open_clip(path):
        def speak(listener, stopped):
            flags.append(stopped)
            going.set()
            stopped.wait(SECONDS)

        return speak

    async with screen(open_clip=open_clip) as s:
        await s.send("/clip 1")
        assert going.wait(SECONDS)
        s.engine.begin("a question")
        s.engine.report(StateChanged(State.LISTENING))
        await s.settle()
        await s.press(key)
        await s.settle()
        await until(s, flags[0].is_set)
        s.app.session.clips.stop()


# Sizes.


@pytest.mark.slow
@pytest.mark.parametrize(
    "size", [(1, 1), (5, 2), (20, 5), (40, 10), (59, 15), (60, 16), (80, 24), (110, 30), (250, 80)]
)
async def test_every_size_works_in_every_state(size):
    async with screen(size=size) as s:
        s.engine.begin()
        s.engine.report(StateChanged(State.LISTENING))
        await s.settle()
        s.engine.report(StateChanged(State.THINKING), ReplyText(1, "An answer of some words."))
        await s.settle()
        s.engine.finish(timestamps=MARKS, tokens=8, speculative_s=0.2, reply="x")
        await s.press("slash", "escape", "f1", "escape")
        await s.settle()
        assert s.app.is_running


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_no_sequence_of_sizes_breaks_the_screen(seed):
    random = Random(seed)
    sizes = [
        (random.randint(1, 200), random.randint(1, 60)) for _ in range(15 if seed == 1 else 80)
    ]
    async with screen(size=(80, 24)) as s:
        s.app.push_screen(Help(s.app.keys))
        for n, size in enumerate([(1, 1), *sizes, (1, 60), (200, 1), (80, 24)]):
            if n == 5:
                await s.pilot.press("escape")
            s.engine.begin()
            s.engine.report(StateChanged(State.LISTENING), StateChanged(State.THINKING))
            s.engine.report(
                UserWords(s.engine.turns, "Words"), ReplyText(s.engine.turns, "An *answer*.")
            )
            await s.pilot.resize_terminal(*size)
            s.app.tick()
            s.engine.finish(timestamps=MARKS, tokens=8, speculative_s=0.2, reply="x")
            await s.settle()
        assert "An answer." in s.text


async def test_a_small_terminal_keeps_the_conversation_and_the_state():
    async with screen(size=(30, 6)) as s:
        s.engine.begin("typed")
        s.engine.report(ReplyText(1, "Short."))
        await s.settle()
        assert "READY" in s.text
        assert "Short." in s.text


@pytest.mark.slow
async def test_growing_and_shrinking_the_terminal_loses_nothing():
    async with screen(size=(80, 24)) as s:
        s.engine.begin("typed")
        s.engine.report(ReplyText(1, "An answer."))
        await s.settle()
        s.engine.finish(timestamps=MARKS, reply="x")
        for size in ((20, 5), (160, 50), (80, 24)):
            await s.pilot.resize_terminal(*size)
            await s.settle()
        assert "An answer." in s.text
        assert "♪ 512 ms" in s.text


# Standing still.


@pytest.mark.slow
async def test_the_noise_of_a_room_repaints_nothing():
    async with screen() as s:
        s.engine.level = 0.0018
        s.app.tick()
        s.app.status.show_level()
        paints = [1]
        s.app.post_display_hook = lambda: paints.append(1)
        while paints:  # frames of the start
            paints.clear()
            for _ in range(5):
                await s.settle()
        for level in (0.0017, 0.0022, 0.0016, 0.0019):  # within 3 dB of what is shown
            s.engine.level = level
            s.app.tick()
            s.app.status.show_level()
            await s.settle()
        assert paints == []
        s.engine.level = 0.9
        s.app.tick()
        s.app.status.show_level()
        await s.settle()
        await s.settle()
        assert s.lines[-3].count("━") > 8


async def test_while_somebody_speaks_the_meter_rises():
    async with screen() as s:
        s.engine.level = 0.0018
        s.app.tick()
        s.app.status.show_level()
        s.engine.report(StateChanged(State.LISTENING))
        await s.settle()
        assert s.lines[-3].count("━") < 3
        s.engine.level = 0.5
        s.app.tick()
        await s.settle()
        assert s.lines[-3].count("━") > 8


async def test_the_talk_bar_is_not_repainted_while_its_text_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with screen() as s:
        await s.settle()
        bar = s.app.bar
        painted: list[object] = []
        monkeypatch.setattr(bar, "refresh", lambda *regions, **how: painted.append(how))
        s.app.status.show_state()
        s.app.status.show_state()
        assert painted == []
