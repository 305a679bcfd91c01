"""Timers on the screen: one line above the bar, a note when one rings, silence at a key."""

import time

import pytest

from tests.ui.conftest import screen
from voxtui.dialogue.events import Countdown, CountdownsChanged, Rang
from voxtui.session.notification import notification
from voxtui.ui.widgets.timers import describe


async def test_timers_count_down_in_one_line_above_the_bar_and_leave_it_when_there_is_none():
    async with screen() as s:
        before = s.lines
        s.engine.report(
            CountdownsChanged(
                (
                    Countdown("pasta", time.time() + 599.5),
                    Countdown("tea", None, 61.0),
                )
            )
        )
        await s.settle()
        assert "◔ pasta 10:00" in s.line("pasta") or "◔ pasta 9:5" in s.line("pasta")
        assert "◔ tea 1:01 paused" in s.line("pasta")
        bar = next(i for i, line in enumerate(s.lines) if "╭" in line)
        assert "pasta" in s.lines[bar - 1]
        s.engine.report(CountdownsChanged(()))
        await s.settle()
        assert s.lines == before


@pytest.mark.parametrize(
    ("countdown", "shown"),
    [
        (Countdown("pasta", 1000.0 + 272), "◔ pasta 4:32"),
        (Countdown("timer", 1000.0 + 3725), "◔ timer 1:02:05"),
        (Countdown("timer", 990.0), "◔ timer 0:00"),
        (Countdown("x" * 40, None, 5.0), f"◔ {'x' * 23}… 0:05 paused"),
    ],
)
def test_a_timer_is_described(countdown, shown):
    assert describe(countdown, 1000.0) == shown


async def test_a_timer_that_rings_is_a_note_and_the_next_key_only_silences_it():
    async with screen() as s:
        s.engine.report(Rang("Your pasta timer is done."))
        await s.settle()
        assert "◔ Your pasta timer is done." in " ".join(s.text.split())
        s.engine.ringing = True
        await s.press("x")
        assert not s.engine.ringing
        assert s.commands == []
        await s.press("ctrl+n")
        assert s.commands == ["new_conversation"]


async def test_the_talk_key_silences_a_timer_and_talks():
    async with screen() as s:
        s.engine.ringing = True
        await s.press("space")
        assert s.commands == ["talk"]


async def test_the_talk_key_silences_a_timer_without_a_microphone():
    async with screen(microphone=None) as s:
        s.engine.ringing = True
        await s.press("space")
        assert not s.engine.ringing
        assert s.commands == []


@pytest.mark.parametrize(
    ("environment", "sent"),
    [
        ({"TERM": "xterm-256color"}, "\a"),
        (
            {"TERM": "xterm-kitty"},
            "\a\x1b]99;i=voxtui:d=0;v\x1b\\\x1b]99;i=voxtui:p=body;a b\x1b\\",
        ),
        ({"TERM": "foot"}, "\a\x1b]777;notify;v;a b\x1b\\"),
        ({"VTE_VERSION": "7600"}, "\a\x1b]777;notify;v;a b\x1b\\"),
        ({"ITERM_SESSION_ID": "1"}, "\a\x1b]9;v: a b\x1b\\"),
        (
            {"TMUX": "/tmp/tmux", "ITERM_SESSION_ID": "1"},
            "\a\x1bPtmux;\x1b\x1b]9;v: a b\x1b\x1b\\\x1b\\",
        ),
    ],
)
def test_only_a_terminal_that_says_who_it_is_gets_a_notification(environment, sent):
    assert notification("v", "a \x1bb", environment) == sent
