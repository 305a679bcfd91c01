"""An answer of a skill in the place of the brain's."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from tests.dialogue.talking import talking, text
from tests.fakes import SECONDS, FakeSpeaker, ScriptedBrain, frames
from voxtui.dialogue.data import SKILL
from voxtui.dialogue.engine_commands import Mute, Redo, Release, SendText, Silence, Talk
from voxtui.dialogue.events import (
    Rang,
    Remark,
    Reminded,
    RingsIn,
    State,
    StateChanged,
    TurnFinished,
    UserWords,
)
from voxtui.dialogue.protocols import SkillAnswer, SkillRequest, TurnRequest
from voxtui.dialogue.timestamps import Outcome
from voxtui.settings.schema import Config, HistoryConfig, VoiceConfig


class ClockOnly:
    """FakeSkills: answers words about the time, and notes everything it was asked."""

    tools = ()
    rang = False

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.past: list[str] = []
        self.closed = False
        self.time = datetime(2026, 11, 22, 13, 4)

    def start(self, emit) -> None:
        self.emit = emit

    def now(self) -> datetime:
        return self.time

    def answer(self, request: SkillRequest) -> SkillAnswer | None:
        self.asked.append((request.words, request.again))
        self.past = [turn.user_text for turn in request.past]
        return SkillAnswer("It is ten past one.") if "time" in request.words else None

    def stop_ringing(self, snooze: bool = False, missed: bool = False) -> bool:
        return False

    def doubt(self, reply: str) -> str | None:
        return "It did nothing." if "I have set" in reply else None

    def close(self) -> None:
        self.closed = True


class AbandonedBrain(ScriptedBrain):
    """Notes if its reply is closed after the user's words."""

    def __init__(self, heard: str) -> None:
        super().__init__(heard=heard)
        self.abandoned = threading.Event()

    def reply(self, request: TurnRequest) -> Iterator:
        try:
            yield from super().reply(request)
        except GeneratorExit:
            self.abandoned.set()
            raise


@contextmanager
def with_skills(brain: ScriptedBrain, skills: ClockOnly, **parts):
    with talking(brain, skills=skills, **parts) as t:
        yield t
    assert skills.closed


def test_a_skill_answers_in_place_of_the_brain_in_the_same_voice():
    brain = AbandonedBrain(heard="what time is it")
    with with_skills(brain, ClockOnly()) as t:
        turn = t.ask()
        assert turn.outcome is Outcome.ANSWERED
        assert (turn.brain, turn.heard, turn.reply) == (
            SKILL,
            "what time is it",
            "It is ten past one.",
        )
        assert t.voice.clauses == ["It is ten past one."]
        assert text(t.events) == "It is ten past one."
        assert brain.abandoned.is_set()
        timestamps = turn.timestamps
        assert timestamps["skill"] <= timestamps["first_token"] <= timestamps["first_sound"]


class SlowInSpanish(ClockOnly):
    """FakeSkills: asks for another pace and language."""

    def answer(self, request: SkillRequest) -> SkillAnswer | None:
        return SkillAnswer("Son las 13:10.", "es", 0.5)


def test_a_skill_says_in_which_language_and_how_slowly_it_is_spoken():
    with with_skills(AbandonedBrain(heard="mas despacio"), SlowInSpanish()) as t:
        t.ask()
    assert (t.voice.languages[-1], t.voice.speeds[-1]) == ("es", 0.5 * VoiceConfig().speed)


def test_the_turn_of_a_skill_stands_in_the_history_of_the_next():
    brain = AbandonedBrain(heard="what time is it")
    with with_skills(brain, ClockOnly()) as t:
        t.ask()
        t.engine.post(SendText("And now?"))
        t.turn()
    past = brain.pasts[-1][0]
    assert (past.user_text, past.reply_text) == ("what time is it", "It is ten past one.")


def test_a_skill_knows_what_the_brain_has_forgotten():
    brain, skills = AbandonedBrain(heard=""), ClockOnly()
    with with_skills(brain, skills, config=Config(history=HistoryConfig(max_tokens=40))) as t:
        for words in ("My name is Ann.", "Hello.", "Who am I?"):
            t.engine.post(SendText(words))
            t.turn()
    assert [turn.user_text for turn in brain.pasts[-1]] == ["Hello."]
    assert skills.past == ["My name is Ann.", "Hello."]


