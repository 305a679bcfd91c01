"""Choosing the brain: the best that can be had, and the reason where it cannot."""

import threading

import numpy as np
import pytest

from tests.fakes import Events, ScriptedBrain, engine_on_fakes, frames
from voxtui.brains.auto import AutoBrain
from voxtui.dialogue.data import Token, UserTranscript, Utterance
from voxtui.dialogue.events import Loaded, TurnFinished
from voxtui.dialogue.marks import Marks
from voxtui.dialogue.recording import Recording
from voxtui.errors import ModelError, ModelLost


class Best(ScriptedBrain):
    name = "best"
    description = "the best there is"
    sends_to = "far.example"


class Broken(Best):
    def warm_up(self, progress):
        raise ModelError("Its file is damaged.", "Fetch it again.")


def impossible():
    raise ModelError("It needs a GPU.")


def warm(best, other=ScriptedBrain, asked_for=None):
    said = []
    brain = AutoBrain(best, other, said.append, asked_for)
    brain.warm_up(lambda step, fraction: None)
    return brain, said


def test_the_best_that_can_be_had_answers():
    brain, said = warm(Best)
    assert (brain.name, brain.description, said) == ("best", "the best there is", [])
    assert brain.sends_to == "far.example"


def test_where_the_best_cannot_be_had_the_other_answers_and_the_reason_is_said():
    brain, said = warm(impossible)
    assert (brain.name, said) == ("scripted", ["The scripted brain answers. It needs a GPU."])


def test_one_that_does_not_load_is_closed_and_the_reason_said():
    broken = Broken()
    brain, said = warm(lambda: broken)
    assert (brain.name, broken.closed) == ("scripted", True)
    assert said == ["The scripted brain answers. Its file is damaged. Fetch it again."]


def test_where_the_other_does_not_load_either_its_error_is_raised_and_nothing_said():
    said = []
    brain = AutoBrain(impossible, Broken, said.append)
    with pytest.raises(ModelError, match="damaged"):
        brain.warm_up(lambda step, fraction: None)
    brain.close()
    assert said == []


def test_everything_goes_to_the_brain_that_was_chosen():
    best = Best(["One", " two."])
    brain, _ = warm(lambda: best)
    flag = threading.Event()
    (frame,) = frames("x")
    recording = Recording()
    brain.listen((), recording, flag)
    recording.append(frame, True)
    brain.wake()
    said = Utterance(np.zeros(16_000, np.float32), ((0.0, 1.0),), 0.0)
    reply = list(brain.reply((), said, Marks(), flag))
    assert reply == [UserTranscript("what was said"), Token("One"), Token(" two.")]
    assert list(brain.transcribe(said, flag)) == [Token("what was said")]
    assert (best.listened, best.frames) == ([((), flag)], [(frame, True)])
    brain.close()
    assert best.closed


def test_before_it_is_loaded_it_has_a_name_and_answers_with_one_sentence():
    brain = AutoBrain(Best, ScriptedBrain, print)
    assert (brain.name, brain.description, brain.sends_to) == ("auto", "no brain yet", "")
    with pytest.raises(ModelError, match="No brain is loaded"):
        brain.reply((), "hello", Marks(), threading.Event())
    brain.close()


LOST = ModelLost("The GPU failed.", "A restart brings it back.")


def test_a_brain_that_is_lost_costs_one_turn_and_the_other_answers_the_next():
    best = Best(["One", LOST])
    brain, said = warm(lambda: best)
    with pytest.raises(ModelLost, match="restart"):
        list(brain.reply((), "hello", Marks(), threading.Event()))
    assert (brain.name, best.closed) == ("scripted", True)
    assert said == [
        "The scripted brain answers from now on. The GPU failed. A restart brings it back."
    ]
    assert Token("Yes.") in list(brain.reply((), "hello", Marks(), threading.Event()))


def test_a_brain_that_fails_once_is_kept():
    brain, said = warm(lambda: Best([ModelError("Out of memory.")]))
    with pytest.raises(ModelError):
        list(brain.reply((), "hello", Marks(), threading.Event()))
    assert (brain.name, said) == ("best", [])


def test_where_no_other_brain_loads_the_lost_one_says_both():
    broken = Broken()
    brain, said = warm(lambda: Best([LOST]), lambda: broken)
    with pytest.raises(ModelError, match=r"The GPU failed\..*No other brain.*damaged"):
        list(brain.reply((), "hello", Marks(), threading.Event()))
    assert said == [] and broken.closed
    brain.close()


def test_one_that_was_asked_for_by_name_is_not_silently_another():
    said = []
    for best in (impossible, Broken):
        brain = AutoBrain(best, ScriptedBrain, said.append, asked_for="best")
        assert brain.name == "best"
        with pytest.raises(ModelError, match=r"GPU|damaged"):
            brain.warm_up(lambda step, fraction: None)
        brain.close()
    assert said == []


def test_one_that_was_asked_for_and_is_lost_is_replaced_all_the_same():
    brain, said = warm(lambda: Best([LOST]), asked_for="best")
    with pytest.raises(ModelLost, match="restart"):
        list(brain.reply((), "hello", Marks(), threading.Event()))
    assert brain.name == "scripted"
    assert said and "A restart brings it back." in said[0]


@pytest.mark.parametrize(
    ("reply", "transcript"), [([LOST], None), (["Yes."], [LOST])], ids=["answering", "writing down"]
)
def test_from_a_loss_on_the_front_ends_name_the_brain_that_answers(reply, transcript):
    events = Events()
    best = Best(reply, heard=None, transcript=transcript)
    engine = engine_on_fakes(events, brain=AutoBrain(lambda: best, ScriptedBrain, print))
    engine.start()
    try:
        assert events.until(Loaded).brain == "the best there is"
        engine.talk(1000.0, "clip")
        for frame in frames("..xxxxxxxxxx...", source="clip"):
            engine.push_frame(frame)
        engine.release(1000.4)
        events.until(TurnFinished)
        assert events.until(Loaded).brain == "scripted brain"
    finally:
        engine.close()
