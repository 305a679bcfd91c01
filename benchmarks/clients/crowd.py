"""Many people talk to one server for minutes, and some of their programs are killed.

    python -m benchmarks.clients.crowd --seconds 600 --json FILE
    python -m benchmarks.clients.crowd --clients 40 --away 600 -- --brain embedded --sessions 4

Without options of `voxtui serve` the parts of the server only wait. A client opens a session,
talks for some turns, hangs up, and comes back. Every tenth one vanishes in the middle of a turn or
of an HTTP request instead, and comes back a second later. The exit code is 1 if a session, a
socket, a process or a file is left, if memory grows, or if an answer is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psutil

from benchmarks.serve.load import NUMBERS, spoken_second
from benchmarks.serve.process import ON_LOOPBACK, Server, started
from benchmarks.serve.realtime_client import RATE, Answer, Busy, Line, messages
from voxtui.audio.clips import load_clip
from voxtui.audio.resampling import resample
from voxtui.bench.environment import machine
from voxtui.bench.tables import number, spread_json
from voxtui.dialogue.data import SAMPLE_RATE
from voxtui.errors import RemoteError
from voxtui.storage.derived_latencies import spread
from voxtui.wiring import target_clips

KILLED_EVERY = 10

MOST_TURNS = 5
"""Maximum turns of a session."""

PAUSE_SECONDS = 6.0
"""Maximum pause of a person between two turns."""

KILLED_WITHIN_SECONDS = 2.0
"""Maximum time from the first word to a kill: during the speech or the answer."""

HTTP_SHARE = 0.5
"""Share of HTTP requests among the killed clients."""

BACK_SECONDS = 1.0
"""Time after which a killed program is started again."""

SAMPLE_SECONDS = 30.0

SETTLED_SECONDS = 600.0
"""Time from which memory must not grow."""

ENDING_SECONDS = 20.0

IDLE_SECONDS = 11.0
"""Time without work after which the server's pool of threads ends a worker, at the next request."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The server's process at one time."""

    second: float
    rss_mb: float
    """the memory of all its processes"""
    processes: int
    threads: int
    """the threads of all its processes"""
    files: int
    """the open files of all kinds, including sockets, of all its processes"""
    sockets: int
    """the connections of clients"""
    turns: int
    """the turns answered so far"""
    load: float
    """the load of the machine"""

    @property
    def other_files(self) -> int:
        """The open files that are no connections of clients."""
        return self.files - self.sockets


@dataclass(slots=True)
class Crowd:
    """The observations of all clients."""

    answers: list[Answer] = field(default_factory=list[Answer])
    failed: list[str] = field(default_factory=list[str])
    sessions: int = 0
    killed: int = 0
    refused: int = 0


def connections(process: psutil.Process) -> list[object]:
    return [one for one in process.net_connections() if one.status != psutil.CONN_LISTEN]


def sample(process: psutil.Process, began: float, turns: int) -> Sample:
    tree = [process, *process.children(recursive=True)]
    return Sample(
        round(time.monotonic() - began, 1),
        round(sum(one.memory_info().rss for one in tree) / 2**20, 1),
        len(tree),
        sum(one.num_threads() for one in tree),
        sum(one.num_fds() for one in tree),
        len(connections(process)),
        turns,
        round(os.getloadavg()[0], 1),
    )


@dataclass(frozen=True, slots=True)
class Visit:
    """The words of each client, and the time at which it leaves for good."""

    url: str
    clip: np.ndarray
    """the question, float32 at SAMPLE_RATE"""
    spoken: list[bytes]
    """the question as messages"""
    until: float
    away: float
    """the maximum seconds from one visit to the next"""

    async def back(self) -> bool:
        """Wait for the next visit. Return False if there is none."""
        left = self.until - time.monotonic()
        await asyncio.sleep(min(random.uniform(0.0, self.away), max(0.0, left)))
        return time.monotonic() < self.until


async def person(visit: Visit, crowd: Crowd) -> None:
    """Talk for some turns in each session."""
    while await visit.back():
        if (line := await opened(visit, crowd)) is None:
            return
        try:
            for _ in range(random.randint(1, MOST_TURNS)):
                crowd.answers.append(await line.turn(visit.spoken))
                await asyncio.sleep(random.uniform(0.0, PAUSE_SECONDS))  # a person thinks
                if time.monotonic() >= visit.until:
                    break
        except (RemoteError, TimeoutError) as error:
            crowd.failed.append(repr(error))
        line.close()


async def victim(visit: Visit, crowd: Crowd) -> None:
    """Disconnect in the middle of each session's turn or request, or after it."""
    requests = http_requests(visit)
    while time.monotonic() < visit.until:
        within = random.uniform(0.0, KILLED_WITHIN_SECONDS)
        if random.random() < HTTP_SHARE:
            await killed_request(visit.url, random.choice(requests), within)
        elif line := await opened(visit, crowd):
            try:
                async with asyncio.timeout(within):
                    crowd.answers.append(await line.turn(visit.spoken))
            except TimeoutError:
                pass
            except RemoteError as error:
                crowd.failed.append(repr(error))
            line.abort()
        crowd.killed += 1
        await asyncio.sleep(BACK_SECONDS + random.uniform(0.0, visit.away / 20))


