"""The trial of fast paths: scripted processes, and a real one on the CPU."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

import voxtui
from tests.brains.voxtral.scripted_child import ScriptedChild
from tests.deadline import SECONDS
from tests.fakes import Flag
from voxtui.brains.voxtral import trial, trial_process
from voxtui.brains.voxtral.generate import NotNumbers
from voxtui.brains.voxtral.trial import Child, Found, Setup, Signal, run_trial
from voxtui.brains.voxtral.trial_process import Budget, Gate, OutOfTime
from voxtui.brains.voxtral.verdict import PATHS, FastPath, Result
from voxtui.errors import ModelError
from voxtui.models.cuda import Gpu

EQUAL = Found(Result("captured", "equal"), 12.0)


@pytest.fixture
def tried(request: pytest.FixtureRequest) -> Any:
    """Return a function that runs a trial of scripted processes."""

    def run(paths: Sequence[FastPath], *children: ScriptedChild, **more: Any) -> list[Result]:
        waiting: Iterator[ScriptedChild] = iter(children)
        for child in children:
            request.addfinalizer(child.close)
        return [*run_trial(paths, start=lambda: next(waiting).child(), **more)]

    return run


def test_a_crash_costs_one_path_and_the_others_are_tried(tried: Any) -> None:
    crashed = ScriptedChild(Signal.ALIVE, code=-signal.SIGSEGV)
    ended = ScriptedChild(Signal.ALIVE, code=3)
    good = ScriptedChild(Signal.ALIVE, EQUAL, code=None)
    found = tried(["attention", "all", "captured"], crashed, ended, good)
    assert found == [
        Result("attention", "failed", "Its process crashed (SIGSEGV)."),
        Result("all", "failed", "Its process ended with code 3."),
        EQUAL.result,
    ]
    assert good.killed


@pytest.mark.parametrize("messages", [(), (Signal.ALIVE,)], ids=["at its start", "in a capture"])
def test_a_process_that_hangs_or_starves_is_ended_and_says_nothing_about_its_path(
    tried: Any, monkeypatch: pytest.MonkeyPatch, messages: tuple[Signal, ...]
) -> None:
    monkeypatch.setattr(trial, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(trial, "HANG_SECONDS", 0.01)
    silent = ScriptedChild(*messages, code=None)
    found = tried(["all", "captured"], silent, ScriptedChild(EQUAL, code=None))
    why = "It reported nothing for 0 s."
    assert found == [Result("all", "not tried", why, inconclusive=1), EQUAL.result]
    assert silent.killed


@pytest.mark.parametrize(
    ("messages", "code", "why"),
    [
        ((Signal.ALIVE,), -signal.SIGKILL, "Its process was killed (SIGKILL)."),
        ((Signal.ALIVE,), -signal.SIGTERM, "Its process was killed (SIGTERM)."),
        ((), -signal.SIGSEGV, "Its process crashed (SIGSEGV)."),
        ((), 1, "Its process ended with code 1."),
    ],
    ids=["out of memory", "end of a session", "crash before the path", "no torch"],
)
def test_a_process_that_is_killed_or_never_comes_to_its_path_says_nothing_about_it(
    tried: Any, messages: tuple[Signal, ...], code: int, why: str
) -> None:
    (found,) = tried(["captured"], ScriptedChild(*messages, code=code))
    assert found == Result("captured", "not tried", why, inconclusive=1)


def test_a_key_press_as_a_process_ends_loses_no_result(tried: Any) -> None:
    ended = ScriptedChild(Signal.ALIVE, EQUAL)
    assert tried(["captured"], ended, busy=lambda: True) == [EQUAL.result]


def test_while_the_user_talks_a_process_pauses_and_no_hang_is_counted(
    tried: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(trial, "HANG_SECONDS", 0.005)
    child = ScriptedChild(code=None)
    talking = iter([False, *[True] * 30, False])

    def busy() -> bool:
        now = next(talking, None)
        if now is None:
            child.theirs.send(EQUAL)
        return bool(now)

    assert tried(["captured"], child, busy=busy) == [EQUAL.result]
    assert child.received() == [Setup("captured"), Signal.PAUSE, Signal.RESUME]


def test_paths_without_gpu_time_left_are_not_tried(tried: Any) -> None:
    first = ScriptedChild(EQUAL, code=None)
    found = tried(["captured", "attention"], first, seconds=10)
    assert [result.state for result in found] == ["equal", "not tried"]


def test_the_second_path_gets_the_time_that_the_first_one_left(tried: Any) -> None:
    first, second = ScriptedChild(EQUAL, code=None), ScriptedChild(EQUAL, code=None)
    tried(["captured", "attention"], first, second, seconds=60, fp8=True)
    assert second.received() == [Setup("attention", fp8=True, seconds=48.0)]


def test_a_stop_ends_the_process_and_the_trial(tried: Any) -> None:
    stopped = Flag()
    stopped.set()
    child = ScriptedChild(code=None)
    assert tried(["captured", "all"], child, stopped=stopped) == []
    assert child.killed


def test_a_process_that_cannot_start_is_tried_again_later() -> None:
    def start() -> Child:
        raise OSError(11, "Resource temporarily unavailable")

    (found,) = run_trial(["captured"], start=start)
    assert found.state == "not tried"
    assert "Resource temporarily unavailable" in found.why


def test_a_path_is_tried_only_if_the_conversation_beside_it_keeps_enough_memory(
    tried: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = iter((2_940_000_000, 3_100_000_000))
    monkeypatch.setattr(trial, "first_gpu", lambda: Gpu("A Card", 12_600_000_000, next(free)))
    found = tried(["attention", "captured"], ScriptedChild(EQUAL, code=None))
    why = "It needs 3 GB of GPU memory, and 2.9 GB are free."
    assert found == [Result("attention", "not tried", why), EQUAL.result]


def test_a_process_finds_the_packages_that_are_on_the_search_path_of_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[dict[str, str]] = []

    class Process:
        kill = wait = int

        def __init__(self, *_: object, env: dict[str, str], **__: object) -> None:
            started.append(env)

    monkeypatch.setattr(trial.subprocess, "Popen", Process)
    monkeypatch.setenv("PYTHONPATH", "/packages/of/mine")
    trial.start().pipe.close()
    monkeypatch.delenv("PYTHONPATH")
    trial.start().pipe.close()
    ours = str(Path(voxtui.__file__).parents[1])
    assert [env["PYTHONPATH"] for env in started] == [f"{ours}{os.pathsep}/packages/of/mine", ours]


class Faulty:
    """Stands in for the measurement of a path."""

    def __init__(self, begins: Exception | None, measures: Exception) -> None:
        if begins:
            raise begins
        self._measures = measures

    def result(self) -> Result:
        raise self._measures


FULL = "It needs 2 GB of free GPU memory."


@pytest.mark.parametrize(
    ("error", "state", "why"),
    [
        (NotNumbers(), "different", "A logit is not a number."),
        (OutOfTime(), "not tried", "It did not fit into 60 s of GPU time."),
        (RuntimeError("CUDA error: an illegal\nmore"), "failed", "CUDA error: an illegal."),
        (ModelError("The kernels are wrong."), "failed", "The kernels are wrong."),
        (torch.OutOfMemoryError("CUDA out of memory."), "not tried", FULL),
        (ModelError("The kernels failed: CUDA out of memory"), "not tried", FULL),
        (MemoryError(), "not tried", "The machine has too little memory."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_only_what_a_path_does_counts_as_its_failure(
    monkeypatch: pytest.MonkeyPatch, error: Exception, state: str, why: str
) -> None:
    setup: Any = Setup("all")
    monkeypatch.setattr(trial_process, "Measuring", lambda *_: Faulty(None, error))
    found = trial_process.judge(setup, setup)
    assert (found.state, found.why) == (state, why)
    assert found.inconclusive == isinstance(error, MemoryError)


def test_an_error_before_the_path_is_reached_is_none_of_the_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setup: Any = Setup("all")
    error = RuntimeError("CUDA unknown error")
    monkeypatch.setattr(trial_process, "Measuring", lambda *_: Faulty(error, error))
    why = "The trial could not begin: CUDA unknown error."
    found = trial_process.judge(setup, setup)
    assert found == Result("all", "not tried", why, inconclusive=1)


# The gate and the budget of a process.


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Connection, Gate]]:
    """Yield the other end of the pipe of a gate, and the gate."""
    ended, codes = Flag(), list[int]()

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(trial_process.os, "_exit", end)
    ours, theirs = Pipe()
    with theirs:
        with ours:
            yield ours, Gate(theirs)
        assert ended.wait(SECONDS)  # a process whose parent has gone ends itself
        assert codes == [1]


def test_a_measurement_that_a_key_press_disturbed_is_repeated(gated: Any) -> None:
    pipe, gate = gated
    pauses: list[int] = []

    def work() -> int:
        if not pauses:
            pipe.send(Signal.PAUSE)
            while not gate.pauses:
                Flag().wait(0.001)
            pipe.send(Signal.RESUME)
        pauses.append(gate.pauses)
        return len(pauses)

    assert Budget(60, gate, lambda: None).measure(work) == 2
    assert pauses == [1, 1]


def test_no_work_begins_while_the_user_talks(gated: Any) -> None:
    pipe, gate = gated
    done: list[str] = []
    pipe.send(Signal.PAUSE)
    while not gate.pauses:
        Flag().wait(0.001)
    budget = Budget(60, gate, lambda: None)
    working = Thread(target=lambda: budget.run(lambda: done.append("work")))
    working.start()
    done.append("resume")
    pipe.send(Signal.RESUME)
    working.join()
    assert done == ["resume", "work"]


def test_work_beyond_the_gpu_time_ends_the_trial_of_a_path(gated: Any) -> None:
    _, gate = gated
    with pytest.raises(OutOfTime):
        Budget(-1, gate, lambda: None).run(lambda: None)


# A real process, with the tiny shape and a tape in place of CUDA graphs.

TAPED = """
import os, sys
from dataclasses import replace
from multiprocessing.connection import Connection
from tests.brains.voxtral.taped import TapeRecorder
from voxtui.brains.voxtral import graphs, step, trial_process

