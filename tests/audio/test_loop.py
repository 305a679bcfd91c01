"""The whole loop without fakes: spoken questions go in, and audible answers come out."""

from __future__ import annotations

import difflib
import re
import threading
import time
import tomllib
from collections.abc import Iterator

import numpy as np
import pytest

from tests.audio.sounds import QUESTIONS, question, report
from tests.fakes import Events
from tests.virtual_audio import MICROPHONE, RATE, SPEAKER, Recorder, VirtualAudio
from voxtui.audio.microphone import SounddeviceMicrophone
from voxtui.audio.resampling import resample
from voxtui.audio.silero import PySilero
from voxtui.audio.speaker import SounddeviceSpeaker
from voxtui.brains.embedded.embedded_brain import EmbeddedBrain
from voxtui.brains.embedded.recogniser import Moonshine
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import AUDIBLE, SAMPLE_RATE
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import NewConversation, Release, Talk
from voxtui.dialogue.events import (
    Loaded,
    Notice,
    SpokenUpTo,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
)
from voxtui.dialogue.timestamps import Milestone, Outcome, Timestamps, Turn
from voxtui.settings.schema import BrainConfig, Config, EmbeddedBrainConfig, GenerationConfig
from voxtui.voices.hibari import HibariVoice

pytestmark = [pytest.mark.audio, pytest.mark.models]

TEXTS = {
    q["file"].removesuffix(".flac"): (q["text"], q["answer"])
    for q in tomllib.loads((QUESTIONS / "questions.toml").read_text())["question"]
}


class Person:
    """Presses the key, speaks, and listens to the answer from outside."""

    def __init__(self, audio: VirtualAudio, model: str, tokens: int) -> None:
        self.audio = audio
        self.events = Events()
        config = Config(
            brain=BrainConfig(embedded=EmbeddedBrainConfig(model=model)),
            generation=GenerationConfig(max_new_tokens=tokens, temperature=0.0),
        )
        self.engine = Engine(
            Models(PySilero(), EmbeddedBrain(config), HibariVoice(config.voice)),
            config,
            self.events,
            Devices(SounddeviceMicrophone(MICROPHONE), SounddeviceSpeaker(SPEAKER)),
        )
        self.engine.start()
        loaded = self.events.until(Loaded)
        assert isinstance(loaded, Loaded)
        assert (loaded.microphone, loaded.speaker) == (MICROPHONE, SPEAKER)
        self.wait_for(State.READY)

    def wait_for(self, state: State) -> None:
        self.events.until(StateChanged, lambda event: event == StateChanged(state))

    def press(self) -> float:
        """Press the key now; return when."""
        at = time.monotonic()
        self.engine.post(Talk(at))
        return at

    def speaks(self, name: str) -> None:
        """Say a question, then release the key."""
        assert self.audio.say(question(name)).wait() == 0
        self.engine.post(Release())

    def says(self, name: str) -> None:
        self.press()
        self.speaks(name)

    def started(self) -> Timestamps:
        started = self.events.until(TurnStarted)
        assert isinstance(started, TurnStarted)
        return started.timestamps

    def turn(self) -> Turn:
        finished = self.events.until(TurnFinished)
        assert isinstance(finished, TurnFinished)
        self.events.until(StateChanged)
        return finished.turn

    def interrupts(self, recorder: Recorder, after: float) -> tuple[float, Turn]:
        """Press the key `after` seconds of an answer; return when, and the cut-off turn."""
        self.wait_for(State.SPEAKING)
        recorder.until(time.monotonic() + after)
        at = self.press()
        return at, self.turn()


@pytest.fixture(scope="module")
def person(virtual_audio: VirtualAudio) -> Iterator[Person]:
    person = Person(virtual_audio, "smollm2-135m", 24)
    yield person
    person.engine.close()


@pytest.fixture(autouse=True)
def a_conversation_of_its_own(person: Person) -> None:
    person.engine.post(NewConversation())


@pytest.fixture(scope="module")
def recogniser() -> Iterator[Moonshine]:
    recogniser = Moonshine()
    recogniser.load()
    yield recogniser
    recogniser.close()


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())


def likeness(one: str, other: str) -> float:
    """Compare by words, for the transcript of a question."""
    return difflib.SequenceMatcher(None, words(one), words(other)).ratio()


def sounds_like(one: str, other: str) -> float:
    """Compare by letters, because a recogniser spells odd answers its own way."""
    return difflib.SequenceMatcher(None, "".join(words(one)), "".join(words(other))).ratio()


