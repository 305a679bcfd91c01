"""Messages stand in lines of their own above the prompt, and cover nothing."""

import itertools
import time

import pytest

from tests.ui.conftest import screen
from tests.ui.states import turn
from voxtui.dialogue.events import Notice
from voxtui.ui.widgets.messages import Messages

ANSWER = "An answer of a few words whose first line has to stay in view."
SAVED = "Saved, with your words:\n~/.local/share/voxtui/sessions/2026-11-21_10-00-00"


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (40, 12)])
async def test_a_message_covers_no_line_of_the_answer(size):
    async with screen(size) as s:
        turn(s, answer=ANSWER)
        await s.settle()
        before = s.app.transcript.text
        s.engine.report(Notice(SAVED, "information"), Notice("Mind the gap.", "warning"))
        await s.settle()
        assert "! Mind the gap." in "\n".join(s.lines[s.app.messages.region.y :][:2])
        above = "\n".join(s.lines[: s.app.messages.region.y])
        for word in ANSWER.split():
            assert word in above
        assert s.app.transcript.text == before


async def test_messages_go_by_a_click_and_by_themselves(monkeypatch):
    async with screen() as s:
        s.app.notify("A sentence.")
        await s.settle()
        assert "A sentence." in s.lines[s.app.messages.region.bottom - 1]
        await s.pilot.click("#messages")
        await s.settle()
        assert not s.toasts and not s.app.messages.has_class("shown")
        s.app.notify("Another one.", timeout=0.2)
        await s.settle()
        while s.app.messages.has_class("shown"):
            await s.pilot.pause(0.01)


async def test_a_message_may_expire_while_the_messages_are_read(monkeypatch):
    async with screen() as s:
        s.app.notify("A sentence.")
        await s.settle()
        (message,) = s.notifications
        end = message.raised_at + message.timeout
        times = itertools.chain((end - 0.01,), itertools.repeat(end + 0.01))
        monkeypatch.setattr("voxtui.ui.widgets.messages.monotonic", lambda: next(times))
        s.app.messages.show(s.app._notifications)
        s.app.messages.show(s.app._notifications)
        assert not s.app.messages.has_class("shown")


async def test_a_message_goes_on_time_although_the_clock_is_set_back(monkeypatch):
    async with screen() as s:
        s.app.notify("A sentence.", timeout=0.2)
        await s.settle()
        monkeypatch.setattr("textual.notifications.time", lambda: time.time() - 3600)
        while s.app.messages.has_class("shown"):
            await s.pilot.pause(0.01)
        assert not s.notifications


async def test_a_long_message_stays_until_it_was_read():
    async with screen() as s:
        s.app.notify("Short.")
        s.app.notify("Not pasted: it is too long. " * 5)
        await s.settle()
        short, long = (message.timeout for message in s.notifications)
        assert (short, round(long)) == (5, 9)


async def test_only_the_newest_messages_take_room():
    async with screen() as s:
        for number in range(6):
            s.app.notify(f"Message {number}.")
        await s.settle()
        shown = [line.strip() for line in s.lines if "Message" in line]
        assert shown == ["Message 5.", "Message 4.", "Message 3."]


async def test_a_message_that_came_while_the_menu_was_open_is_shown_after_it():
    async with screen() as s:
        await s.pilot.press("ctrl+p")
        await s.settle()
        s.app.notify("Meanwhile.")
        await s.pilot.press("escape")
        await s.settle()
        assert "Meanwhile." in s.lines[s.app.messages.region.bottom - 1]


@pytest.mark.parametrize("key", ["ctrl+p", "f1"])
async def test_a_message_stands_in_the_box_that_is_open_and_not_over_the_prompt(key):
    async with screen() as s:
        s.app.notify("Before.")
        await s.pilot.press(key)
        await s.settle()
        s.app.notify("Meanwhile.")
        await s.settle()
        (shown,) = s.app.screen.query(Messages)
        assert "Meanwhile." in s.lines[shown.region.y]
        assert shown.parent is not None
        assert shown.parent.region.contains_region(shown.region)
        assert "Before." not in s.lines[shown.region.y + 1]
        s.app.clear_notifications()
        await s.settle()
        assert "Meanwhile." not in "\n".join(s.lines)