def scaled(decoder, factor):
    decoder.layers = [replace(layer, down=layer.down * factor) for layer in decoder.layers]

def enable(decoder, which):
    {"attention": lambda: scaled(decoder, 1.01),
     "all": lambda: scaled(decoder, float("nan")),
     "overlapped": os.abort}[which]()

graphs.CudaRecorder, step.enable = TapeRecorder, enable
trial_process.serve(Connection(int(sys.argv[1])))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_real_process_finds_the_captured_path_equal_and_the_faulty_ones_out() -> None:
    results = run_trial(PATHS, tiny=True, seconds=1000, start=lambda: trial.start(TAPED))
    captured, wrong, not_numbers, crashed = results
    assert captured.state == "equal", captured.why
    assert captured.steps > 60
    assert captured.worst < 1
    for times in (captured.token, captured.first, captured.plain_token, captured.plain_first):
        assert times is not None
        assert 0 < times.low <= times.median <= times.high
    assert wrong.state == "different"
    assert "bounds" in wrong.why or "likeliest" in wrong.why
    assert (not_numbers.state, not_numbers.why) == ("different", "A logit is not a number.")
    assert (crashed.state, crashed.why) == ("failed", "Its process crashed (SIGABRT).")


@pytest.mark.slow
def test_without_a_gpu_a_real_process_says_so() -> None:
    (found,) = run_trial(["captured"])
    why = "The trial could not begin: there is no CUDA device."
    assert found == Result("captured", "not tried", why, inconclusive=1)
