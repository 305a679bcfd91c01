"""A timer that rings, as somebody in the room hears it."""

from __future__ import annotations

import re
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.audio.sounds import report
from tests.fakes import Events, ScriptedBrain, engine_on_fakes
from tests.virtual_audio import RATE, SPEAKER, VirtualAudio
from voxtui.audio.resampling import resample
from voxtui.audio.speaker import SounddeviceSpeaker
from voxtui.brains.embedded.recogniser import Moonshine
from voxtui.dialogue.commands import SendText
from voxtui.dialogue.data import SAMPLE_RATE
from voxtui.dialogue.events import Rang, State, StateChanged, TurnFinished, TurnStarted
from voxtui.settings.schema import Config
from voxtui.skills.assistant_skills import AssistantSkills
from voxtui.voices.hibari import HibariVoice

pytestmark = [pytest.mark.audio, pytest.mark.slow, pytest.mark.models]


def test_a_timer_rings_aloud(virtual_audio: VirtualAudio, tmp_path: Path) -> None:
    events = Events()
    engine = engine_on_fakes(
        events,
        speaker=SounddeviceSpeaker(SPEAKER),
        brain=ScriptedBrain(),
        voice=HibariVoice(Config().voice),
        skills=AssistantSkills(tmp_path),
    )

    def wait_for(state: State) -> None:
        events.until(StateChanged, lambda event: event == StateChanged(state))

    with closing(engine), closing(Moonshine()) as recogniser:
        engine.start()
        recogniser.load()
        wait_for(State.READY)
        engine.post(SendText("Set a tea timer for twelve seconds."))
        events.until(TurnFinished)
        wait_for(State.READY)
        with virtual_audio.record() as recorder:
            events.until(Rang)
            wait_for(State.READY)
            recorder.until(time.monotonic() + 0.15)
            heard = recogniser.recognise(resample(recorder.stop(), RATE, SAMPLE_RATE)).text
    report(f"the timer rang: {heard!r}")
    assert len(re.findall("timer is done", heard.lower())) == 2
    assert len(events.of(TurnStarted)) == 1
