"""Voxtral on the simulated device: the real trial, the loader, turns, and faults.

`test_all.py` runs this file in the environment of the device. Faults come last, because a lost
device stays lost until the process ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.brains.voxtral.tiny_voxtral import build
from tests.brains.voxtral.turns import answered, utterance
from tests.simulated_cuda import operations
from voxtui import wiring
from voxtui.brains.voxtral import brain as brain_module
from voxtui.brains.voxtral import trial
from voxtui.brains.voxtral.brain import VoxtralBrain
from voxtui.brains.voxtral.proving import Proving
from voxtui.errors import ModelLost
from voxtui.models import cuda
from voxtui.settings.schema import (
    BrainConfig,
    Config,
    GenerationConfig,
    VoiceConfig,
    VoxtralBrainConfig,
)

TINY = """
import sys
from dataclasses import replace
from multiprocessing.connection import Connection
from voxtui.brains.voxtral import kernels, trial_process
kernels.BLOCK = (512, 1024, 4)  # Triton's interpreter takes its time for each block
kernels.attend.__defaults__ = ((2, 64), False)
trial_process.TRUE, trial_process.true_config = trial_process.TINY, trial_process.tiny_config
measured = trial_process.Measuring._times
def times(self, captured):
    found = measured(self, captured)
    return tuple(replace(one, median=1e-3) for one in found) if captured else found
trial_process.Measuring._times = times
trial_process.serve(Connection(int(sys.argv[1])))
"""
"""The true shape would take a CPU hours. Times mean nothing here, so a fast path is fast."""


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("voxtral")
    build(directory)
    return directory


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cuda, "DEVICE_NODE", Path("/dev/null"))
    monkeypatch.setattr(brain_module, "CAPTURED_CAPACITY", 1024)
    monkeypatch.setattr(brain_module, "REHEARSAL_SECONDS", 0.0)
    monkeypatch.setattr(trial, "start", partial(trial.start, TINY))
    monkeypatch.setattr(brain_module, "Proving", lambda *parts: Proving(*parts, start=trial.start))


@pytest.fixture
def config(checkpoint: Path) -> Config:
    return Config(
        brain=BrainConfig(voxtral=VoxtralBrainConfig(model=str(checkpoint))),
        generation=GenerationConfig(temperature=0.0, max_new_tokens=12),
        voice=VoiceConfig(engine="none"),
    )


@pytest.fixture
def loaded(config: Config) -> Iterator[Callable[..., tuple[VoxtralBrain, list[str]]]]:
    opened: list[VoxtralBrain] = []

    def load(trial_first: bool = False) -> tuple[VoxtralBrain, list[str]]:
        said: list[str] = []
        loaders = wiring.build_brain(config, said.append, trial_first=trial_first)
        found = loaders.load(lambda part: part.warm_up(lambda step, fraction: None)).part
        assert isinstance(found, VoxtralBrain)
        opened.append(found)
        return found, said

    yield load
    for brain in opened:
        brain.close()


def test_the_trial_finds_the_captured_path_equal_to_the_plain_one() -> None:
    (found,) = trial.run_trial(["captured"], seconds=1000, start=trial.start)
    assert found.state == "equal", found.why
    assert found.steps > 60
    assert found.token and found.first and found.plain_token and found.plain_first


def test_too_little_memory_for_a_fast_path_leaves_the_plain_one(loaded: Any) -> None:
    brain, said = loaded()
    free, _ = torch.cuda.mem_get_info()
    operations.take(free - 10**9)
    try:
        assert brain.switch("captured")
        assert brain.path is None
        assert "1.0 GB are free" in said[-1]
        assert answered(brain, (), utterance(1.0))
    finally:
        operations.take(0)


def test_a_capture_that_fails_leaves_the_plain_path(loaded: Any) -> None:
    brain, said = loaded()
    operations.refuse_captures(1)
    assert brain.switch("captured")
    assert brain.path is None
    assert "not permitted when stream is capturing" in said[-1]
    assert answered(brain, (), utterance(1.0))
    assert brain.switch("captured")
    assert brain.path == "captured"


def test_a_lost_device_is_one_sentence_and_its_brain_can_be_closed(loaded: Any) -> None:
    brain, _ = loaded()
    assert brain.switch("captured")
    operations.lose(after=20)
    with pytest.raises(ModelLost, match="The GPU failed: CUDA error: unspecified launch failure"):
        answered(brain, (), utterance(1.0, 2))
    brain.close()
