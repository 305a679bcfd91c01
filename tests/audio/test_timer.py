"""A timer that rings, as somebody in the room hears it."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from tests.audio.sounds import find, question, report
from tests.fakes import BeepVoice, Events, ScriptedBrain, engine_on_fakes
from tests.ui.pseudo_terminal import until
from tests.virtual_audio import MICROPHONE, RATE, SPEAKER, Recorder, VirtualAudio
from voxtui.audio.chime import SECONDS, VOICE_GAIN, bells
from voxtui.audio.microphone import SounddeviceMicrophone
from voxtui.audio.resampling import resample
from voxtui.audio.silero import PySilero
from voxtui.audio.speaker import SounddeviceSpeaker
from voxtui.brains.embedded.embedded_brain import EmbeddedBrain
from voxtui.brains.embedded.recogniser import Moonshine
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import SAMPLE_RATE, SpeechChunk
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import Cancel, SendText, Silence
from voxtui.dialogue.events import (
    CountdownsChanged,
    Rang,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
)
from voxtui.dialogue.protocols import Voice
from voxtui.dialogue.timestamps import Outcome, Timestamps
from voxtui.settings.schema import (
    BrainConfig,
    Config,
    EmbeddedBrainConfig,
    GenerationConfig,
    VadConfig,
    VoiceConfig,
)
from voxtui.skills.assistant_skills import AssistantSkills
from voxtui.skills.timer_alarm import CHIMES
from voxtui.skills.timer_store import Entries, Timer, TimerStore
from voxtui.voices.hibari import HibariVoice

pytestmark = [pytest.mark.audio, pytest.mark.slow, pytest.mark.models]

ON_TIME_MS = 150
ROUNDS = 6

CHIME = bells(RATE)
BEGIN = CHIME[: round(0.5 * RATE)]
"""The part that is searched for."""

LONG = ["This is an answer that goes on and on. "] * 12


class RecordedVoice(BeepVoice):
    """FakeVoice: the same recorded speech for each clause."""

    def speak(self, clause: str, speed: float | None = None, language: str = "en"):
        yield SpeechChunk(question("opposite-of-hot"), SAMPLE_RATE, clause)


def set_timer(folder: Path, seconds: float) -> float:
    """Set a timer and return the monotonic time at which it is due."""
    ends = datetime.now(UTC) + timedelta(seconds=seconds)
    due = time.monotonic() + (ends - datetime.now(UTC)).total_seconds()
    with TimerStore(folder).changing() as change:
        change.entries = Entries((Timer(seconds, ends, name="tea"),))
    return due


@contextmanager
def ringing_engine(
    folder: Path, voice: Voice, replies: int = 1
) -> Generator[tuple[Engine, Events]]:
    events = Events()
    engine = engine_on_fakes(
        events,
        speaker=SounddeviceSpeaker(SPEAKER),
        brain=ScriptedBrain(*[LONG] * replies),
        voice=voice,
        skills=AssistantSkills(folder),
    )
    with closing(engine):
        engine.start()
        ready(events)
        yield engine, events


def ready(events: Events) -> None:
    events.until(StateChanged, lambda event: event == StateChanged(State.READY))


def begins_after(recorder: Recorder, due: float) -> float:
    """Return the milliseconds from `due` to the recorded chime."""
    first = recorder.index(due - 0.3)
    at, correlation = find(BEGIN, recorder.samples[first : recorder.index(due + 1.2)])
    assert correlation > 0.5, f"no chime: {correlation:.2f}"
    return 1000 * ((first + at) / RATE + recorder.began_at - due)


@pytest.mark.parametrize("answering", [False, True])
def test_the_chime_begins_at_its_time(
    virtual_audio: VirtualAudio, tmp_path: Path, answering: bool
) -> None:
    times: list[float] = []
    with (
        ringing_engine(tmp_path, RecordedVoice(), ROUNDS) as (engine, events),
        virtual_audio.record() as recorder,
    ):
        for _ in range(ROUNDS):
            due = set_timer(tmp_path, 2.3)
            if answering:
                engine.post(SendText("Tell me something long."))
                events.until(StateChanged, lambda event: event == StateChanged(State.SPEAKING))
            events.until(Rang)
            recorder.until(due + 1.3)
            assert not answering or engine.state is State.SPEAKING
            times.append(begins_after(recorder, due))
            assert engine.post(Silence())
            if answering:
                engine.post(Cancel())
                ready(events)
    worst = max(times, key=abs)
    report(f"answering {answering}: median {statistics.median(times):.1f} ms, worst {worst:.1f} ms")
    assert abs(worst) < ON_TIME_MS


def test_it_rings_again_until_somebody_stops_it(
    virtual_audio: VirtualAudio, tmp_path: Path
) -> None:
    with (
        ringing_engine(tmp_path, HibariVoice(Config().voice)) as (engine, events),
        closing(Moonshine()) as recogniser,
        virtual_audio.record() as recorder,
    ):
        recogniser.load()
        due = set_timer(tmp_path, 2.0)
        events.until(Rang)
        recorder.until(due + CHIMES[1] + 4.0)
        heard = recorder.samples
        for chime in CHIMES[:2]:
            assert abs(begins_after(recorder, due + chime)) < ON_TIME_MS
        assert engine.post(Silence())
        stopped = time.monotonic()
        recorder.until(stopped + 0.5)
        after = recorder.since(stopped + 0.3)
        assert np.abs(after).max(initial=0.0) < 0.01
        words = recogniser.recognise(resample(heard, RATE, SAMPLE_RATE)).text.lower()
        events.until(CountdownsChanged, lambda event: event == CountdownsChanged(()))
    report(f"the timer rang: {words!r}")
    assert words.count("timer is done") == 2
    assert events.of(TurnStarted) == []


def test_stop_said_aloud_ends_an_answer_and_what_rings(
    virtual_audio: VirtualAudio, tmp_path: Path
) -> None:
    config = Config(
        brain=BrainConfig(embedded=EmbeddedBrainConfig(model="smollm2-135m")),
        generation=GenerationConfig(temperature=0.0),
        voice=VoiceConfig(speed=0.5),
        vad=VadConfig(hands_free=True, listen_while_speaking=True),
    )
    events, voice = Events(), HibariVoice(config.voice)
    engine = Engine(
        Models(PySilero(), EmbeddedBrain(config), voice, overhearing=PySilero()),
        config,
        events,
        Devices(SounddeviceMicrophone(MICROPHONE), SounddeviceSpeaker(SPEAKER)),
        AssistantSkills(tmp_path),
    )

    def stopped() -> tuple[str | None, str]:
        """Say "Stop." and return what was heard, and the answer."""
        assert virtual_audio.say(stop, chunk.rate).wait() == 0
        said = events.until(TurnFinished, lambda event: event.turn.outcome is Outcome.ANSWERED)
        ready(events)
        return said.turn.heard, said.turn.reply

    def none_rings() -> bool:
        events.drain()
        return events.of(CountdownsChanged)[-1] == CountdownsChanged(())

    with closing(engine), virtual_audio.record() as recorder:
        engine.start()
        ready(events)
        (chunk,) = voice.speak("Stop.", 1.0)
        stop = np.pad(chunk.samples, (0, chunk.rate // 2))
        engine.post(SendText("Tell me a long story about a dog and a cat."))
        events.until(StateChanged, lambda event: event == StateChanged(State.SPEAKING))
        assert stopped() == ("Stop.", "Okay.")
        cut = next(event.turn for event in events.of(TurnFinished))
        assert cut.outcome is Outcome.CANCELLED
        set_timer(tmp_path, 2.0)
        events.until(Rang)
        assert stopped() == ("Stop.", "Okay.")
        until(none_rings)
        quiet = time.monotonic()
        recorder.until(quiet + CHIMES[1] + 1.0)
        assert np.abs(recorder.since(quiet + 0.3)).max(initial=0.0) < 0.01


@pytest.mark.parametrize("ahead", [0.6, 0.0])
def test_the_voice_is_lowered_while_the_chime_sounds(
    virtual_audio: VirtualAudio, ahead: float
) -> None:
    with (
        closing(SounddeviceSpeaker(SPEAKER)) as speaker,
        virtual_audio.record() as recorder,
    ):
        speaker.open()
        hum = 0.4 * np.sin(2 * np.pi * 200 * np.arange(5 * RATE) / RATE)
        timestamps = Timestamps()
        threading.Timer(1.0, lambda: speaker.chime(time.monotonic() + ahead)).start()
        speaker.play(SpeechChunk(hum.astype(np.float32), RATE, ""), timestamps, threading.Event())
        seconds = speaker.finish(timestamps, threading.Event())
        recorder.until(time.monotonic() + 0.2)
        heard = recorder.stop()
    at, _ = find(CHIME, heard)

    def level(first: float, last: float) -> float:
        """Return the amplitude of the hum from `first` to `last` seconds after the chime began."""
        part = heard[at + round(first * RATE) : at + round(last * RATE)]
        wave = np.exp(-2j * np.pi * 200 * np.arange(len(part)) / RATE)
        return 2 * abs(float(np.abs(part @ wave))) / len(part)

    assert level(-0.3, -0.1) == pytest.approx(0.4, rel=0.1)
    assert level(0.1, 1.4) == pytest.approx(0.4 * VOICE_GAIN, rel=0.2)
    assert level(SECONDS + 0.1, SECONDS + 0.4) == pytest.approx(0.4, rel=0.1)
    assert seconds == pytest.approx(5.0, abs=0.01)