def assert_heard_nothing_before(name: str, turn: Turn) -> None:
    text, _ = TEXTS[name]
    assert turn.heard is not None and likeness(turn.heard, text) >= 0.8
    # The recogniser sometimes makes a word of a breath after the question.
    assert words(turn.heard)[: len(words(text))] == words(text)


def recorded(recorder: Recorder) -> np.ndarray:
    recorder.until(time.monotonic() + 0.15)
    return recorder.stop()


def test_a_spoken_question_is_understood_and_its_answer_is_heard(
    virtual_audio: VirtualAudio, person: Person, recogniser: Moonshine
) -> None:
    with virtual_audio.record() as recorder:
        person.says("blue-and-yellow")
        turn = person.turn()
        played = recorded(recorder)
    text, _ = TEXTS["blue-and-yellow"]
    assert turn.outcome is Outcome.ANSWERED and turn.heard is not None
    understood = recogniser.recognise(resample(played, RATE, SAMPLE_RATE)).text
    report(f"said {text!r}, heard {turn.heard!r}")
    report(f"reply {turn.reply!r}, understood {understood!r}")
    report(f"first sound after {turn.first_sound_ms:.0f} ms")
    assert likeness(turn.heard, text) >= 0.8
    assert sounds_like(turn.reply, understood) >= 0.8
    assert not person.events.of(Notice)


@pytest.mark.slow
def test_a_key_press_silences_the_answer_and_the_next_question_is_heard_whole(
    virtual_audio: VirtualAudio, person: Person, recogniser: Moonshine
) -> None:
    with virtual_audio.record() as recorder:
        person.says("largest-planet")
        pressed, cut = person.interrupts(recorder, 1.0)
        timestamps = person.started()
        person.speaks("first-month")
        turn = person.turn()
        played = recorded(recorder)
    spoken = person.events.of(SpokenUpTo)[-1]
    assert isinstance(spoken, SpokenUpTo)
    next_sound = timestamps.at(Milestone.FIRST_SOUND)
    assert next_sound is not None
    press, after = recorder.index(pressed), recorder.index(next_sound - 0.5)
    loud = np.flatnonzero(np.abs(played[:after]) > AUDIBLE)
    silent_ms = (loud[-1] - press) / RATE * 1000
    understood = recogniser.recognise(resample(played[:after], RATE, SAMPLE_RATE)).text
    report(f"silent {silent_ms:.1f} ms after the key; heard then {turn.heard!r}")
    report(f"remembered {spoken.text!r} of {cut.reply!r}, understood {understood!r}")
    assert -100 < silent_ms <= 50
    assert cut.outcome is Outcome.CANCELLED
    assert 0 < len(spoken.text) < len(cut.reply) and cut.reply.startswith(spoken.text)
    assert sounds_like(spoken.text, understood) >= 0.7
    assert likeness(turn.heard or "", TEXTS["first-month"][0]) >= 0.8


@pytest.mark.slow
def test_with_an_echo_a_key_press_right_after_an_answer_records_none_of_it(
    virtual_audio: VirtualAudio, person: Person
) -> None:
    virtual_audio.echo(100)
    try:
        person.says("opposite-of-hot")
        assert person.turn().outcome is Outcome.ANSWERED
        person.press()
        threading.Event().wait(0.5)
        person.engine.post(Release())
        turn = person.turn()
    finally:
        virtual_audio.echo(0)
    report(f"after its own answer it heard {turn.heard!r}")
    assert turn.outcome is Outcome.NO_SPEECH


@pytest.mark.slow
def test_with_an_echo_an_interruption_is_recorded_without_the_answer_it_cut_off(
    virtual_audio: VirtualAudio, person: Person
) -> None:
    virtual_audio.echo(100)
    try:
        with virtual_audio.record() as recorder:
            person.says("largest-planet")
            _, cut = person.interrupts(recorder, 0.8)
            person.speaks("first-month")
            second = person.turn()
    finally:
        virtual_audio.echo(0)
    report(f"said {cut.reply!r}, heard then {second.heard!r}")
    assert_heard_nothing_before("first-month", second)


def test_silence_is_not_answered(person: Person) -> None:
    person.press()
    assert isinstance(person.started(), Timestamps)
    threading.Event().wait(0.5)
    person.engine.post(Release())
    assert person.turn().outcome is Outcome.NO_SPEECH
