"""Parts of an engine: which are loaded, and what replaces those that fail or are lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.fakes import (
    OUT_OF_MEMORY,
    SECONDS,
    BeepVoice,
    Events,
    FakeSpeaker,
    Flag,
    ScriptedBrain,
    engine_on_fakes,
    frames,
)
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import Release, ReplaceComponents, SendText, Talk
from voxtui.dialogue.events import (
    ChangeFailed,
    Event,
    Loaded,
    LoadFailed,
    Loading,
    Notice,
    State,
    StateChanged,
    TurnFinished,
)
from voxtui.dialogue.fallbacks import Fallbacks
from voxtui.dialogue.protocols import DEFAULT_OPTIONS, Progress, ReplyOptions
from voxtui.dialogue.timestamps import Outcome, Turn
from voxtui.errors import ModelError, ModelLost, NoGpu
from voxtui.settings.schema import Config

LOST = ModelLost("The GPU failed.", "A restart brings it back.")


class Best(ScriptedBrain):
    name = "best"
    description = "the best there is"
    sends_to = "far.example"


class Damaged(Best):
    def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
        raise ModelError("Its file is damaged.", "Fetch it again.")


def impossible() -> ScriptedBrain:
    raise ModelError("It needs a GPU.")


@contextmanager
def running(**parts: object) -> Iterator[tuple[Engine, Events]]:
    events = Events()
    engine = engine_on_fakes(events, **parts)
    engine.start()
    try:
        yield engine, events
    finally:
        engine.close()


def loaded(events: Events) -> Loaded:
    event = events.until(Loaded)
    assert isinstance(event, Loaded)
    return event


def until_ready(events: Events) -> None:
    events.until(StateChanged, lambda event: event == StateChanged(State.READY))


def notices(events: Events) -> list[str]:
    return [event.message for event in events.of(Notice) if isinstance(event, Notice)]


def finished(events: Events) -> Turn:
    event = events.until(TurnFinished)
    assert isinstance(event, TurnFinished)
    return event.turn


def test_the_best_brain_that_loads_answers() -> None:
    with running(brain=Fallbacks((Best, ScriptedBrain))) as (_, events):
        assert loaded(events).brain == "the best there is"
        until_ready(events)
        assert notices(events) == []


@pytest.mark.parametrize(
    ("best", "reason"),
    [(impossible, "It needs a GPU."), (Damaged, "Its file is damaged. Fetch it again.")],
)
def test_a_notice_says_why_the_next_brain_answers(best: type[Best], reason: str) -> None:
    with running(brain=Fallbacks((best, ScriptedBrain))) as (_, events):
        assert loaded(events).brain == "scripted brain"
        assert notices(events) == [f"The scripted brain answers. {reason}"]


def test_a_machine_without_a_gpu_is_no_news() -> None:
    def no_gpu() -> ScriptedBrain:
        raise NoGpu("There is no GPU.")

    with running(brain=Fallbacks((no_gpu, ScriptedBrain))) as (_, events):
        assert loaded(events).brain == "scripted brain"
        until_ready(events)
        assert notices(events) == []


def test_a_brain_that_the_user_named_is_not_replaced_by_another() -> None:
    with running(brain=Fallbacks((Damaged, ScriptedBrain), first_only=True)) as (_, events):
        failed = events.until(LoadFailed)
        assert isinstance(failed, LoadFailed) and "damaged" in str(failed.error)


def test_a_voice_that_this_machine_cannot_run_is_replaced_without_a_notice() -> None:
    def none() -> BeepVoice:
        raise ModelError("There is no GPU.")

    with running(voice=Fallbacks((none, BeepVoice)), speaker=FakeSpeaker()) as (engine, events):
        until_ready(events)
        assert notices(events) == []
        engine.post(SendText("hello"))
        assert finished(events).first_sound_ms is not None


def test_a_notice_says_why_a_voice_did_not_load() -> None:
    class Broken(BeepVoice):
        def warm_up(self, progress: Progress) -> None:
            raise ModelError("Its file is damaged.")

    with running(voice=Fallbacks((Broken, BeepVoice)), speaker=FakeSpeaker()) as (_, events):
        assert loaded(events).voice == "beep"
        assert notices(events) == ["The voice is beep. Its file is damaged."]


class LoadsWhenTold(ScriptedBrain):
    def __init__(self) -> None:
        super().__init__()
        self.told = Flag()

    def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
        progress("the other brain", 0.5)
        assert self.told.wait(SECONDS)


def test_a_lost_brain_is_replaced_after_its_turn_and_key_presses_meanwhile_are_served() -> None:
    best, other = Best(["One", LOST]), LoadsWhenTold()
    with running(brain=Fallbacks((lambda: best, lambda: other))) as (engine, events):
        until_ready(events)
        engine.post(SendText("hello"))
        turn = finished(events)
        assert (turn.outcome, turn.error) == (Outcome.FAILED, str(LOST))
        assert events.until(Loading) == Loading("the other brain", 0.5)
        assert engine.state is State.LOADING and not best.closed
        number = engine.post(Talk(10.0, "clip"))
        for frame in frames("..xxxxxxxxxx...", source="clip"):
            engine.push(frame)
        engine.post(Release(10.0 + 15 * 0.032, number))
        other.told.set()
        assert loaded(events).brain == "scripted brain"
        answered = finished(events)
        assert (answered.number, answered.outcome) == (number, Outcome.ANSWERED)
        assert best.closed
        assert f"The scripted brain answers from now on. {LOST}" in notices(events)


def test_a_brain_that_the_user_named_is_replaced_once_it_is_lost() -> None:
    brains = Fallbacks((lambda: Best([LOST]), ScriptedBrain), first_only=True)
    with running(brain=brains) as (engine, events):
        until_ready(events)
        engine.post(SendText("hello"))
        finished(events)
        assert loaded(events).brain == "scripted brain"


def test_a_brain_that_is_lost_while_it_transcribes_is_replaced_too() -> None:
    best = Best(["Yes."], heard=None, transcript=[LOST])
    with running(brain=Fallbacks((lambda: best, ScriptedBrain))) as (engine, events):
        until_ready(events)
        engine.post(Talk(10.0, "clip"))
        for frame in frames("..xxxxxxxxxx...", source="clip"):
            engine.push(frame)
        engine.post(Release(10.4))
        assert finished(events).outcome is Outcome.ANSWERED
        assert loaded(events).brain == "scripted brain"


def test_a_brain_is_closed_before_the_next_one_is_loaded_and_loaded_again_if_that_fails() -> None:
    in_memory: list[ScriptedBrain] = []

    class Large(ScriptedBrain):
        def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
            assert not in_memory and not self.closed
            in_memory.append(self)

        def close(self) -> None:
            super().close()
            in_memory[:] = [brain for brain in in_memory if brain is not self]

    class Failing(Large):
        def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
            super().warm_up(progress, options)
            raise OUT_OF_MEMORY

    with running(brain=Fallbacks((Large,))) as (engine, events):
        until_ready(events)
        for brains in (Fallbacks((Large,)), Fallbacks((Failing,))):
            engine.post(ReplaceComponents(Config(), brain=brains))
            until_ready(events)
        assert events.of(ChangeFailed) == [ChangeFailed(OUT_OF_MEMORY)]
        engine.post(SendText("anybody?"))
        assert finished(events).outcome is Outcome.ANSWERED


def test_if_the_former_brain_does_not_load_again_the_start_has_failed() -> None:
    class Once(ScriptedBrain):
        def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
            if self.closed:
                raise ModelError("Its file is gone.")

    with running(brain=Once()) as (engine, events):
        until_ready(events)
        engine.post(ReplaceComponents(Config(), brain=Fallbacks((Damaged,))))
        failed = events.until(LoadFailed)
        assert isinstance(failed, LoadFailed) and str(failed.error) == "Its file is gone."
        engine.post(ReplaceComponents(Config(), brain=Fallbacks((Best,))))
        until_ready(events)
        engine.post(SendText("anybody?"))
        assert finished(events).outcome is Outcome.ANSWERED


def test_a_brain_that_fails_without_being_lost_is_kept() -> None:
    with running(brain=Fallbacks((lambda: Best([OUT_OF_MEMORY]), ScriptedBrain))) as (
        engine,
        events,
    ):
        until_ready(events)
        engine.post(SendText("hello"))
        assert finished(events).outcome is Outcome.FAILED
        engine.post(SendText("hello"))
        assert finished(events).brain == "best"


def test_if_no_other_brain_loads_a_notice_is_shown_and_the_engine_stays_ready() -> None:
    with running(brain=Fallbacks((lambda: Best([LOST]), Damaged))) as (engine, events):
        until_ready(events)
        engine.post(SendText("hello"))
        assert finished(events).error == str(LOST)

        def says_so(event: Event) -> bool:
            return "No other brain can be loaded. Its file is damaged." in str(event)

        events.until(Notice, says_so)
        until_ready(events)


def test_an_engine_of_a_server_neither_warms_up_nor_closes_its_models() -> None:
    brain, voice = ScriptedBrain(["Yes."], ["Yes."]), BeepVoice()
    for _ in range(2):
        with running(brain=brain, voice=voice, speaker=FakeSpeaker(), owned=False) as parts:
            engine, events = parts
            until_ready(events)
            engine.post(SendText("Ready?"))
            assert finished(events).outcome is Outcome.ANSWERED
    assert len(voice.clauses) == 2
    assert (brain.warmed, brain.closed, voice.closed) == (False, False, False)
