"""Many people talk to one server for minutes, and some of their programs are killed.

    python -m benchmarks.clients.crowd --seconds 600 --json benchmarks/clients/crowd.json

The parts of the server only wait. A client opens a session, talks for some turns, hangs up, and
comes back. Every tenth one vanishes in the middle of a turn instead, and comes back a second later.
The exit code is 1 if a session or a socket is left at the end, or if an answer is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.serve.load import NUMBERS, spoken_second
from benchmarks.serve.process import Server, started
from benchmarks.serve.realtime_client import RATE, Answer, Busy, Line, messages
from voxtui.bench.machine import machine
from voxtui.bench.tables import number, spread_json
from voxtui.errors import RemoteError
from voxtui.storage.derived_latencies import spread

KILLED_EVERY = 10

MOST_TURNS = 5
"""of a session"""

PAUSE_SECONDS = 6.0
"""A person says nothing for up to so long between two turns."""

KILLED_WITHIN_SECONDS = 2.0
"""after it has begun to speak: while it speaks, or while it is answered"""

BACK_SECONDS = 1.0
"""A program that was killed is started again after so long."""

SAMPLE_SECONDS = 10.0

ENDING_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The server's process at one time."""

    second: float
    rss_mb: float
    threads: int
    sockets: int
    turns: int
    """answered so far"""
    load: float
    """of the machine"""


@dataclass(slots=True)
class Crowd:
    """What all clients have seen."""

    answers: list[Answer] = field(default_factory=list[Answer])
    failed: list[str] = field(default_factory=list[str])
    sessions: int = 0
    killed: int = 0
    refused: int = 0


def connections(process: psutil.Process) -> list[object]:
    return [one for one in process.net_connections() if one.status != psutil.CONN_LISTEN]


def sample(process: psutil.Process, began: float, turns: int) -> Sample:
    return Sample(
        round(time.monotonic() - began, 1),
        round(process.memory_info().rss / 2**20, 1),
        process.num_threads(),
        len(connections(process)),
        turns,
        round(os.getloadavg()[0], 1),
    )


async def person(url: str, spoken: list[bytes], until: float, crowd: Crowd) -> None:
    """Talk for some turns in each session, and open the next one at once."""
    while time.monotonic() < until:
        line = await opened(url, crowd)
        try:
            for _ in range(random.randint(1, MOST_TURNS)):
                crowd.answers.append(await line.turn(spoken))
                await asyncio.sleep(random.uniform(0.0, PAUSE_SECONDS))  # a person thinks
                if time.monotonic() >= until:
                    break
        except (RemoteError, TimeoutError) as error:
            crowd.failed.append(repr(error))
        line.close()


async def victim(url: str, spoken: list[bytes], until: float, crowd: Crowd) -> None:
    """Vanish in the middle of each session's turn, or after it."""
    while time.monotonic() < until:
        line = await opened(url, crowd)
        with suppress(TimeoutError):
            async with asyncio.timeout(random.uniform(0.0, KILLED_WITHIN_SECONDS)):
                crowd.answers.append(await line.turn(spoken))
        line.abort()
        crowd.killed += 1
        await asyncio.sleep(BACK_SECONDS)  # a person starts the program again


async def opened(url: str, crowd: Crowd) -> Line:
    while True:
        try:
            line = await Line.open(url)
        except Busy:
            crowd.refused += 1
            await asyncio.sleep(1.0)  # as the server asks
        else:
            crowd.sessions += 1
            return line


async def talk(
    server: Server, clients: int, until: float, crowd: Crowd, samples: list[Sample]
) -> None:
    process, spoken = psutil.Process(server.pid), messages(spoken_second(RATE))
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for n in range(clients):
            one = victim if n % KILLED_EVERY == 0 else person
            group.create_task(one(server.url, spoken, until, crowd))
        while time.monotonic() < until:
            left = until - time.monotonic()
            await asyncio.sleep(min(SAMPLE_SECONDS, left))  # between two looks at the process
            samples.append(sample(process, began, len(crowd.answers)))
            print(samples[-1], file=sys.stderr, flush=True)


def left_over(server: Server, clients: int) -> dict[str, int]:
    """Return what remains once every client has gone. Waits for it up to ENDING_SECONDS."""
    process, until = psutil.Process(server.pid), time.monotonic() + ENDING_SECONDS
    while True:
        with urllib.request.urlopen(server.url.replace("/v1", "/readyz")) as answer:
            free = json.load(answer)["free"]
        left = {"sessions": clients - free, "sockets": len(connections(process))}
        if not any(left.values()) or time.monotonic() > until:
            return left
        time.sleep(0.2)  # the server closes its sessions in its own time


def report(found: dict[str, Any]) -> str:
    samples = found["samples"]
    lines = [
        f"{found['clients']} clients for {found['seconds']:.0f} s",
        f"answered {found['answered']}, without an answer {len(found['failed'])}, sessions "
        f"{found['sessions']}, killed {found['killed']}, refused {found['refused']}",
    ]
    for name in NUMBERS:
        times: dict[str, float] = found[name] or {}
        lines.append(f"{name:16} p50 {number(times.get('p50'))}  p95 {number(times.get('p95'))}")
    for one in [*samples[: -1 : max(1, len(samples) // 10)], samples[-1]]:
        lines.append(
            f"{one['second']:6.0f} s: {one['rss_mb']:7.1f} MB, {one['threads']:4} threads, "
            f"{one['sockets']:4} sockets, {one['turns']:6} turns, load {one['load']}"
        )
    return "\n".join([*lines, f"left: {found['left']}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--json", type=Path, help="keep the numbers in this file")
    asked = parser.parse_args()
    random.seed(0)
    crowd, about = Crowd(), machine()
    with started("benchmarks.serve.scripted_server", [str(asked.clients)]) as server:
        process, began = psutil.Process(server.pid), time.monotonic()
        samples = [sample(process, began, 0)]
        asyncio.run(talk(server, asked.clients, began + asked.seconds, crowd, samples))
        left = left_over(server, asked.clients)
        samples.append(sample(process, began, len(crowd.answers)))
    found: dict[str, Any] = {
        "machine": about,
        "clients": asked.clients,
        "seconds": asked.seconds,
        "answered": len(crowd.answers),
        "failed": crowd.failed,
        "sessions": crowd.sessions,
        "killed": crowd.killed,
        "refused": crowd.refused,
        "samples": [asdict(one) for one in samples],
        "left": left,
    }
    for name in NUMBERS:
        found[name] = spread_json(spread(getattr(answer, name) for answer in crowd.answers))
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    print(report(found))
    sys.exit(bool(crowd.failed or left["sessions"] or left["sockets"]))


if __name__ == "__main__":
    main()
