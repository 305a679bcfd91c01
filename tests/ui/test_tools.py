"""Calls of tools on the screen: the question for a key, and the line afterwards."""

import pytest

from tests.ui.conftest import screen
from voxtui.dialogue.data import ToolCall
from voxtui.dialogue.engine_commands import Confirm
from voxtui.dialogue.events import KeyNeeded, State, StateChanged, ToolEnded
from voxtui.dialogue.tool_interface import CallOutcome, CallReport
from voxtui.session import user_session

CALL = ToolCall("lights", '{"room": "kitchen", "state": "off"}')


def confirmed(s) -> list[Confirm]:
    return [call[0] for call in s.engine.calls if isinstance(call[0], Confirm)]


@pytest.mark.parametrize(("key", "yes"), [("enter", True), ("escape", False)])
async def test_a_key_confirms_or_refuses_a_call(key, yes, monkeypatch):
    monkeypatch.setattr(user_session, "STRAY_KEY_SECONDS", 0.0)
    async with screen() as s:
        s.engine.begin("typed")
        s.engine.report(StateChanged(State.THINKING), KeyNeeded(1, CALL))
        await s.settle()
        assert "Enter: run `lights room=kitchen state=off`. Esc: no." in s.text
        await s.press(key)
        assert confirmed(s) == [Confirm(1, yes)]
        await s.press(key)  # the next one confirms nothing
        assert len(confirmed(s)) == 1


async def test_a_key_pressed_as_the_question_appears_confirms_nothing(monkeypatch):
    monkeypatch.setattr(user_session, "STRAY_KEY_SECONDS", 60.0)
    async with screen() as s:
        s.engine.begin("typed")
        s.engine.report(StateChanged(State.THINKING), KeyNeeded(1, CALL))
        await s.settle()
        await s.press("enter")
        assert confirmed(s) == []


async def test_a_call_is_a_line_with_its_time():
    async with screen() as s:
        s.engine.begin("typed")
        s.engine.report(ToolEnded(1, CallReport(CALL, CallOutcome.DONE, 0.0341)))
        s.engine.report(
            ToolEnded(1, CallReport(CALL, CallOutcome.REFUSED, 0.0, "I won't do that."))
        )
        await s.settle()
        assert "lights room=kitchen state=off · 34 ms" in s.text
        assert "lights room=kitchen state=off · refused: I won't do that." in s.text
