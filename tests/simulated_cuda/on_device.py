"""Voxtral on the simulated device: the attempt at the fast path, a conversation, and faults.

`test_all.py` runs this file in the environment of the device. Faults come last, because a lost
device stays lost until the process ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from tests.brains.voxtral.tiny_voxtral import build
from tests.brains.voxtral.turns import answered, computed, ids, utterance
from tests.dialogue.talking import talking
from tests.simulated_cuda import operations
from voxtui import wiring
from voxtui.brains.voxtral import brain as brain_module
from voxtui.brains.voxtral import fast_path, kernels
from voxtui.brains.voxtral.brain import VoxtralBrain
from voxtui.brains.voxtral.cuda_errors import marker
from voxtui.errors import ModelError, ModelLost, RestartNeeded
from voxtui.models import cuda
from voxtui.settings.schema import (
    BrainConfig,
    Config,
    GenerationConfig,
    VoiceConfig,
    VoxtralBrainConfig,
)

PLAIN = "Voxtral answers without its fast path. "


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("voxtral")
    build(directory)
    return directory


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Few tokens, because Triton's interpreter is slow. The fast path is faster by decree."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cuda, "DEVICE_NODES", (Path("/dev/null"),))
    monkeypatch.setattr(brain_module, "REHEARSAL_SECONDS", 0.0)
    every = fast_path.rehearsal_prompts
    for name, value in {
        "CAPTURED_CAPACITY": 1024, "TOKENS": 4, "HANG_SECONDS": 1200.0,
        "rehearsal_prompts": lambda *given: every(*given)[:2],
        "step_seconds": lambda loop, prompt: 0.5 if loop.kv_buckets else 1.0,
    }.items():  # fmt: skip
        monkeypatch.setattr(fast_path, name, value)
    monkeypatch.setattr(kernels, "BLOCK", (1024, 64, 4))
    monkeypatch.setattr(kernels.attend, "__defaults__", ((2, 64),))


@pytest.fixture
def config(checkpoint: Path) -> Config:
    return Config(
        brain=BrainConfig(voxtral=VoxtralBrainConfig(model=str(checkpoint))),
        generation=GenerationConfig(temperature=0.0, max_new_tokens=12),
        voice=VoiceConfig(engine="none"),
    )


@pytest.fixture
def loaded(config: Config) -> Iterator[Callable[[], tuple[VoxtralBrain, list[str]]]]:
    opened: list[VoxtralBrain] = []

    def load() -> tuple[VoxtralBrain, list[str]]:
        said: list[str] = []
        loaders = wiring.build_brain(config, said.append)
        found = loaders.load(lambda part: part.warm_up(lambda step, fraction: None)).part
        assert isinstance(found, VoxtralBrain)
        opened.append(found)
        return found, said

    yield load
    for brain in opened:
        brain.close()


def test_the_fast_path_with_our_kernels_answers_a_conversation(
    config: Config, checkpoint: Path
) -> None:
    said: list[str] = []
    brain = VoxtralBrain(config, checkpoint, said.append)
    with talking(brain, config=config) as talk:  # type: ignore[arg-type]
        assert brain.path, said
        before = operations.replays()
        turns = [talk.ask(), talk.ask()]
        assert operations.replays() > before
    assert [turn.error for turn in turns] == [None] * 2
    assert [turn.path for turn in turns] == [brain_module.FAST] * 2
    assert not marker().exists()


def test_full_memory_costs_one_turn_and_ends_the_fast_path(
    loaded: Any, config: Config, checkpoint: Path
) -> None:
    short = utterance(1.0)
    brain, said = loaded()
    computed(brain)  # else the work ahead meets the full memory, and the turn has room
    assert brain.path, said
    plain: list[list[int]] = []
    for number in range(2):
        with no_memory():
            with pytest.raises(ModelError, match="Too little GPU memory for this turn") as full:
                answered(brain, (), utterance(65.0, number))
            assert type(full.value) is ModelError
            assert not brain.path
        plain.append(ids(answered(brain, (), short)))
    assert said == [
        "Voxtral answers without its fast path from now on. Too little GPU memory for this turn."
    ]
    voxtral = replace(config.brain.voxtral, fast=False)
    never_fast = replace(config, brain=replace(config.brain, voxtral=voxtral))
    with closing(VoxtralBrain(never_fast, checkpoint, print)) as reference:
        reference.warm_up(lambda step, fraction: None)
        assert plain == [ids(answered(reference, (), short))] * 2


@contextmanager
def no_memory() -> Generator[None]:
    """Let other programs take the memory of the device, and this one use up what torch holds."""
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    operations.take(free)
    rest: list[torch.Tensor] = []
    size = 1 << 25
    while size >= 512:
        try:
            rest.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    try:
        yield
    finally:
        rest.clear()
        operations.take(0)


def test_too_little_memory_for_the_fast_path_leaves_the_plain_one(
    loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = fast_path.check_memory

    def full(device: torch.device) -> None:
        free, _ = torch.cuda.mem_get_info()
        operations.take(free - 10**9)
        try:
            check(device)
        finally:
            operations.take(0)

    monkeypatch.setattr(fast_path, "check_memory", full)
    brain, said = loaded()
    assert not brain.path
    assert said == [f"{PLAIN}It needs 1.6 GB of GPU memory, and 1.0 GB are free."]
    assert answered(brain, (), utterance(1.0))


def test_a_capture_that_fails_leaves_the_plain_path(loaded: Any) -> None:
    operations.refuse_captures(1)
    brain, said = loaded()
    assert not brain.path
    assert "not permitted when stream is capturing" in said[-1]
    assert answered(brain, (), utterance(1.0))
    assert not marker().exists()


def test_a_lost_device_is_one_sentence_and_its_brain_can_be_closed(loaded: Any) -> None:
    brain, _ = loaded()
    assert brain.path
    operations.lose(after=20)
    with pytest.raises(ModelLost, match="The GPU failed: CUDA error: unspecified launch failure"):
        answered(brain, (), utterance(1.0, 2))
    brain.close()


def test_an_attempt_that_loses_the_device_needs_a_restart(
    loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs alone (`-k restart`), because the device stays lost."""
    step = fast_path.use_kernels

    def lose(decoder: Any) -> None:
        step(decoder)
        operations.lose(after=20)

    monkeypatch.setattr(fast_path, "use_kernels", lose)
    with pytest.raises(RestartNeeded, match="unusable: CUDA error"):
        loaded()
    assert marker().exists()
