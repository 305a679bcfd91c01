"""Compare how fast two versions read: given text, spoken questions, and clients' instructions.

    python -m benchmarks.reading OTHER_CHECKOUT [--part text|questions|visits|server] [--json OUT]

OTHER_CHECKOUT is a work tree of an older commit (`git worktree add DIR COMMIT`). Each version runs
in a process of its own, with the same Python and the same models. Both stay loaded, and they take
turns at each single measurement, so that whatever else the machine does meets both alike. The
medians of the ratios of such pairs are the result.

text: 1,000 tokens of given text, read anew each time. questions: the recorded questions in real
time, released 150 ms after the last voiced sample. visits: eight instructions one after another,
by the brain that `voxtui serve` builds; then each again, and each again at once. A second visit is
compared with a repeat. server: the same through `POST /v1/chat/completions`.
"""

# ruff: noqa: SLF001 - the public ways of the two versions differ

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]

TEXT_TOKENS = 1000
TEXT_RUNS = 3
QUESTION_RUNS = 1
GAP_MS = 150
CLIENTS = 8
VISITS = 2

WORDS = (
    "river", "window", "harvest", "letter", "carry", "bright", "quiet", "market", "stone", "follow",
    "winter", "garden", "machine", "under", "twelve", "people", "walked", "along", "the", "street",
    "because", "a", "train", "had", "left", "without", "them",
)  # fmt: skip


def text(seed: int, words: int) -> str:
    """Return text that shares no beginning with that of another seed. A word is about a token."""
    chosen = random.Random(seed)
    return f"Note {seed}. " + " ".join(chosen.choices(WORDS, k=words))


def instruction(client: int) -> str:
    """Return some 150 tokens that differ from those of other clients from the first word on."""
    return f"{text(1000 + client, 140)} You are assistant {client}. Answer in one word."


# In a process of either version.


def worker() -> None:
    """Run the measurement of each line of standard input. Write a line of JSON with seconds."""
    from functools import partial

    from voxtui.settings.schema import Config

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    laboratory: Any = import_module("benchmarks.embedded")  # that of the version in PYTHONPATH
    config = Config()
    brain = laboratory.EmbeddedBrain(config)
    if "visits" in sys.argv:
        brain.warm_up(lambda step, fraction: None)
        visits = Visits(brain)
        _loop(out, lambda line: visits.measure(int(line)))
        return
    laboratory.EmbeddedBrain = lambda config, **parts: brain
    questions = laboratory.spoken(HERE / "tests/data/questions", [GAP_MS])
    with laboratory.headless(partial(laboratory.engine, config)) as asked:

        def measure(line: str) -> dict[str, Any]:
            kind, number = line.split()
            if kind == "text":
                return {"seconds": _prefill(brain, text(int(number), TEXT_TOKENS))}
            result = laboratory._ours("", asked, questions[int(number) % len(questions)])
            return {
                "ttft": result.ttft_ms / 1000,
                "sound": result.first_sound_ms / 1000,
                "right": result.right,
                "reply": result.reply,
            }

        _loop(out, measure, len(questions))


def _loop(out: Any, measure: Any, ready: int = 0) -> None:
    for line in itertools.chain([""], iter(sys.stdin.readline, "")):
        out.write(json.dumps(measure(line) if line else {"ready": ready}) + "\n")
        out.flush()


def _prefill(brain: Any, words: str) -> float:
    from threading import Event

    prompt, began = brain._prompt((), words), time.monotonic()
    reply = brain._request(prompt, 0, Event())
    while not reply.wait(60.0):
        pass
    return time.monotonic() - began


class Visits:
    """Answers clients with different instructions. Returns seconds to the first token."""

    def __init__(self, brain: Any) -> None:
        self._brain = brain
        self._count = 0

    def measure(self, client: int) -> dict[str, Any]:
        from threading import Event

        self._count += 1
        try:
            protocols: Any = import_module("voxtui.dialogue.protocols")
        except ImportError:  # the name of the other version
            protocols = import_module("voxtui.dialogue.interfaces")
        options = getattr(protocols, "ReplyOptions", None) or protocols.Manner
        asked = options(instruction=instruction(client))
        words = f"Say a word, number {self._count}."
        ask: str = sys.modules[type(self._brain).__module__].ASK
        prompt = self._brain._prompt((), words, asked) + ask + self._brain._opening
        began = time.monotonic()
        reply = self._brain._request(prompt, 2, Event())
        next(reply.tokens())
        return {"seconds": time.monotonic() - began}


# In the process that compares.


