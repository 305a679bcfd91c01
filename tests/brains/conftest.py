from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.fakes import Flag
from voxtui.audio.silero import PySilero
from voxtui.brains.embedded.embedded_brain import EmbeddedBrain
from voxtui.dialogue.data import FRAME_SAMPLES, SAMPLE_RATE, Frame, Utterance
from voxtui.dialogue.listening.endpointing import SpeechGate
from voxtui.dialogue.protocols import DEFAULT_OPTIONS, Brain, Past, ReplyOptions, TurnRequest
from voxtui.dialogue.recording import Recording
from voxtui.settings.schema import BrainConfig, Config, EmbeddedBrainConfig, GenerationConfig

QUESTIONS = Path(__file__).parents[1] / "data" / "questions"


@dataclass(frozen=True)
class Question:
    samples: np.ndarray
    text: str
    answer: str

    def frames(self, silence: int = 8) -> list[Frame]:
        """Return the clip and `silence` frames of zeros after it."""
        padded = np.concatenate([self.samples, np.zeros((silence + 1) * FRAME_SAMPLES, np.float32)])
        return [
            Frame(padded[i : i + FRAME_SAMPLES], 1000 + (i + FRAME_SAMPLES) / SAMPLE_RATE)
            for i in range(0, len(padded) - FRAME_SAMPLES, FRAME_SAMPLES)
        ]

    def verdicts(self) -> list[tuple[Frame, bool]]:
        """Return its frames, and True for each that is speech."""
        detector, gate = PySilero(), SpeechGate(0.5)
        return [(f, gate.verdict(detector.probability(f))) for f in self.frames()]

    def recording(self) -> Recording:
        recording = Recording()
        for frame, speech in self.verdicts():
            recording.append(frame, speech)
        return recording

    def utterance(self) -> Utterance:
        said = self.recording().utterance()
        assert said is not None
        return said


def speak(
    brain: Brain,
    verdicts: Iterable[tuple[Frame, bool]],
    past: Past = (),
    cancelled: Flag | None = None,
    options: ReplyOptions = DEFAULT_OPTIONS,
) -> Recording:
    """Hold the key while `verdicts` are recorded: frames, and True for speech."""
    recording = Recording()
    brain.listen(TurnRequest(past, cancelled=cancelled or Flag(), options=options), recording)
    for frame, speech in verdicts:
        recording.append(frame, speech)
        brain.wake()
    return recording


@pytest.fixture(scope="session")
def questions() -> list[Question]:
    table = tomllib.loads((QUESTIONS / "questions.toml").read_text())["question"]
    return [
        Question(soundfile.read(QUESTIONS / q["file"], dtype="float32")[0], q["text"], q["answer"])
        for q in table
    ]


def small(model: str = "smollm2-135m", **generation: object) -> Config:
    return Config(
        brain=BrainConfig(embedded=EmbeddedBrainConfig(model=model)),
        generation=GenerationConfig(**generation),  # type: ignore[arg-type]
    )


def warm(model: str, **generation: object) -> EmbeddedBrain:
    brain = EmbeddedBrain(small(model, **generation))
    brain.warm_up(lambda step, fraction: None)
    return brain


@pytest.fixture
def cancelled() -> Flag:
    return Flag()


@pytest.fixture(scope="session")
def oracle(tiny_voxtral: Path):
    from tests.brains.voxtral.turns import Oracle

    return Oracle(tiny_voxtral)
