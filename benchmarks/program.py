"""Measure the program from outside: start, keys, first words, idle, quit. Compares versions, too.

    python -m benchmarks.program [--against TREE] [--starts 10] [--size 120x40] [--json OUT]

The program runs on a pseudo-terminal, a virtual sound server and the default models, without a
config file. With TREE, the root of another version, both start in turn: a slow minute slows both.
`--only starts` leaves out what concerns one version, and `--only idle` all but that.

- Start: from process start to the first frame, and to READY. A start before these compiles all
  modules to byte code, as an installation does.
- Keys: from each key of a typed question to the next bytes to the terminal.
- Answer: from Enter to the first painted word of the answer; and the bytes to the terminal from the
  first key of the question to the end of the answer.
- Idle: the CPU of all its processes, and the bytes to the terminal, while a room's noise is heard.
- Quit: from Ctrl+Q, at random moments of loading, to the end of the process; and `voxtui --help`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.ui.pseudo_terminal import PseudoTerminal
from tests.virtual_audio import VirtualAudio
from voxtui.bench.environment import machine

HERE = Path(__file__).parents[1]
QUESTIONS = (
    ("What is the capital of France?", b"Paris"),
    ("What is the capital of Japan?", b"Tokyo"),
)
"""Questions, each with a word of the answer that is not in the question."""
KEY_SECONDS = 0.03
"""Time between two keys of a quick typist."""
IDLE_SECONDS = 20.0
SETTLING_SECONDS = 6.0
"""Time after READY until the level was checked and nothing is left to warm up."""
NOISE = 10 ** (-55 / 20)
"""Peak of the noise of a quiet room: -55 dBFS."""
LOADING_SECONDS = 6.0
ANSWER_SECONDS = 60.0
LOADING, READY = b"LOADING", b"READY"

Times = dict[str, list[float]]
"""Seconds by name; bytes under BYTES."""

BYTES = "bytes to the terminal for a turn"


class Program:
    """The program of one version, at its own terminal."""

    def __init__(self, tree: Path, size: tuple[int, int], environment: Mapping[str, str]) -> None:
        self._began = time.monotonic()
        # Commands were letters in versions without slash_commands: a slash opened the text field,
        # which stayed open.
        self._opens = "" if (tree / "voxtui/slash_commands.py").exists() else "/"
        self._state = Path(environment["XDG_STATE_HOME"])
        self.terminal = PseudoTerminal(
            [sys.executable, "-m", "voxtui"],
            size=size,
            environment={**environment, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"},
            directory=Path(tempfile.gettempdir()),  # older versions read ./config.toml
        )

    def until(self, shown: bytes, since: int = 0) -> float:
        """Wait for these bytes. Return the seconds since the start."""
        self._wait(lambda: shown in self.terminal.output[since:])
        return time.monotonic() - self._began

    def _wait(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS
        while not true():
            if time.monotonic() > deadline or self.terminal.process.poll() is not None:
                sys.exit(self.terminal.output[-2000:].decode(errors="replace"))
            time.sleep(0.001)  # a wait on the descriptor would race with the terminal's reader

    def _turns(self) -> int:
        """Count the turns in the metrics, because older screens do not show the end of one."""
        return sum(len(log.read_text().splitlines()) for log in self._state.rglob("*.jsonl"))

    def ask(self, question: str, word: bytes, times: Times) -> None:
        """Type a question, wait for the end of its answer, and add the measured times."""
        began = len(self.terminal.output)
        for key in self._opens + question:
            since = len(self.terminal.output)
            sent = self.terminal.send(key)
            self._wait(lambda since=since: len(self.terminal.output) > since)
            times["key to the terminal"].append(time.monotonic() - sent)
            time.sleep(KEY_SECONDS)  # as a person types
        self._opens = ""
        since, turns = len(self.terminal.output), self._turns()
        entered = self.terminal.send("\r")
        self.until(word, since)
        times["Enter to the first word of the answer"].append(time.monotonic() - entered)
        self._wait(lambda: self._turns() > turns)
        times[BYTES].append(len(self.terminal.output) - began)

    def idle(self, seconds: float) -> tuple[float, float]:
        """Return the share of a core, and the bytes per second to the terminal, while idle."""
        time.sleep(SETTLING_SECONDS)  # what follows the start must be over
        cpu, written, began = self._cpu(), len(self.terminal.output), time.monotonic()
        time.sleep(seconds)  # the measured time
        took = time.monotonic() - began
        return (self._cpu() - cpu) / took, (len(self.terminal.output) - written) / took

    def _cpu(self) -> float:
        """Return the seconds of CPU that the program and its child processes have used."""
        parent = psutil.Process(self.terminal.pid)
        times = [one.cpu_times() for one in (parent, *parent.children(recursive=True))]
        return sum(one.user + one.system for one in times)

    def quit(self) -> float:
        """Press Ctrl+Q. Return the seconds until the process has ended."""
        sent = self.terminal.send("\x11")
        self.terminal.ends()
        return time.monotonic() - sent


@contextmanager
def program(tree: Path, size: tuple[int, int], environment: Mapping[str, str]) -> Iterator[Program]:
    started = Program(tree, size, environment)
    with started.terminal:
        yield started


def compare(
    trees: Sequence[Path], starts: int, size: tuple[int, int], environment: Mapping[str, str]
) -> dict[str, Times]:
    """Start the versions in turn; let each answer QUESTIONS. Return seconds by tree and name."""
    for tree in trees:  # compiles its modules
        with program(tree, size, environment) as started:
            started.until(READY)
            started.quit()
    found: dict[str, Times] = {str(tree): defaultdict(list) for tree in trees}
    for n in range(starts * len(trees)):
        tree = trees[n % len(trees)]
        times = found[str(tree)]
        with program(tree, size, environment) as started:
            times["first frame"].append(started.until(LOADING))
            times["ready"].append(started.until(READY))
            for question, word in QUESTIONS:
                started.ask(question, word, times)
            times["quit"].append(started.quit())
    return found


def quits(starts: int, size: tuple[int, int], environment: Mapping[str, str]) -> list[float]:
    """Quit at random moments of loading."""
    uneven, found = random.Random(1), []
    for n in range(starts):
        with program(HERE, size, environment) as started:
            started.until(LOADING)
            time.sleep((n + uneven.random()) * LOADING_SECONDS / starts)  # a moment of loading
            found.append(started.quit())
    return found


def helps(starts: int, environment: Mapping[str, str]) -> list[float]:
    found = []
    for _ in range(starts):
        began = time.monotonic()
        command = [sys.executable, "-m", "voxtui", "--help"]
        subprocess.run(
            command, stdout=subprocess.PIPE, check=True, env={**os.environ, **environment}
        )
        found.append(time.monotonic() - began)
    return found


def idle(audio: VirtualAudio, size: tuple[int, int], environment: Mapping[str, str]) -> Any:
    noise = np.random.default_rng(1).uniform(-NOISE, NOISE, 16_000 * 120).astype(np.float32)
    room = audio.say(noise)
    try:
        with program(HERE, size, environment) as started:
            started.until(READY)
            cpu, written = started.idle(IDLE_SECONDS)
            started.quit()
    finally:
        room.terminate()
        room.wait()
    return {"cpu": round(cpu, 4), "bytes_per_s": round(written)}


def measure(trees: Sequence[Path], starts: int, size: tuple[int, int], only: str) -> dict[str, Any]:
    with VirtualAudio() as audio, tempfile.TemporaryDirectory() as home:
        folders = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
        environment = {
            **audio.env,
            **{name: str(Path(home) / name) for name in folders},
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(Path(home) / "bytecode"),
        }
        found: dict[str, Any] = {}
        if only != "starts":
            found["idle"] = idle(audio, size, environment)
        if only != "idle":
            found["versions"] = compare(trees, starts, size, environment)
        if not only:
            found["quit while it loads"] = quits(starts, size, environment)
            found["voxtui --help"] = helps(starts, environment)
    return found


def table(found: dict[str, Any]) -> str:
    lines: list[str] = []
    if "idle" in found:
        share, written = found["idle"]["cpu"], found["idle"]["bytes_per_s"]
        lines += [f"Idle: {share:.1%} of a core, {written} bytes/s to the terminal.", ""]
    if "versions" in found:
        lines += ["| ms | version | median | max | runs |", "|---|---|---|---|---|"]
    for tree, times in found.get("versions", {}).items():
        lines += [_row(name, "this" if tree == str(HERE) else tree, times[name]) for name in times]
    for name in ("quit while it loads", "voxtui --help"):
        if name in found:
            lines.append(_row(name, "this", found[name]))
    return "\n".join(lines) + "\n"


def _row(name: str, version: str, seconds: Sequence[float]) -> str:
    unit = 1 if name == BYTES else 1000
    median, longest = (round(unit * f(seconds)) for f in (statistics.median, max))
    return f"| {name} | {version} | {median} | {longest} | {len(seconds)} |"


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--against", type=Path, help="root of the other version")
    options.add_argument("--starts", type=int, default=10)
    options.add_argument("--size", default="120x40")
    options.add_argument("--only", choices=("starts", "idle"), default="")
    options.add_argument("--json", type=Path)
    asked = options.parse_args()
    columns, rows = map(int, asked.size.split("x"))
    trees = [HERE] if asked.against is None else [asked.against.resolve(), HERE]
    found = measure(trees, asked.starts, (columns, rows), asked.only)
    sys.stdout.write(table(found))
    if asked.json:
        about = {"machine": machine(), "size": asked.size, **found}
        asked.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
