"""Where the prompt stands, and what it says of the sound."""

import pytest

from tests.ui.conftest import Screen, screen
from tests.ui.states import conversation, loaded, turn
from voxtui.dialogue.events import State, StateChanged
from voxtui.dialogue.history.attachments import Attachment
from voxtui.ui.panel.latency_strip import LatencyStrip

TALL = (160, 50)


def bar_row(s: Screen) -> int:
    return s.lines.index(s.line("READY"))


async def test_a_short_conversation_stands_next_to_the_prompt_which_stays_at_the_bottom():
    async with screen(size=TALL) as s:
        bottom = len(s.lines) - 3
        for number in range(20):
            turn(s, "Hello", f"Hi {number}.")
            s.app.notify("A message.")
            await s.settle()
            assert s.lines.index(s.line(f"Hi {number}.")) == s.app.transcript.region.bottom - 1
            assert bar_row(s) == bottom
        await s.pilot.press("home")
        await s.settle()
        assert s.lines.index(s.line("Hi 0.")) == s.app.transcript.region.y + 2
        await s.press("ctrl+n")
        assert bar_row(s) == bottom


async def test_the_footer_says_what_the_talk_key_does():
    async with screen() as s:
        await loaded(s)
        assert "Space Talk" in s.lines[-1]
        s.engine.begin()
        s.engine.report(StateChanged(State.LISTENING))
        await s.settle()
        assert "Space Send" in s.lines[-1] and "Talk" not in s.lines[-1]


async def test_keys_that_do_not_fit_into_the_footer_end_in_an_ellipsis():
    async with screen(size=(40, 20)) as s:
        await loaded(s)
        assert s.lines[-1].rstrip().endswith("…")


async def test_the_footer_offers_to_select_a_turn_once_there_is_one():
    async with screen() as s:
        assert "Select" not in s.lines[-1]
        await conversation(s)
        assert "↑ Select" in s.lines[-1] and "^q Quit" in s.lines[-1]
        await s.pilot.press("up")
        assert "Enter Edit" in s.lines[-1] and "↑ Select" in s.lines[-1]
        await s.press("escape", "h")
        assert "Select" not in s.lines[-1]  # Up brings back an earlier text


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
