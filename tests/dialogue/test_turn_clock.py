"""The line with the date and the time before the user's words."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.dialogue.talking import SPEECH, EngineTest, talking
from tests.dialogue.turn.test_skills import ClockOnly
from tests.fakes import ScriptedBrain, frames
from tests.ui.pseudo_terminal import until
from voxtui.dialogue.data import FRAME_SECONDS, Token
from voxtui.dialogue.dialogue import clock_line
from voxtui.dialogue.engine_commands import Redo, Release, SendText, Talk, Typing
from voxtui.dialogue.protocols import PastTurn
from voxtui.settings.schema import BrainConfig, Config

NOON = datetime(2026, 11, 22, 12, 4)
FULL = "(It is Sunday, 22 November 2026, 12:04.)"


def past(*clocks: str) -> tuple[PastTurn, ...]:
    return tuple(PastTurn("hi", "hi", (Token("Hi."),), clock=clock) for clock in clocks)


def test_the_date_stands_in_the_first_turn_of_a_day_that_the_history_has() -> None:
    later = NOON + timedelta(minutes=1)
    assert clock_line(NOON, ()) == FULL
    assert clock_line(later, past(FULL)) == "(12:05)"
    assert clock_line(later, past("(It is Saturday, 21 November 2026, 12:04.)", "(23:59)")) == (
        "(It is Sunday, 22 November 2026, 12:05.)"
    )
    assert clock_line(later, past("(12:04)")) == "(It is Sunday, 22 November 2026, 12:05.)"


def at_noon() -> ClockOnly:
    skills = ClockOnly()
    skills.time = NOON
    return skills


def typed(talk: EngineTest, text: str) -> None:
    read = len(talk.brain.typed)
    talk.engine.post(Typing(text))
    until(lambda: len(talk.brain.typed) > read)


def test_a_spoken_turn_has_the_time_of_the_key_and_keeps_it() -> None:
    skills = at_noon()
    with talking(skills=skills) as talk:
        talk.engine.post(Talk(10.0))
        until(lambda: bool(talk.brain.listened))
        skills.time += timedelta(minutes=3)
        talk.microphone.push(frames(SPEECH, 10.0))
        talk.engine.post(Release(10.0 + len(SPEECH) * FRAME_SECONDS))
        talk.turn()
        talk.ask(at=2000.0)
        assert [turn.clock for turn in talk.brain.pasts[-1]] == [FULL]
        assert talk.brain.clocks == [FULL, FULL, "(12:07)", "(12:07)"]


@pytest.mark.parametrize(("seconds", "clock"), [(59, FULL), (61, FULL.replace("04", "05"))])
def test_a_typed_turn_has_the_time_of_its_first_key_for_a_minute(seconds: int, clock: str) -> None:
    skills = at_noon()
    with talking(skills=skills) as talk:
        typed(talk, "What")
        skills.time += timedelta(seconds=seconds)
        talk.engine.post(SendText("What day is it?"))
        talk.turn()
        assert talk.brain.clocks == [FULL, clock]


def test_a_turn_that_replaces_another_has_its_date() -> None:
    skills = at_noon()
    with talking(skills=skills) as talk:
        talk.ask()
        skills.time += timedelta(minutes=1)
        talk.engine.post(Redo(1))
        talk.turn()
        assert talk.brain.clocks[-1] == FULL.replace("04", "05")


def test_no_time_without_skills_or_with_the_clock_off() -> None:
    with talking() as talk:
        talk.ask()
        assert set(talk.brain.clocks) == {""}
    off = Config(brain=BrainConfig(clock=False))
    with talking(ScriptedBrain(), skills=at_noon(), config=off) as talk:
        typed(talk, "What")
        talk.engine.post(SendText("What day is it?"))
        talk.turn()
        assert set(talk.brain.clocks) == {""}
