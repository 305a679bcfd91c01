"""The contract of every SpeechDetector, the fake one included; the two Sileros agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.fakes import LoudIsSpeech
from voxtui.audio.silero import PySilero, TorchSilero
from voxtui.dialogue.data import FRAME_SAMPLES, Frame
from voxtui.dialogue.protocols import SpeechDetector

CLIP = Path(__file__).parents[1] / "data" / "questions" / "romeo-and-juliet.flac"


@pytest.fixture(params=[LoudIsSpeech, PySilero, TorchSilero])
def detector(request: pytest.FixtureRequest) -> SpeechDetector:
    return request.param()


def speech() -> list[Frame]:
    samples, _ = soundfile.read(CLIP, dtype="float32")
    samples = np.concatenate([np.zeros(8000, np.float32), samples, np.zeros(16_000, np.float32)])
    return [
        Frame(samples[i : i + FRAME_SAMPLES], i / 16_000)
        for i in range(0, len(samples) - FRAME_SAMPLES, FRAME_SAMPLES)
    ]


def probabilities(detector: SpeechDetector) -> list[float]:
    return [detector.probability(frame) for frame in speech()]


def test_speech_is_likely_and_silence_is_not(detector: SpeechDetector) -> None:
    found = probabilities(detector)
    assert all(0 <= p <= 1 for p in found)
    assert max(found) > 0.9
    assert max(found[:8]) < 0.5 and max(found[-8:]) < 0.5


def test_reset_discards_the_state_of_earlier_frames(detector: SpeechDetector) -> None:
    first = probabilities(detector)
    detector.reset()
    assert probabilities(detector) == pytest.approx(first, abs=1e-4)


def test_the_torch_free_silero_agrees_with_the_official_one() -> None:
    ours, official = probabilities(PySilero()), probabilities(TorchSilero())
    assert np.corrcoef(ours, official)[0, 1] > 0.99
    verdicts = [(a > 0.5) == (b > 0.5) for a, b in zip(ours, official, strict=True)]
    assert sum(verdicts) >= 0.97 * len(verdicts)
