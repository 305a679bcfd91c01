"""The chat model's threads beside other programs, on real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes import LONG_AGO, SECONDS
from voxtui.brains.embedded.brain import EmbeddedBrain
from voxtui.brains.embedded.chat import ASK, chatml
from voxtui.brains.embedded.cores import WINDOW_SECONDS, Cores, Look
from voxtui.settings.schema import Config

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs Linux and two cores",
)


@contextmanager
def running(code: str) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def settles(cores: Cores, pid: int, count: int) -> bool:
    end = time.monotonic() + SECONDS
    while len(os.sched_getaffinity(pid)) != count and time.monotonic() < end:
        time.sleep(WINDOW_SECONDS)
        cores.follow()
    return len(os.sched_getaffinity(pid)) == count


def test_a_core_is_left_to_another_program_while_it_runs() -> None:
    with running("import time; time.sleep(3600)") as ours, running("while True: pass"):
        assert settles(Cores(ours), ours, len(os.sched_getaffinity(0)) - 1)


@pytest.mark.parametrize(
    ("by_core", "by_us", "given"),
    [
        pytest.param([0.0, 0.0], 0.0, {0, 1}, id="nobody works"),
        pytest.param([1.0, 1.0], 2.0, {0, 1}, id="we work"),
        pytest.param([0.8, 0.6], 1.0, {0, 1}, id="others take less than half a core"),
        pytest.param([1.0, 0.6], 1.0, {1}, id="others take more, mostly of the first"),
        pytest.param([0.2, 0.8], 0.0, {0}, id="others take one, mostly the second"),
        pytest.param([1.0, 1.0], 0.0, {0}, id="others take all"),
    ],
)
def test_what_others_work_is_left_to_them_and_what_we_work_is_not(
    by_core: list[float], by_us: float, given: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    cores, has = Cores(0), {0, 1}

    def give(cores: Cores, those: list[int]) -> None:
        has.clear()
        has.update(those)

    busy = 2 * WINDOW_SECONDS
    looks = iter(
        Look(LONG_AGO + busy * n, {c: busy * n * by_core[c] for c in (0, 1)}, busy * n * by_us)
        for n in range(2)
    )
    monkeypatch.setattr(Cores, "give", give)
    monkeypatch.setattr(Cores, "_look", lambda cores: next(looks))
    monkeypatch.setattr("voxtui.brains.embedded.cores.time.monotonic", lambda: LONG_AGO + busy)
    cores.follow()
    cores.follow()
    assert has == given


def test_a_look_counts_what_each_core_and_we_have_worked() -> None:
    with running("while True: pass") as ours:
        cores = Cores(ours)
        before = cores._look()
        while (now := cores._look()).ours < before.ours + 0.3:
            time.sleep(0.05)
    worked = sum(now.cores[core] - before.cores[core] for core in now.cores)
    assert worked > 0.3 - 0.1  # the system counts in steps of 10 ms
    assert now.ours - before.ours < 2 * (now.at - before.at)


def test_a_chat_process_that_has_ended_is_no_error() -> None:
    with running("pass") as ours:
        cores = Cores(ours)
        cores.follow()
    time.sleep(WINDOW_SECONDS)
    cores.follow()


def test_a_process_that_hid_the_load_from_itself_cannot_read_it_in_any_thread() -> None:
    code = """
import os, threading
from voxtui.brains.embedded.cores import hide_load
go, read = threading.Event(), []
def look():
    go.wait()
    try:
        os.getloadavg()
    except OSError:
        read.append("unobtainable")
thread = threading.Thread(target=look)
thread.start()
os.getloadavg()
hide_load()
go.set()
thread.join()
look()
print(*read)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["unobtainable"] * 2


@pytest.mark.models
def test_the_chat_model_has_as_many_threads_as_cores_and_says_the_same_with_each(
    brain: EmbeddedBrain, monkeypatch: pytest.MonkeyPatch
) -> None:
    follows = list[Cores]()
    monkeypatch.setattr(Cores, "follow", lambda cores: follows.append(cores))
    llama = brain._llama
    process, cores = llama._process, llama._cores
    assert process is not None and cores is not None
    tasks = Path(f"/proc/{process.pid}/task")
    assert "Seccomp:\t2" in (tasks.parent / "status").read_text()

    def worked() -> dict[str, int]:
        """ns that each thread has run"""
        return {t.name: int((t / "schedstat").read_text().split()[0]) for t in tasks.iterdir()}

    def reply(count: int) -> tuple[str, int]:
        """What is said, and how many threads took more than a tenth of the work."""
        cores.give(sorted(os.sched_getaffinity(0))[:count])
        before, texts = worked(), list[str]()

        def run(prompt: str, tokens: int) -> None:
            llama.run(prompt, Config().generation.sampling(), tokens, lambda: False, take)

        def take(text: str) -> bool:
            texts.append(text)
            return False

        run("another", 0)  # so that nothing of the next is in the cache
        run(chatml("", [], f"Why is the sky blue? {'really ' * 30}") + ASK, 24)
        ran = [after - before.get(thread, 0) for thread, after in worked().items()]
        return "".join(texts), sum(ns > sum(ran) / 10 for ns in ran)

    (said, two), (again, one), (once_more, back) = reply(2), reply(1), reply(2)
    assert (two, one, back) == (2, 1, 2)
    assert said and said == again == once_more
    assert len(follows) > 3 * 24  # with each token
