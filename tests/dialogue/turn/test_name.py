"""Hands-free with a name: only speech that begins with it is answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from tests.dialogue.talking import notices, talking
from tests.dialogue.turn.test_skills import ClockOnly
from tests.fakes import ScriptedBrain, frames
from voxtui.dialogue.data import FRAME_SECONDS, SKILL, Frame
from voxtui.dialogue.events import Caption, Captured, UserWords
from voxtui.dialogue.listening.heard_words import after_name
from voxtui.dialogue.protocols import SkillAnswer, SkillRequest, TurnRequest
from voxtui.dialogue.timestamps import Outcome
from voxtui.dialogue.turn import turn_taking
from voxtui.settings.schema import Config, VadConfig

JARVIS = Config(vad=VadConfig(hands_free=True, name="Hey Jarvis"))
NAMED = Config(vad=VadConfig(hands_free=True, name="Hey Vox"))

CALL = 0.99
"""The sample value of the fake name."""


class Hears(ScriptedBrain):
    """FakeBrain: each utterance has the next words; None: it does not know them."""

    def __init__(self, *words: str | None) -> None:
        super().__init__()
        self.words = list(words)

    def reply(self, request: TurnRequest) -> Iterator:
        self._heard = self.words.pop(0)
        yield from super().reply(request)


class VeryLoudIsName:
    """FakeNameDetector: a frame at full scale ends the name."""

    def heard(self, frame: Frame) -> bool:
        return float(np.abs(frame.samples).max()) >= CALL


@pytest.fixture
def call():
    """Return a function that says the name and something hands-free, and returns the turn."""
    numbers = count()

    def call(talk):
        at = 10.0 + next(numbers) * 100 * FRAME_SECONDS
        sound = frames("......xxxxxxxxxxxx" + "." * 26, at)
        sound[14] = replace(sound[14], samples=np.full_like(sound[14].samples, CALL))
        talk.microphone.push(sound)
        return talk.turn()

    return call


@pytest.fixture
def utter():
    """Return a function that says something hands-free and returns the turn."""
    numbers = count()

    def utter(talk):
        at = 10.0 + next(numbers) * 100 * FRAME_SECONDS
        talk.microphone.push(frames("......xxxxxxxxxxxx" + "." * 26, at))
        return talk.turn()

    return utter


@pytest.mark.parametrize(
    ("words", "rest"),
    [
        ("Hey Vox, what time is it?", "what time is it?"),
        ("hey vox What time is it", "What time is it"),
        ("Hey, Vox! Stop.", "Stop."),
        ("Hey Vox.", ""),
        ("Hey Voxel, stop.", None),
        ("I said hey Vox.", None),
        ("", None),
    ],
)
def test_what_follows_the_name(words, rest):
    assert after_name(words, "Hey Vox") == rest


def test_only_what_begins_with_the_name_is_answered_shown_and_kept(utter):
    brain = Hears("We should go home.", "Hey Vox, how old is the moon?")
    with talking(brain, config=NAMED, captions=True) as talk:
        overheard = utter(talk)
        assert (overheard.outcome, overheard.heard, overheard.reply) == (
            Outcome.CANCELLED, None, "",
        )  # fmt: skip
        turn = utter(talk)
        assert (turn.heard, turn.reply) == ("how old is the moon?", "Yes.")
        assert brain.pasts[-1] == ()
        assert [event.text for event in talk.events.of(UserWords)] == ["how old is the moon?"]
        assert not talk.events.of(Caption)
        assert talk.voice.clauses == ["Yes."]
        assert {options.name for _, _, options in brain.listened} == {"Hey Vox"}
        assert not brain.transcribing.is_set()


def test_after_the_name_alone_the_next_utterance_needs_none(utter, monkeypatch):
    brain = Hears("Hey Vox.", "How old is the moon?", "And the sun?")
    with talking(brain, config=NAMED) as talk:
        assert (utter(talk).reply, talk.voice.clauses) == ("Yes?", ["Yes?"])
        assert utter(talk).heard == "How old is the moon?"
        monkeypatch.setattr(turn_taking, "ATTENTIVE_SECONDS", 0.0)
        assert utter(talk).outcome is Outcome.CANCELLED


def test_the_key_needs_no_name():
    with talking(Hears("How old is the moon?"), config=NAMED) as talk:
        turn = talk.ask()
        assert (turn.outcome, turn.heard) == (Outcome.ANSWERED, "How old is the moon?")


def test_a_brain_that_answers_sound_cannot_wait_for_a_name_and_says_so(utter):
    with talking(Hears(None), config=NAMED) as talk:
        assert (utter(talk).outcome, talk.voice.clauses) == (Outcome.CANCELLED, [])
        assert "vad.name" in notices(talk.events)


def test_what_rings_is_stopped_without_the_name_and_no_rule_answers_anybody_else(utter):
    class Rings(ClockOnly):
        """FakeSkills: something rings."""

        def answer(self, request: SkillRequest) -> SkillAnswer | None:
            if request.words == "Stop.":
                return SkillAnswer("Okay.")
            return super().answer(request) if request.called else None

    brain = Hears("What time is it?", "Stop.", "Hey Vox, what time is it?")
    with talking(brain, config=NAMED, skills=Rings()) as talk:
        assert utter(talk).outcome is Outcome.CANCELLED
        stopped = utter(talk)
        assert (stopped.heard, stopped.reply) == ("Stop.", "Okay.")
        turn = utter(talk)
        assert (turn.brain, turn.heard) == (SKILL, "what time is it?")


def test_with_a_detector_no_brain_hears_what_has_no_name(utter, call):
    brain = Hears("Hey Jarvis, how old is the moon?")
    with talking(brain, config=JARVIS, name_detector=VeryLoudIsName()) as talk:
        talk.microphone.push(frames("......xxxxxxxxxxxx" + "." * 26, 1.0))
        turn = call(talk)
        assert (turn.number, turn.heard, turn.reply) == (1, "how old is the moon?", "Yes.")
        assert len(brain.listened) == 1
        (utterance,) = talk.events.of(Captured)
        assert utterance.utterance.speech[0][0] < 0.3  # the name is in it


def test_a_detected_name_is_believed_however_the_recogniser_spells_it(call):
    brain = Hears("A Jervis, how old is it?", "Right, hey Jarvis, how old is the moon?", None)
    with talking(brain, config=JARVIS, name_detector=VeryLoudIsName()) as talk:
        assert call(talk).heard == "A Jervis, how old is it?"
        assert call(talk).heard == "how old is the moon?"
        without_words = call(talk)
        assert (without_words.outcome, without_words.reply) == (Outcome.ANSWERED, "Yes.")


def test_after_a_detected_name_alone_the_next_utterance_needs_none(utter, call, monkeypatch):
    brain = Hears("Hey Jarvis.", "How old is the moon?", "Hey Jarvis, and the sun?")
    with talking(brain, config=JARVIS, name_detector=VeryLoudIsName()) as talk:
        assert call(talk).reply == "Yes?"
        assert utter(talk).heard == "How old is the moon?"
        talk.microphone.push(frames("......xxxxxxxxxxxx" + "." * 26, 18.0))
        assert call(talk).heard == "and the sun?"


def test_what_rings_is_stopped_without_a_detected_name(utter):
    class Rings(ClockOnly):
        """FakeSkills: something rings."""

        rang = True

        def answer(self, request: SkillRequest) -> SkillAnswer | None:
            return SkillAnswer("Okay.") if request.words == "Stop." else None

    with talking(
        Hears("Stop."), config=JARVIS, name_detector=VeryLoudIsName(), skills=Rings()
    ) as talk:
        assert utter(talk).reply == "Okay."