def test_the_brain_reads_the_answer_of_a_skill_while_it_is_heard():
    brain, speaker = AbandonedBrain(heard="what time is it"), FakeSpeaker(held=True)
    with with_skills(brain, ClockOnly(), speaker=speaker) as t:
        t.speak()
        assert speaker.finishing.wait(SECONDS)
        past, _ = brain.read_pasts[-1]
        speaker.held = False
        t.turn()
    assert [turn.reply_text for turn in past] == ["It is ten past one."]
    assert [turn.user_text for turn in past] == ["what time is it"]


def test_a_skill_takes_typed_words():
    brain, skills = AbandonedBrain(heard=""), ClockOnly()
    with with_skills(brain, skills) as t:
        t.engine.post(SendText("The time, please"))
        turn = t.turn()
        assert turn.brain == SKILL and turn.heard == "The time, please"
        assert brain.abandoned.is_set()
        assert len(t.events.of(UserWords)) == 1


def test_the_brain_answers_what_no_skill_takes():
    brain, skills = AbandonedBrain(heard="hello"), ClockOnly()
    with with_skills(brain, skills) as t:
        turn = t.ask()
        assert turn.brain == "scripted" and turn.reply == "Yes."
        assert "skill" not in turn.timestamps
        assert skills.asked == [("hello", False)]


class Raising(ClockOnly):
    """FakeSkills: raises in everything that it is asked, with the user's words in the message."""

    def start(self, emit) -> None:
        raise ValueError("start")

    def now(self) -> datetime:
        raise OverflowError("now")

    def answer(self, request: SkillRequest) -> SkillAnswer | None:
        raise ValueError(request.words)

    def stop_ringing(self, snooze: bool = False, missed: bool = False) -> bool:
        return False

    def doubt(self, reply: str) -> str | None:
        raise KeyError(reply)

    def close(self) -> None:
        self.closed = True
        raise OSError("close")


def test_the_brain_answers_if_a_skill_raises_and_the_log_does_not_hold_the_words(caplog):
    with with_skills(AbandonedBrain(heard="secret"), Raising()) as t:
        turn = t.ask()
        assert (turn.outcome, turn.brain, turn.reply) == (Outcome.ANSWERED, "scripted", "Yes.")
        t.engine.post(SendText("secret"))
        assert t.turn().outcome is Outcome.ANSWERED
    lines = [record.getMessage() for record in caplog.records]
    assert sum("A skill failed with ValueError at test_skills.py:" in line for line in lines) >= 2
    assert not any("secret" in line or "Yes" in line for line in lines)


def test_a_skill_knows_that_an_utterance_is_answered_again():
    skills = ClockOnly()
    with with_skills(AbandonedBrain(heard="what time is it"), skills) as t:
        t.ask()
        t.engine.post(Redo(1))
        t.events.until(TurnFinished)
    assert [again for _, again in skills.asked] == [False, True]


def test_a_brain_that_hears_no_words_answers_itself():
    skills = ClockOnly()
    with with_skills(ScriptedBrain(heard=None), skills) as t:
        assert t.ask().brain == "scripted"
        assert skills.asked == []


def test_an_engine_has_no_skills_unless_it_is_given_some():
    with talking(AbandonedBrain(heard="what time is it")) as t:
        assert t.ask().brain == "scripted"


RANG = Rang("Your pasta timer is done.")
DUE = Reminded(RANG.sentence)
SPOKEN = ["Your pasta timer,", "is done."]


def spoken(clauses: list[str]) -> list[str]:
    return [clause.strip() for clause in clauses]


def test_a_timer_is_spoken_and_is_no_turn():
    brain, skills = ScriptedBrain(), ClockOnly()
    with with_skills(brain, skills) as t:
        skills.emit(DUE)
        t.events.until(Reminded)
        t.events.until(StateChanged, lambda e: e == StateChanged(State.SPEAKING))
        t.events.until(StateChanged, lambda e: e == StateChanged(State.READY))
        assert spoken(t.voice.clauses) == SPOKEN
        t.ask()
        assert len(t.events.of(TurnFinished)) == 1
    assert brain.pasts == [()]


