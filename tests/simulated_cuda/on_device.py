"""Voxtral on the simulated device: the real trial, the loader, a conversation, and faults.

`test_all.py` runs this file in the environment of the device. Faults come last, because a lost
device stays lost until the process ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tests.brains.voxtral.tiny_voxtral import build
from tests.brains.voxtral.turns import answered, ids, utterance
from tests.deadline import SECONDS
from tests.dialogue.talking import talking
from tests.fakes import Flag
from tests.simulated_cuda import operations
from voxtui import wiring
from voxtui.brains.voxtral import brain as brain_module
from voxtui.brains.voxtral import fast_paths, graphs, proving, trial
from voxtui.brains.voxtral.brain import VoxtralBrain
from voxtui.brains.voxtral.fast_paths import FastPaths
from voxtui.brains.voxtral.proving import Proving
from voxtui.brains.voxtral.verdict import (
    PATHS,
    FastPath,
    Result,
    Verdict,
    key_of,
    verdict_file,
    write_verdict,
)
from voxtui.errors import ModelError, ModelLost
from voxtui.models import cuda
from voxtui.settings.schema import (
    BrainConfig,
    Config,
    GenerationConfig,
    VoiceConfig,
    VoxtralBrainConfig,
)
from voxtui.storage.turn_metrics import TTFT, SessionTimes

PATIENCE = 600.0
"""Seconds for a trial and a switch on a busy machine."""

TINY = """
import os, sys
from dataclasses import replace
from multiprocessing.connection import Connection
from voxtui.brains.voxtral import kernels, trial_process
os.nice = lambda more: 0  # a busy machine would let it wait for minutes
kernels.BLOCK = (1024, 64, 4)  # Triton's interpreter takes its time for each block and number
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

FEW = """
trial_process.TRUE = trial_process.Scale((33,), 4, 512, 8, 512, 1)
trial_process.BURST = 3
trial_process.serve("""
"""Fewer and shorter replies than TINY."""

tiny_trial = partial(trial.start, TINY)
few_trial = partial(trial.start, TINY.replace("trial_process.serve(", FEW))


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("voxtral")
    build(directory)
    return directory


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cuda, "DEVICE_NODES", (Path("/dev/null"),))
    monkeypatch.setattr(fast_paths, "CAPTURED_CAPACITY", 1024)
    monkeypatch.setattr(brain_module, "REHEARSAL_SECONDS", 0.0)
    monkeypatch.setattr(brain_module, "Proving", partial(Proving, start=few_trial))


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
    (found,) = trial.run_trial(["captured"], seconds=1000, start=tiny_trial)
    assert found.state == "equal", found.why
    assert found.steps > 60
    assert found.token and found.first and found.plain_token and found.plain_first


@pytest.mark.parametrize("path", PATHS[1:])
def test_the_trial_finds_the_paths_with_kernels_equal_in_the_interpreter(path: FastPath) -> None:
    (found,) = trial.run_trial([path], seconds=1000, start=few_trial)
    assert found.state == "equal", found.why
    assert found.steps > 10
    assert found.token and found.first and found.plain_token and found.plain_first


class Listening(VoxtralBrain):
    """Tells when an utterance begins."""

    def __init__(self, config: Config, checkpoint: Path) -> None:
        self.said: list[str] = []
        super().__init__(config, checkpoint, self.said.append)
        self.listening = Flag()

    def listen(self, *parts: Any, **more: Any) -> None:
        super().listen(*parts, **more)
        self.listening.set()


class Switching(FastPaths):
    """Tells when a switch has ended."""

    switched = Flag()
    switches: ClassVar[list[bool]] = []
    """what each switch returned"""

    def switch(self, path: FastPath) -> bool:
        self.switches.append(super().switch(path))
        if self.switches[-1]:
            self.switched.set()
        return self.switches[-1]


def test_a_conversation_is_plain_until_the_trial_has_ended_and_fast_from_a_later_turn_on(
    config: Config, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key press in the middle of the switch ends it at once, and it is done after that turn."""
    known = tuple(Result(path, "failed", "No compiler.") for path in PATHS[1:])
    write_verdict(verdict_file(), Verdict(key_of("Simulated GPU", "none"), known))
    monkeypatch.setattr(proving, "run_trial", partial(trial.run_trial, seconds=1000))
    monkeypatch.setattr(brain_module, "FastPaths", Switching)
    brain = Listening(config, checkpoint)
    captures, pressed = 0, Flag()

    class Pressed(graphs.CudaRecorder):
        """The key is pressed during the third capture."""

        def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
            nonlocal captures
            captures += 1
            if captures == 3:
                brain.listening.clear()
                talk.speak()
                pressed.set()
                assert brain.listening.wait(SECONDS)
            return super().__call__(work)

    monkeypatch.setattr(graphs, "CudaRecorder", Pressed)
    times = SessionTimes()
    with talking(brain, config=config) as talk:  # type: ignore[arg-type]
        turns = [talk.ask(), talk.ask()]
        assert pressed.wait(PATIENCE), brain.said
        turns.append(talk.turn())
        assert not any(Switching.switches)
        assert Switching.switched.wait(PATIENCE), brain.said
        assert brain.path == "captured"
        before = operations.replays()
        turns += [talk.ask(), talk.ask()]
        assert operations.replays() > before
    assert [turn.error for turn in turns] == [None] * 5
    assert [turn.path for turn in turns] == ["", "", "", "captured", "captured"]
    for turn in turns:
        times.add(turn)
    assert len(times.warm.values(TTFT)) == 2
    assert len(times.all.values(TTFT)) == 5


def test_full_memory_costs_one_turn_and_ends_a_fast_path(loaded: Any) -> None:
    brain, said = loaded()
    short = utterance(1.0)
    plain = ids(answered(brain, (), short))
    for number, path in enumerate(("captured", None)):
        if path:
            assert brain.paths.switch(path)
        with no_memory():
            with pytest.raises(ModelError, match="Too little GPU memory for this turn") as full:
                answered(brain, (), utterance(65.0, number))
            assert type(full.value) is ModelError
            assert brain.path is None
        assert ids(answered(brain, (), short)) == plain
    assert said == [
        "Voxtral no longer uses the path `captured`: Too little GPU memory for this turn."
    ]


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


def test_too_little_memory_for_a_fast_path_leaves_the_plain_one(loaded: Any) -> None:
    brain, said = loaded()
    free, _ = torch.cuda.mem_get_info()
    operations.take(free - 10**9)
    try:
        assert brain.paths.switch("captured")
        assert brain.path is None
        assert "1.0 GB are free" in said[-1]
        assert answered(brain, (), utterance(1.0))
    finally:
        operations.take(0)


def test_a_capture_that_fails_leaves_the_plain_path(loaded: Any) -> None:
    brain, said = loaded()
    operations.refuse_captures(1)
    assert brain.paths.switch("captured")
    assert brain.path is None
    assert "not permitted when stream is capturing" in said[-1]
    assert answered(brain, (), utterance(1.0))
    assert brain.paths.switch("captured")
    assert brain.path == "captured"


def test_a_lost_device_is_one_sentence_and_its_brain_can_be_closed(loaded: Any) -> None:
    brain, _ = loaded()
    assert brain.paths.switch("captured")
    operations.lose(after=20)
    with pytest.raises(ModelLost, match="The GPU failed: CUDA error: unspecified launch failure"):
        answered(brain, (), utterance(1.0, 2))
    brain.close()
