"""Where the prompt stands, and what it says of the sound."""

import pytest

from tests.ui.conftest import Screen, screen
from tests.ui.states import conversation, loaded, turn
from voxtui.dialogue.events import State, StateChanged
from voxtui.dialogue.history.attachments import Attachment
from voxtui.dialogue.protocols import PastTurn
from voxtui.settings.schema import Config, UiConfig
from voxtui.ui.panel.latency_strip import LatencyStrip

TALL = (160, 50)


def bar_row(s: Screen) -> int:
    return s.lines.index(s.line("READY"))


async def test_the_prompt_is_near_a_short_conversation_and_moves_down_with_a_longer_one():
    async with screen(size=TALL) as s:
        first = bar_row(s)
        assert first - s.lines.index(s.line("Your words are stored")) <= 6
        turn(s, "Hello", "Hi.")
        await s.settle()
        assert bar_row(s) == first
        answers = [f"Answer {n}." for n in range(12)]
        for answer in answers:
            before = bar_row(s)
            turn(s, "And?", answer)
            await s.settle()
            assert all(each in s.text for each in answers[: answers.index(answer) + 1])
            assert before <= bar_row(s) < 48
            if bar_row(s) > first:
                assert bar_row(s) - s.lines.index(s.line(answer)) <= 8
        assert bar_row(s) > 35
        for _ in range(9):
            turn(s, "And?", "More.")
        await s.settle()
        assert "Answer 0." not in s.text and "Quit" in s.lines[-1]
        await s.press("ctrl+n")
        assert first <= bar_row(s) <= first + 2  # below the notice


async def test_a_message_moves_the_prompt_only_as_far_as_there_is_no_room_for_it():
    async with screen(size=TALL) as s:
        turn(s, "Hello", "Hi.")
        await s.settle()
        before = bar_row(s)
        s.app.notify("A message.")
        await s.settle()
        assert "A message." in s.text and bar_row(s) == before
        s.app.clear_notifications()
        for _ in range(3):
            turn(s, "And?", "More.")
        await s.settle()
        s.app.notify("A message.")
        await s.settle()
        after = bar_row(s)
        assert "A message." in s.text and s.text.count("More.") == 3
        s.app.clear_notifications()
        await s.settle()
        assert bar_row(s) == after  # it does not jump back


@pytest.mark.slow
async def test_a_long_conversation_that_is_resumed_takes_its_room_and_a_short_one_gives_it_back():
    past = [PastTurn("And?", None, (), attached=False)] * 30
    async with screen(size=TALL) as s:
        first = bar_row(s)
        s.app.main.show_past(past)
        await s.settle()
        assert bar_row(s) > 40
        s.app.main.show_past(past[:2])
        await s.settle()
        assert bar_row(s) == first


@pytest.mark.slow
async def test_the_panel_beside_the_conversation_has_all_rows():
    async with screen(size=TALL, config=Config(ui=UiConfig(panel="lab"))) as s:
        assert bar_row(s) > 40


@pytest.mark.slow
async def test_a_speaker_that_takes_no_sound_is_not_called_speaking():
    async with screen() as s:
        await loaded(s)
        s.engine.begin()
        s.engine.report(StateChanged(State.THINKING), StateChanged(State.SPEAKING))
        await s.settle()
        assert "♪ SPEAKING" in s.text
        s.app.turns.timestamps.stalls = True
        s.app.tick()
        await s.settle()
        assert "SPEAKING" not in s.text
        assert "✗ NO SOUND" in s.text and "The speaker takes no sound · Esc: stop" in s.text
        s.app.turns.timestamps.stalls = False
        s.app.tick()
        await s.settle()
        assert "♪ SPEAKING" in s.text and "NO SOUND" not in s.text


@pytest.mark.slow
async def test_the_last_number_is_dim_until_the_next_turn_has_one():
    def is_bold() -> bool:
        content = s.app.query_one(LatencyStrip).content
        return any(str(span.style) == "bold" for span in content.spans)

    async with screen() as s:
        await conversation(s)
        assert is_bold()
        s.engine.begin()
        s.engine.report(StateChanged(State.LISTENING))
        await s.settle()
        assert "♪ 243 ms" in s.text and not is_bold()
        s.engine.finish()
        await s.settle()
        assert is_bold()


async def test_the_words_of_the_command_line_are_the_first_turn():
    text = Attachment("stdin", "one\ntwo\n")
    async with screen(loaded=False, attachments=[text], words="what changed?") as s:
        assert "▤    stdin: 2 lines" in s.text
        s.engine.load()
        await s.settle()
        assert s.engine.calls == [("give", text), ("start",), ("say", "what changed?")]
