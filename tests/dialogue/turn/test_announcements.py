"""Texts that are read aloud and are no turn."""

from __future__ import annotations

import threading
from contextlib import contextmanager

from tests.dialogue.talking import notices, talking
from tests.fakes import SECONDS, BeepVoice, FakeMicrophone, FakeSpeaker, ScriptedBrain
from voxtui.dialogue.dialogue import Dialogue
from voxtui.dialogue.engine_commands import Cancel, Mute, Ring, SendText, Speak, Talk
from voxtui.dialogue.events import Event, Notice, State, StateChanged, TurnFinished
from voxtui.dialogue.timestamps import Outcome
from voxtui.dialogue.turn import announcements
from voxtui.dialogue.turn.turn import LiveTurn, answering
from voxtui.errors import DeviceError

READ = "Read this aloud. Then stop."
SPOKEN = ["Read this aloud.", "Then stop."]


def enters(state: State):
    return lambda event: event == StateChanged(state)


def spoken(voice: BeepVoice) -> list[str]:
    return [clause.strip() for clause in voice.clauses]


def test_a_text_is_read_aloud_once_in_its_language_and_is_no_turn():
    brain = ScriptedBrain()
    brain.spoken = "fr"
    with talking(brain) as t:
        assert t.engine.post(Speak(READ)) < 0
        t.events.until(StateChanged, enters(State.SPEAKING))
        t.events.until(StateChanged, enters(State.READY))
        assert (spoken(t.voice), t.voice.languages) == (SPOKEN, ["fr", "fr"])
        assert t.events.of(TurnFinished) == [] and t.engine.past == ()


def test_it_ends_the_answer_in_progress():
    speaker = FakeSpeaker(held=True, heard=0.0)
    with talking(speaker=speaker) as t:
        t.speak()
        assert speaker.finishing.wait(SECONDS)
        t.engine.post(Speak(READ))
        speaker.held = False
        assert t.turn().outcome is Outcome.CANCELLED
        t.events.until(StateChanged, enters(State.SPEAKING))
        t.events.until(StateChanged, enters(State.READY))
        assert spoken(t.voice) == ["Yes.", *SPOKEN]


def ended_by(command: Cancel | Talk | SendText | Speak) -> list[Event]:
    """Return the events after `command`, posted while a text is read aloud."""
    speaker = FakeSpeaker(held=True)
    with talking(speaker=speaker) as t:
        number = t.engine.post(Speak(READ))
        assert speaker.finishing.wait(SECONDS)
        t.events.drain()
        ended = t.engine.post(command)
        t.events.until(StateChanged, enters(State.READY))
        assert ended == number or not isinstance(command, Cancel)
        speaker.held = False
        t.events.drain()
        return t.events.seen


def test_cancel_a_key_a_text_and_another_text_end_it():
    assert TurnFinished not in map(type, ended_by(Cancel()))
    ended_by(Talk(10.0))
    ended_by(SendText("Hello?"))
    ended_by(Speak("Something else."))


def test_only_the_newest_text_is_read_and_none_that_was_cancelled_before_it_began():
    go_on = threading.Event()
    with talking(ScriptedBrain(["Yes. ", go_on, "No."]), silent=False) as t:
        t.speak()
        t.events.until(StateChanged, enters(State.SPEAKING))
        t.engine.post(Speak("The first."))  # the brain does not notice yet
        t.engine.post(Speak("The second."))
        go_on.set()
        t.turn()
        t.events.until(StateChanged, enters(State.SPEAKING))
        t.events.until(StateChanged, enters(State.READY))
        assert spoken(t.voice)[-1] == "The second."
        t.engine.post(Speak("The third."))
        t.engine.post(SendText("Hello?"))
        t.turn()
        assert "The third." not in spoken(t.voice)


def test_it_says_why_nothing_is_read():
    with talking() as t:
        t.engine.post(Mute(True))
        t.engine.post(Speak(READ))
        t.events.until(Notice)
        assert notices(t.events).count("The voice is muted, so nothing is read aloud.") == 1
    with talking(silent=True) as t:
        t.engine.post(Speak(READ))
        t.events.until(Notice)
        assert "There is no voice or speaker, so nothing is read aloud." in notices(t.events)


def test_a_speaker_that_fails_at_it_is_replaced_before_the_user_talks():
    others = (FakeMicrophone(), FakeSpeaker())
    with talking(fallback_devices=lambda: others) as t:
        t.speaker.fails = DeviceError("The headset is gone.")
        t.engine.post(Speak(READ))
        t.events.until(StateChanged, enters(State.LOADING))
        t.events.until(StateChanged, enters(State.READY))
        assert t.ask().outcome is Outcome.ANSWERED
        assert others[1].chunks


def test_a_key_in_the_moment_in_which_an_announcement_begins_ends_it(monkeypatch):
    @contextmanager
    def pressed_before(turn: LiveTurn, dialogue: Dialogue):
        dialogue.inbox.post(SendText("Hello?"))
        with answering(turn, dialogue):
            yield

    with talking() as t:
        monkeypatch.setattr(announcements, "answering", pressed_before)
        t.engine.post(Ring("Your timer is done."))
        assert t.turn().outcome is Outcome.ANSWERED
        assert spoken(t.voice) == ["Yes."]
