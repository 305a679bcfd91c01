"""The models of microWakeWord, by the real package and a spoken name."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from voxtui.audio.micro_wake_word import MicroWakeWord, has_model
from voxtui.audio.resampling import resample
from voxtui.dialogue.data import FRAME_SAMPLES, SAMPLE_RATE, Frame
from voxtui.errors import ModelError
from voxtui.settings.schema import BrainConfig, Config, VadConfig, VoiceConfig
from voxtui.voices.hibari import HibariVoice
from voxtui.wiring import build_name_detector

JARVIS = Config(BrainConfig("embedded"), vad=VadConfig(hands_free=True, name="hey jarvis"))


@pytest.fixture(scope="module")
def spoken():
    """Return a function that has the embedded voice say something between two pauses."""
    voice = HibariVoice(VoiceConfig())
    voice.warm_up(lambda step, fraction: None)

    def spoken(text: str) -> list[Frame]:
        samples = np.concatenate([chunk.samples for chunk in voice.speak(text)])
        sound = np.pad(resample(samples, 24_000, SAMPLE_RATE), SAMPLE_RATE // 2)
        starts = range(0, len(sound) - FRAME_SAMPLES, FRAME_SAMPLES)
        return [
            Frame(sound[at : at + FRAME_SAMPLES], (at + FRAME_SAMPLES) / SAMPLE_RATE)
            for at in starts
        ]

    yield spoken
    voice.close()


@pytest.mark.models
def test_the_name_is_heard_once_each_time_and_nothing_else_is(spoken) -> None:
    pytest.importorskip("pymicro_wakeword", reason="the extra wake-word is not installed")
    detector = MicroWakeWord("Hey Jarvis")
    for _ in range(2):
        called = [frame.captured_at for frame in spoken("Hey Jarvis, how old is the moon?")
                  if detector.heard(frame)]  # fmt: skip
        assert len(called) == 1
        assert 1.0 < called[0] < 1.6  # the name ends there
    others = spoken("Hey Travis, hey Alexa, the jars are on the service table.")
    assert [detector.heard(frame) for frame in others] == [False] * len(others)


@pytest.mark.parametrize(
    ("name", "known"), [("Hey Jarvis", True), ("OKAY NABU", True), ("Hey Vox", False), ("", False)]
)
def test_a_name_without_a_model_is_left_to_the_recogniser(name: str, known: bool) -> None:
    assert has_model(name) is known
    config = Config(vad=VadConfig(hands_free=True, name=name))
    assert known or build_name_detector(config) is None


def test_without_the_extra_the_recogniser_listens(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pymicro_wakeword", None)
    assert build_name_detector(JARVIS) is None


def test_a_package_that_does_not_load_is_reported(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pymicro_wakeword", None)
    with pytest.raises(ModelError, match="'hey jarvis'") as failure:
        MicroWakeWord("hey jarvis").heard(Frame(np.zeros(FRAME_SAMPLES, np.float32), 0.0))
    assert "wake-word" in (failure.value.hint or "")