def test_a_timer_is_shown_at_once_and_spoken_after_the_answer():
    go_on, skills = threading.Event(), ClockOnly()
    brain = ScriptedBrain(["Yes. ", go_on])
    with with_skills(brain, skills) as t:
        t.speak()
        t.events.until(StateChanged, lambda e: e == StateChanged(State.SPEAKING))
        skills.emit(DUE)
        t.events.until(Reminded)
        assert spoken(t.voice.clauses) == ["Yes."]
        go_on.set()
        t.turn()
        t.events.until(StateChanged, lambda e: e == StateChanged(State.SPEAKING))
        t.events.until(StateChanged, lambda e: e == StateChanged(State.READY))
        assert spoken(t.voice.clauses) == ["Yes.", *SPOKEN]


def test_a_timer_waits_while_the_user_speaks():
    skills = ClockOnly()
    with with_skills(ScriptedBrain(), skills) as t:
        t.engine.post(Talk(10.0))
        t.microphone.push(frames("..xxxxxxxxxx", 10.0))
        t.events.until(StateChanged, lambda e: e == StateChanged(State.LISTENING))
        skills.emit(DUE)
        t.microphone.push(frames("...", 10.5))
        t.engine.post(Release(10.6))
        t.turn()
        t.events.until(StateChanged, lambda e: e == StateChanged(State.SPEAKING))
        assert spoken(t.voice.clauses)[0] == "Yes."


def test_a_timer_is_silenced_by_the_front_end_and_by_a_new_turn():
    skills, speaker = ClockOnly(), FakeSpeaker(held=True)
    with with_skills(ScriptedBrain(), skills, speaker=speaker) as t:
        assert not t.engine.post(Silence())
        skills.emit(DUE)
        assert speaker.finishing.wait(SECONDS)
        assert t.engine.post(Silence())
        t.events.until(StateChanged, lambda e: e == StateChanged(State.READY))
        speaker.finishing.clear()
        skills.emit(DUE)
        assert speaker.finishing.wait(SECONDS)
        speaker.held = False
        t.engine.post(SendText("Hello?"))
        assert t.turn().reply == "Yes."
        assert not t.engine.post(Silence())


def test_the_chime_is_the_speakers_at_once_and_its_sentence_is_dropped_when_it_is_stopped():
    go_on, skills, speaker = threading.Event(), ClockOnly(), FakeSpeaker()
    brain = ScriptedBrain(["Yes. ", go_on])
    with with_skills(brain, skills, speaker=speaker) as t:
        t.speak()
        t.events.until(StateChanged, lambda e: e == StateChanged(State.SPEAKING))
        skills.emit(RingsIn(0.5))
        assert speaker.chimes[0] == pytest.approx(time.monotonic() + 0.5, abs=0.4)
        skills.emit(DUE)
        skills.emit(RingsIn(None))
        assert speaker.chimes[1] is None
        go_on.set()
        t.turn()
        t.events.until(StateChanged, lambda e: e == StateChanged(State.READY))
        t.engine.post(SendText("Hello?"))
        t.turn()
        assert SPOKEN[0] not in spoken(t.voice.clauses)


def test_what_was_missed_is_spoken_though_something_was_stopped_before():
    skills = ClockOnly()
    with with_skills(ScriptedBrain(), skills) as t:
        skills.emit(RingsIn(None))
        skills.emit(RANG)
        skills.emit(DUE)
        t.events.until(StateChanged, lambda e: e == StateChanged(State.SPEAKING))
        t.events.until(StateChanged, lambda e: e == StateChanged(State.READY))
        assert spoken(t.voice.clauses) == SPOKEN


def test_a_muted_timer_is_only_shown():
    skills = ClockOnly()
    with with_skills(ScriptedBrain(), skills) as t:
        t.engine.post(Mute(True))
        skills.emit(DUE)
        t.events.until(Reminded)
        t.engine.post(SendText("Hello?"))
        t.turn()
        assert t.voice.clauses == []


def test_a_brain_that_claims_what_it_did_not_do_gets_a_note():
    skills = ClockOnly()
    brain = ScriptedBrain(["I have set ", "a timer."], ["Timers count down."])
    with with_skills(brain, skills) as t:
        t.engine.post(SendText("Do something with ten minutes"))
        t.turn()
        t.engine.post(SendText("What is a timer?"))
        t.turn()
        assert [e.sentence for e in t.events.of(Remark)] == ["It did nothing."]