class Version:
    """A process of one version."""

    def __init__(self, tree: Path, part: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--worker", part],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
        )
        self.questions = self._read()["ready"]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def ask(self, line: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def versions(trees: tuple[Path, Path], part: str) -> Iterator[list[Version]]:
    with ExitStack() as stack:
        both: list[Version] = []
        for tree in trees:
            both.append(version := Version(tree, part))
            stack.callback(version.close)
        yield both


def taking_turns(both: list[Version], lines: list[str]) -> list[list[dict[str, Any]]]:
    """Ask both each line, in alternating order. Return pairs, in the order of `both`."""
    pairs: list[list[dict[str, Any]]] = []
    for number, line in enumerate(lines):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        found = {place: both[place].ask(line) for place in order}
        pairs.append([found[0], found[1]])
        sys.stderr.write(f"\r{number + 1}/{len(lines)} ")
    return pairs


def row(name: str, pairs: list[list[dict[str, Any]]], key: str) -> str:
    old, new = ([pair[place][key] for pair in pairs] for place in (0, 1))
    ratio = statistics.median(b / a for a, b in zip(old, new, strict=True))
    return (
        f"| {name} | {len(pairs)} | {statistics.median(old):.2f} s "
        f"| {statistics.median(new):.2f} s | {ratio:.2f} |"
    )


def visits(ask: Any) -> dict[str, list[float]]:
    """Visit eight clients, then each again and at once again. Return seconds by kind."""
    found: dict[str, list[float]] = {"first": [], "second": [], "repeat": []}
    found["first"] = [ask(client) for client in range(CLIENTS)]
    for _ in range(VISITS):
        for client in range(CLIENTS):
            found["second"].append(ask(client))
            found["repeat"].append(ask(client))
    return found


def visits_row(name: str, found: dict[str, list[float]]) -> str:
    first, second, repeat = (statistics.median(found[key]) for key in found)
    pairs = zip(found["second"], found["repeat"], strict=True)
    more = [second - repeat for second, repeat in pairs]
    return (
        f"| {name} | {first:.2f} s | {second:.2f} s | {repeat:.2f} s "
        f"| {statistics.median(more):+.2f} s | {max(more):+.2f} s |"
    )


@contextmanager
def server(tree: Path) -> Iterator[str]:
    """Run `voxtui serve` of a work tree. Yield the address of its API."""
    loopback = ("--host", "127.0.0.1", "--port", "0", "--sessions", "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "voxtui", "serve", *loopback],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1]  # Ready: URL (models)
    finally:
        process.terminate()
        process.wait()


def ask_server(url: str, client: int, count: list[int]) -> float:
    """Return the seconds until the first piece of an answer."""
    import httpx2

    count[0] += 1
    messages = [
        {"role": "system", "content": instruction(client)},
        {"role": "user", "content": f"Say a word, number {count[0]}."},
    ]
    # Older versions take the names of OpenAI too.
    body = {"model": "gpt-4o", "messages": messages, "stream": True, "max_tokens": 2}
    began, first = time.monotonic(), 0.0
    with httpx2.stream("POST", f"{url}/chat/completions", json=body, timeout=120.0) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            if not first and '"content":' in line and '"content":""' not in line:
                first = time.monotonic() - began
    return first


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("--part", choices=("text", "questions", "visits", "server"))
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    trees = (asked.other.resolve(), HERE)
    parts = [asked.part] if asked.part else ["text", "questions", "visits", "server"]
    report: dict[str, Any] = {}
    if {"text", "questions"} & {*parts}:
        rows = ["| what | pairs | before | after | after / before |", "|---|---|---|---|---|"]
        with versions(trees, "questions") as both:
            if "text" in parts:
                report["text"] = taking_turns(both, [f"text {n}" for n in range(TEXT_RUNS)])
                rows.append(row("1,000 tokens of given text", report["text"], "seconds"))
            if "questions" in parts:
                numbers = list(range(both[1].questions)) * QUESTION_RUNS
                report["questions"] = taking_turns(both, [f"question {n}" for n in numbers])
                rows.append(row("spoken question, first token", report["questions"], "ttft"))
                rows.append(row("spoken question, first sound", report["questions"], "sound"))
                right = [
                    sum(pair[place]["right"] for pair in report["questions"]) for place in (0, 1)
                ]
                rows.append(f"| right answers | {len(numbers)} | {right[0]} | {right[1]} | |")
        sys.stdout.write("\n".join([*rows, "", ""]))
    head = "| to the first token | first visit | second visit | repeat | more | most |"
    rows = [head, "|---|---|---|---|---|---|"]
    if "visits" in parts:
        with versions(trees, "visits") as both:
            for name, version in zip(("before", "after"), both, strict=True):
                found = visits(lambda client, version=version: version.ask(client)["seconds"])
                report[f"visits {name}"] = found
                rows.append(visits_row(f"brain, {name}", found))
    if "server" in parts:
        for name, tree in zip(("before", "after"), trees, strict=True):
            with server(tree) as url:
                count = [0]
                found = visits(lambda client, url=url, n=count: ask_server(url, client, n))
            report[f"server {name}"] = found
            rows.append(visits_row(f"server, {name}", found))
    sys.stdout.write("\n".join([*rows, ""]))
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    worker() if "--worker" in sys.argv else main()
