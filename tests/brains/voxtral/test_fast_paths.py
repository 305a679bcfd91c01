"""Fast paths beside a conversation: when they are tried, when they answer, and when they leave."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.brains.voxtral.scripted_child import ScriptedChild
from tests.brains.voxtral.taped import TapeRecorder
from tests.brains.voxtral.test_verdict import KEY, equal
from tests.brains.voxtral.turns import answered, ids, made, utterance
from tests.deadline import SECONDS
from tests.fakes import Flag
from voxtui.bench import bench_command as bench
from voxtui.brains.voxtral import brain as brain_module
from voxtui.brains.voxtral import fast_paths, graphs, proving
from voxtui.brains.voxtral.brain import VoxtralBrain
from voxtui.brains.voxtral.proving import Proving
from voxtui.brains.voxtral.trial import Found, Signal
from voxtui.brains.voxtral.verdict import (
    PATHS,
    FastPath,
    Result,
    Verdict,
    read_verdict,
    write_verdict,
)
from voxtui.dialogue.protocols import TurnRequest
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import ModelError
from voxtui.models import cuda
from voxtui.serve.shared_models import warm_pool
from voxtui.settings.schema import (
    BrainConfig,
    Config,
    GenerationConfig,
    VoxtralBrainConfig,
)
from voxtui.wiring import devices_engine


class Talk:
    """Stands in for the brain. `interrupted`: numbers of the calls that a turn interrupts."""

    def __init__(self, *interrupted: int) -> None:
        self.busy = False
        self.log: list[str] = []
        self.did = threading.Event()
        self._interrupted = set(interrupted)

    def switch(self, path: FastPath) -> bool:
        return self._work(f"switch to {path}")

    def check(self) -> bool:
        return self._work("check")

    def _work(self, what: str) -> bool:
        done = len(self.log) not in self._interrupted
        self.log.append(what if done else f"{what}, interrupted")
        if done:
            self.did.set()
        return done


@pytest.fixture
def proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    monkeypatch.setattr(proving, "QUIET_SECONDS", 0.001)
    opened: list[Any] = []

    def make(talk: Talk, *children: ScriptedChild) -> tuple[Proving, list[str]]:
        said: list[str] = []
        waiting = iter(children)
        made = Proving(
            KEY, tmp_path / "trial.json", talk, said.append, lambda: next(waiting).child()
        )
        opened.extend((*children, made))
        return made, said

    yield make
    for one in reversed(opened):
        one.close()


def found(*results: Result) -> list[ScriptedChild]:
    return [ScriptedChild(Found(result, 1.0), code=None) for result in results]


def test_the_first_conversation_tries_each_path_and_switches_to_the_fastest(
    proved: Any, tmp_path: Path
) -> None:
    talk = Talk(0, 1)
    children = found(equal("captured", 2.6), Result("attention", "different", "Step 3 differs."))
    children += [ScriptedChild(Signal.ALIVE, code=-11), *found(equal("overlapped", 2.0))]
    proving, said = proved(talk, *children)
    proving.after_turn(check=False)
    assert talk.did.wait(SECONDS)
    switch = "switch to overlapped"
    assert talk.log == [f"{switch}, interrupted", f"{switch}, interrupted", switch]
    assert said == [
        "Voxtral does not use the paths `attention` and `all`; `voxtui doctor` says why.",
        "Voxtral will use the path `overlapped`: 2.0 ms a token instead of 9.0.",
    ]
    kept = read_verdict(tmp_path / "trial.json", KEY)
    assert [result.state for result in kept.results] == ["equal", "different", "failed", "equal"]


def test_the_next_start_tries_only_what_was_not_tried(proved: Any, tmp_path: Path) -> None:
    rest = Result("overlapped", "not tried", "It did not fit into 60 s of GPU time.")
    known = (equal("captured", 2.6), equal("attention", 2.4), equal("all", 2.1), rest)
    write_verdict(tmp_path / "trial.json", Verdict(KEY, known))
    talk = Talk()
    proving, said = proved(talk, *found(equal("overlapped", 1.9)))
    assert not proving.is_complete
    proving.after_turn(check=False)
    assert talk.did.wait(SECONDS)
    assert talk.log == ["switch to overlapped"]
    assert len(said) == 1
    assert proving.is_complete


def test_a_single_path_that_fails_is_named_with_the_reason(proved: Any, tmp_path: Path) -> None:
    known = tuple(equal(path, 2.6) for path in PATHS[:3])
    write_verdict(tmp_path / "trial.json", Verdict(KEY, known))
    proving, said = proved(Talk(), ScriptedChild(Signal.ALIVE, code=-11))
    proving.try_paths(threading.Event())
    assert said == ["Voxtral does not use the path `overlapped`: Its process crashed (SIGSEGV)."]


def test_a_path_whose_trial_is_broken_off_is_named_only_when_that_was_the_last_try(
    proved: Any, tmp_path: Path
) -> None:
    known = tuple(equal(path, 2.6) for path in PATHS[:3])
    write_verdict(tmp_path / "trial.json", Verdict(KEY, known))
    killed = "Its process was killed (SIGKILL)."
    for start in range(1, 4):
        proving, said = proved(Talk(), ScriptedChild(Signal.ALIVE, code=-9))
        assert not proving.is_complete
        proving.try_paths(threading.Event())
        assert (
            said == []
            if start < 3
            else [f"Voxtral does not use the path `overlapped`: {killed} 3 trials had no result."]
        )
    assert proving.is_complete


def test_a_check_waits_for_a_moment_without_a_turn(proved: Any, tmp_path: Path) -> None:
    known = tuple(Result(path, "failed", "No compiler.") for path in PATHS)
    write_verdict(tmp_path / "trial.json", Verdict(KEY, known))
    talk = Talk(0)
    proving, _ = proved(talk)
    proving.after_turn(check=False)
    proving.after_turn(check=True)
    assert talk.did.wait(SECONDS)
    proving.close()
    assert talk.log == ["check, interrupted", "check"]


def test_a_path_that_differs_in_use_is_never_used_again(proved: Any, tmp_path: Path) -> None:
    known = (equal("captured", 2.6), equal("all", 2.1))
    write_verdict(tmp_path / "trial.json", Verdict(KEY, known))
    proving, said = proved(Talk())
    proving.drop("all", "Step 1 differs.", for_good=True)
    assert said == ["Voxtral no longer uses the path `all`: Step 1 differs."]
    kept = read_verdict(tmp_path / "trial.json", KEY)
    assert kept.fastest == equal("captured", 2.6)
    assert "all" not in kept.untried


def test_a_trial_that_cannot_be_kept_is_still_used(proved: Any, tmp_path: Path) -> None:
    (tmp_path / "trial.json").mkdir()
    proving, _ = proved(Talk())
    proving.drop("all", "Step 1 differs.", for_good=True)
    assert proving.verdict.results


# The brain, with a tape in place of CUDA graphs.


@pytest.fixture
def brain(tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VoxtralBrain]:
    monkeypatch.setattr(graphs, "CudaRecorder", TapeRecorder)
    monkeypatch.setattr(fast_paths, "CAPTURED_CAPACITY", 512)
    monkeypatch.setattr(brain_module, "REHEARSAL_SECONDS", 0.0)
    brain = made(tiny_voxtral)
    yield brain
    brain.close()


def test_a_switch_happens_between_two_turns(brain: VoxtralBrain) -> None:
    said, timestamps = utterance(1.0), Timestamps()
    turn = brain.reply(TurnRequest((), said, timestamps))
    plain = [next(turn)]
    assert not brain.paths.switch("captured")
    plain += turn
    assert timestamps.path == ""
    timestamps.record(Milestone.FIRST_AUDIO)
    assert brain.paths.busy
    timestamps.record(Milestone.LAST_SOUND)
    cancelled = Flag()
    brain.listen(TurnRequest(cancelled=cancelled), Recording())
    assert not brain.paths.switch("captured")
    cancelled.set()
    assert brain.paths.switch("captured")
    assert brain.description.endswith(", captured")
    timestamps = Timestamps()
    assert ids(answered(brain, (), said, timestamps)) == [t.id for t in plain if t.id is not None]
    assert timestamps.path == "captured"


def test_a_key_press_ends_a_capture_at_once(
    brain: VoxtralBrain, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled = Flag()

    class Pressed(TapeRecorder):
        def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
            if len(self.tapes) == 4:
                brain.listen(TurnRequest(cancelled=cancelled), Recording())
            return super().__call__(work)

    plain = brain.generator
    monkeypatch.setattr(graphs, "CudaRecorder", Pressed)
    assert not brain.paths.switch("captured")
    assert (brain.path, brain.generator) == (None, plain)
    assert not brain.generator.embedder.graphs
    assert answered(brain, (), "hello")


def test_another_fast_path_is_captured_only_once_the_graphs_of_the_first_are_gone(
    brain: VoxtralBrain, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert brain.paths.switch("captured")
    first = weakref.ref(brain.generator)
    cancelled = Flag()
    left: list[object] = []

    class Pressed(TapeRecorder):
        def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
            left.append(first())
            if len(self.tapes) == 4:
                brain.listen(TurnRequest(cancelled=cancelled), Recording())
            return super().__call__(work)

    monkeypatch.setattr(graphs, "CudaRecorder", Pressed)
    assert not brain.paths.switch("captured")
    assert left == [None] * 5
    assert (brain.path, brain.generator.kv_buckets) == (None, [])
    assert answered(brain, (), "hello")
    cancelled.set()
    monkeypatch.setattr(graphs, "CudaRecorder", TapeRecorder)
    assert brain.paths.switch("captured")
    assert brain.path == "captured"


def test_a_token_in_use_is_compared_and_a_path_that_differs_is_dropped(
    brain: VoxtralBrain,
) -> None:
    assert brain.paths.switch("captured")
    answered(brain, (), "hello")
    assert brain.paths.check()
    assert brain.path == "captured"
    before = ids(answered(brain, (), "hello"))
    brain.generator.graphs.clear()  # so that the next change counts
    fast = brain.generator.decoder
    fast.layers = [replace(layer, down=layer.down * 0) for layer in fast.layers]
    answered(brain, (), "hello")
    assert brain.paths.check()
    assert brain.path is None
    assert ids(answered(brain, (), "hello")) == before


def test_a_fast_path_that_fails_twice_costs_two_turns_and_not_the_model(
    brain: VoxtralBrain,
) -> None:
    assert brain.paths.switch("captured")
    for seed in range(2):
        brain.generator.cache.keys.fill_(torch.nan)
        brain.generator.embeddings.fill_(torch.nan)
        with pytest.raises(ModelError, match="not a number") as caught:
            answered(brain, (), utterance(1.0, seed))
        assert type(caught.value) is ModelError
    assert brain.path is None
    assert answered(brain, (), "hello")


@pytest.mark.slow
def test_a_closed_brain_frees_its_memory_at_once(brain: VoxtralBrain, tmp_path: Path) -> None:
    """The next model may need that memory before the garbage collector comes."""
    brain.paths.proving = Proving(KEY, tmp_path / "trial.json", brain.paths, print)
    assert brain.paths.switch("captured")
    left = [weakref.ref(loop) for loop in (brain.generator, brain.transcriber)]
    gc.collect()
    gc.disable()
    try:
        brain.close()
        assert [loop() for loop in left] == [None, None]
    finally:
        gc.enable()


# The commands that are ready only after the trial.


class Provable(VoxtralBrain):
    """On a GPU of its own, whose trial follows a script."""

    file: Path
    children: Iterator[ScriptedChild]

    def _load(self) -> None:
        super()._load()
        self.paths.proving = Proving(
            KEY, self.file, self.paths, self._notify, lambda: next(self.children).child()
        )


@pytest.mark.slow
@pytest.mark.parametrize("trial_first", [True, False])
def test_only_who_asks_for_it_waits_for_the_trial(
    tiny_voxtral: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial_first: bool
) -> None:
    monkeypatch.setattr(graphs, "CudaRecorder", TapeRecorder)
    monkeypatch.setattr(fast_paths, "CAPTURED_CAPACITY", 512)
    monkeypatch.setattr(brain_module, "REHEARSAL_SECONDS", 0.0)
    known = tuple(Result(path, "failed", "No compiler.") for path in PATHS[1:])
    write_verdict(tmp_path / "trial.json", Verdict(KEY, known))
    (child,) = found(equal("captured", 2.6))
    config = Config(generation=GenerationConfig(temperature=0.0, max_new_tokens=12))
    told: list[str] = []
    brain = Provable(config, tiny_voxtral, told.append, trial_first=trial_first)
    brain.file, brain.children = tmp_path / "trial.json", iter([child])
    steps: list[str] = []
    with closing(brain), closing(child):
        brain.warm_up(lambda step, fraction: steps.append(step))
        assert brain.path == ("captured" if trial_first else None), told
        assert ("trying fast paths" in steps) is trial_first


def test_bench_and_serve_ask_for_the_trial_and_the_screen_does_not(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def refuse(*parts: Any) -> VoxtralBrain:
        asked.append(parts[-1])
        raise ModelError("Enough is known.")

    monkeypatch.setattr(brain_module, "VoxtralBrain", refuse)
    voxtral = VoxtralBrainConfig(model=str(tiny_voxtral))
    config = Config(brain=BrainConfig(name="voxtral", voxtral=voxtral))
    for start in (
        lambda: bench.run(config, [], bench.BenchOptions(play=False)),
        lambda: warm_pool(config, print).__enter__(),
        lambda: devices_engine(config, print),
    ):
        with pytest.raises(ModelError, match="Enough"):
            start()
    assert asked == [True, True, False]


@pytest.mark.slow
def test_a_gpu_that_torch_cannot_use_is_named_at_the_load(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "is_likely", lambda: True)
    monkeypatch.setattr(cuda, "why_unusable", lambda: "The driver is old. Update it.")
    monkeypatch.setattr(brain_module, "REHEARSAL_SECONDS", 0.0)
    said: list[str] = []
    with closing(VoxtralBrain(Config(), tiny_voxtral, said.append)) as brain:
        brain.warm_up(lambda step, fraction: None)
    assert said == ["Voxtral runs on the CPU, slowly. The driver is old. Update it."]