def http_requests(visit: Visit) -> list[bytes]:
    """Return a transcription, a part of one, a streamed answer and a long speech."""
    pcm = (visit.clip * 32767).astype("<i2").tobytes()
    head = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0\x80>\0\0\0}\0\0\x02\0\x10\0data"
    file = head + len(pcm).to_bytes(4, "little") + pcm
    form = b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\n%s\r\n--x--\r\n' % file
    said = {"role": "user", "content": "What is the capital of France?"}
    transcription = _request("audio/transcriptions", form, "multipart/form-data; boundary=x")
    return [
        transcription,
        transcription[: len(transcription) // 2],
        _request("chat/completions", json.dumps({"messages": [said], "stream": True}).encode()),
        _request("audio/speech", json.dumps({"input": "This is a sentence. " * 50}).encode()),
    ]


def _request(path: str, body: bytes, kind: str = "application/json") -> bytes:
    lines = f"POST /v1/{path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}"
    return "\r\n".join((*lines, f"Content-Length: {len(body)}", "", "")).encode() + body


async def killed_request(url: str, request: bytes, within: float) -> None:
    """Send a request, read its answer for `within` seconds, and disconnect."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(request)
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(within):
            while await reader.read(65536):
                pass
    writer.transport.abort()


async def opened(visit: Visit, crowd: Crowd) -> Line | None:
    """Open a session as soon as one is free. Return None if the end came first."""
    while time.monotonic() < visit.until:
        try:
            line = await Line.open(visit.url)
        except Busy:
            crowd.refused += 1
            await asyncio.sleep(random.uniform(1.0, 1.0 + visit.away / 10))  # as the server asks
        else:
            crowd.sessions += 1
            return line
    return None


async def talk(
    process: psutil.Process, clients: int, visit: Visit, crowd: Crowd, samples: list[Sample]
) -> None:
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for n in range(clients):
            group.create_task((victim if n % KILLED_EVERY == 0 else person)(visit, crowd))
        while time.monotonic() < visit.until:
            left = visit.until - time.monotonic()
            await asyncio.sleep(min(SAMPLE_SECONDS, left))  # between two looks at the process
            samples.append(sample(process, began, len(crowd.answers)))
            print(samples[-1], file=sys.stderr, flush=True)


def left_over(server: Server, folder: Path, files: int, before: Sample) -> dict[str, int]:
    """Return what remains once every client has disconnected. Waits for at most ENDING_SECONDS.

    Before the first client, `folder`, where the server puts its temporary files, held `files`, and
    the server was as in `before`.
    """
    process, until = psutil.Process(server.pid), time.monotonic() + ENDING_SECONDS
    while True:
        with urllib.request.urlopen(server.url.replace("/v1", "/readyz")) as answer:
            ready = json.load(answer)
        now = sample(process, 0.0, 0)
        left = {
            "sessions": ready["sessions"] - ready["free"],
            "sockets": now.sockets,
            "processes": now.processes - before.processes,
            "files": len([*folder.iterdir()]) - files,
        }
        if not any(left.values()) or time.monotonic() > until:
            return left
        time.sleep(0.2)  # the server closes its sessions in its own time


async def one_visit(url: str) -> None:
    line = await Line.open(url)
    line.close()


def threads_of(server: Server) -> list[str]:
    """Return the names of the threads of a scripted server."""
    os.kill(server.pid, signal.SIGUSR1)
    while not (line := server.output.readline()).startswith("["):
        assert line  # it is about the page
    return json.loads(line)


@dataclass(frozen=True, slots=True)
class Growth:
    """A least-squares slope with its 95 % confidence interval, per hour."""

    slope: float
    low: float
    high: float


def growth(samples: list[Sample], name: str) -> Growth | None:
    """Return the growth of a number after SETTLED_SECONDS, or None for too few samples.

    Neighbouring samples are alike, so they count as fewer: the interval is widened by the
    correlation of neighbouring residuals, as for an autoregressive series of the first order.
    """
    late = [one for one in samples if one.second >= SETTLED_SECONDS]
    if len(late) < 10:
        return None
    hours = np.array([one.second / 3600 for one in late])
    values = np.array([getattr(one, name) for one in late], dtype=float)
    slope, start = np.polyfit(hours, values, 1)
    rest = values - slope * hours - start
    error = math.sqrt((rest**2).sum() / (len(late) - 2) / ((hours - hours.mean()) ** 2).sum())
    alike = (rest[1:] * rest[:-1]).sum() / max((rest**2).sum(), 1e-9)
    alike = min(max(alike, 0.0), 0.95)
    half = 2 * error * math.sqrt((1 + alike) / (1 - alike))
    return Growth(round(slope, 2), round(slope - half, 2), round(slope + half, 2))


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
    for one in [*samples[: -2 : max(1, len(samples) // 10)], *samples[-2:]]:
        lines.append(
            f"{one['second']:6.0f} s: {one['rss_mb']:7.1f} MB, {one['processes']} processes, "
            f"{one['threads']:4} threads, {one['files']:4} files, {one['sockets']:4} sockets, "
            f"{one['turns']:6} turns, load {one['load']}"
        )
    for name, one in found["growth"].items():
        if one is not None:
            lines.append(
                f"{name} per hour after {SETTLED_SECONDS / 60:.0f} min: {one['slope']} "
                f"({one['low']} to {one['high']})"
            )
    lines += [f"threads {when}: {', '.join(names)}" for when, names in found["threads"].items()]
    return "\n".join([*lines, f"left: {found['left']}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--sets", type=int, help="sets of parts that only wait; a set for each")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--away", type=float, default=0.0, help="most seconds between two visits")
    parser.add_argument("--json", type=Path, help="keep the numbers in this file")
    parser.add_argument("serve", nargs="*", help="options of voxtui serve, after --")
    asked = parser.parse_args()
    random.seed(0)
    crowd, about = Crowd(), machine()
    clip, module = spoken_second(SAMPLE_RATE), "benchmarks.serve.scripted_server"
    options = [str(asked.sets or asked.clients)]
    if asked.serve:
        module, options = "voxtui", ["serve", *asked.serve, *ON_LOOPBACK]
        clip = load_clip(target_clips()[0], math.inf).samples
    spoken = messages(resample(clip, SAMPLE_RATE, RATE))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        with started(module, options) as server:
            process, began = psutil.Process(server.pid), time.monotonic()
            files = len([*Path(folder).iterdir()])
            threads: dict[str, list[str]] = {}
            if not asked.serve:
                threads["before"] = threads_of(server)
            samples = [sample(process, began, 0)]
            visit = Visit(server.url, clip, spoken, began + asked.seconds, asked.away)
            asyncio.run(talk(process, asked.clients, visit, crowd, samples))
            grown = {name: growth(samples, name) for name in ("rss_mb", "threads", "other_files")}
            left = left_over(server, Path(folder), files, samples[0])
            samples.append(sample(process, began, len(crowd.answers)))
            if not asked.serve:
                threads["after"] = threads_of(server)
            time.sleep(IDLE_SECONDS)
            asyncio.run(one_visit(server.url))
            left = left_over(server, Path(folder), files, samples[0])
            samples.append(sample(process, began, len(crowd.answers)))
            if not asked.serve:
                threads["after one more visit"] = threads_of(server)
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
        "growth": {name: one and asdict(one) for name, one in grown.items()},
        "threads": threads,
        "left": left,
    }
    for name in NUMBERS:
        found[name] = spread_json(spread(getattr(answer, name) for answer in crowd.answers))
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    print(report(found))
    memory = grown["rss_mb"]
    grows = memory is not None and memory.low > 0
    sys.exit(bool(crowd.failed or grows or any(left.values())))


if __name__ == "__main__":
    main()
