"""Conversations of several clients at once, and what they wait for."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from benchmarks.serve.process import ON_LOOPBACK, Server, started
from benchmarks.serve.realtime_client import RATE, Answer, Busy, Line, messages
from benchmarks.serve.scripted_server import IDEAL_MS, scripted_parts
from benchmarks.stubs import beep
from voxtui.audio.clips import Clip, load_clip
from voxtui.audio.file_speaker import NullSpeaker
from voxtui.audio.resampling import resample
from voxtui.bench.environment import machine
from voxtui.bench.measure import measure
from voxtui.bench.tables import number, spread_json
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import FRAME_SECONDS, SAMPLE_RATE
from voxtui.dialogue.engine import Engine
from voxtui.settings.schema import Config
from voxtui.storage.derived_latencies import spread
from voxtui.wiring import target_clips

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

SCRIPTED_CLIENTS = (1, 4, 8, 16, 64)

REAL_CLIENTS = (1, 2, 4)

REAL_SESSIONS = (1, 2)

BEGIN_SECONDS = 1.0
"""Time in which all clients begin, so that they are not in step."""

RETRY_SECONDS = 1.0
"""Time after which a refused client tries again, as the server requests."""

NUMBERS = ("first_text_ms", "first_sound_ms", "total_ms")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    turns: int = 5
    """the turns of each client, without the first one of each session"""
    scripted: bool = False
    """leave out the real models"""
    as_json: bool = False


@dataclass(slots=True)
class Load:
    """Clients that converse at the same time, and what they measured."""

    clients: int
    sessions: int
    """the number of the server's sessions"""
    seconds: float = 0.0
    refused: int = 0
    """the number of refused attempts to open a session"""
    cold: list[Answer] = field(default_factory=list[Answer])
    """the first answer of each session, if sessions have several"""
    hot: list[Answer] = field(default_factory=list[Answer])

    @property
    def turns_per_second(self) -> float:
        return (len(self.cold) + len(self.hot)) / self.seconds

    @property
    def refused_share(self) -> float:
        opened = len(self.cold) or len(self.hot)
        return self.refused / (self.refused + opened)


@dataclass(frozen=True, slots=True)
class Measured:
    parts: str
    starts: Sequence[float]
    """the seconds of each start of the server"""
    loads: Sequence[Load]


def run(arguments: Sequence[str], options: LoadOptions) -> None:
    """Measure and print the report. Raises VoxtuiError.

    `arguments`: the options with which the server of the real models is started.
    """
    about = machine()
    direct = engine_directly(options.turns)

    def show(lines: Sequence[str]) -> None:
        click.echo("\n".join(lines), err=options.as_json)

    show([f"load of the machine before: {about['load_at_start']}"])
    measured = [scripted(options.turns)]
    show(report(measured[0], direct))
    if not options.scripted:
        measured.append(real(arguments, options.turns))
        show(["", *report(measured[1], None)])
    if options.as_json:
        whole: dict[str, Any] = {"machine": about, "direct": as_json_of(direct)}
        whole |= {"ideal_ms": IDEAL_MS, "measured": [as_json(one) for one in measured]}
        click.echo(json.dumps(whole, ensure_ascii=False))


def engine_directly(turns: int) -> list[Answer]:
    """Return turns on the scripted parts without a server."""
    parts = scripted_parts()
    assert parts.brain is not None
    brain = parts.brain
    measured = measure(
        [Clip("tone", spoken_second(SAMPLE_RATE))],
        turns,
        1,
        lambda emit: Engine(
            Models(parts.detector, brain, parts.voice),
            Config(),
            emit,
            Devices(speaker=NullSpeaker()),
        ),
    )
    return [
        Answer(turn.ttft_ms, turn.first_sound_ms, turn.total_ms or 0.0) for turn in measured.turns
    ]


def spoken_second(rate: int) -> Samples:
    """Return a second of sound and a tenth of silence, in whole frames of the engine.

    The engine thus does not wait for more sound.
    """
    loud, quiet = 31 * FRAME_SECONDS, 3 * FRAME_SECONDS
    return np.concatenate([beep(loud, rate), np.zeros(round(quiet * rate), np.float32)])


def scripted(turns: int) -> Measured:
    """Measure only our server: its components only wait."""
    spoken = messages(spoken_second(RATE))
    sessions = max(SCRIPTED_CLIENTS)
    with started("benchmarks.serve.scripted_server", [str(sessions)]) as server:
        loads = [under_load(server, Load(n, sessions), spoken, turns) for n in SCRIPTED_CLIENTS]
    return Measured("parts that only wait", [server.start_seconds], loads)


def real(arguments: Sequence[str], turns: int) -> Measured:
    """Measure the models of the configuration. Each turn is a session of its own."""
    clip = load_clip(target_clips()[0], math.inf)
    spoken = messages(resample(clip.samples, SAMPLE_RATE, RATE))
    starts: list[float] = []
    loads: list[Load] = []
    for sessions in REAL_SESSIONS:
        count = ["--sessions", str(sessions)]
        with started("voxtui", ["serve", *arguments, *ON_LOOPBACK, *count]) as server:
            starts.append(server.start_seconds)
            for clients in REAL_CLIENTS:
                load = Load(clients, sessions)
                loads.append(under_load(server, load, spoken, turns, reopening=True))
    return Measured("the models of the configuration", starts, loads)


def under_load(
    server: Server, load: Load, spoken: list[bytes], turns: int, reopening: bool = False
) -> Load:
    """Have `load.clients` converse at once, and return `load`. Raises VoxtuiError.

    With `reopening`, each turn is in a session of its own.
    """
    click.echo(f"Measuring: clients: {load.clients}, sessions: {load.sessions}.", err=True)
    try:
        asyncio.run(_run(server, load, spoken, turns, reopening))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return load


async def _run(
    server: Server, load: Load, spoken: list[bytes], turns: int, reopening: bool
) -> None:
    began = time.monotonic()
    converse = _reopening if reopening else _converse
    async with asyncio.TaskGroup() as group:
        for n in range(load.clients):
            delay = BEGIN_SECONDS * n / load.clients
            group.create_task(converse(server, load, spoken, turns, delay))
    load.seconds = time.monotonic() - began


async def _converse(
    server: Server, load: Load, spoken: list[bytes], turns: int, delay: float
) -> None:
    await asyncio.sleep(delay)
    line = await Line.open(server.url)
    try:
        load.cold.append(await line.turn(spoken))
        for _ in range(turns):
            load.hot.append(await line.turn(spoken))
    finally:
        line.close()


async def _reopening(
    server: Server, load: Load, spoken: list[bytes], turns: int, delay: float
) -> None:
    await asyncio.sleep(delay)
    for _ in range(turns):
        line = await _opened(server, load)
        try:
            load.hot.append(await line.turn(spoken))
        finally:
            line.close()


async def _opened(server: Server, load: Load) -> Line:
    while True:
        try:
            return await Line.open(server.url)
        except Busy:
            load.refused += 1
            await asyncio.sleep(RETRY_SECONDS)


def report(measured: Measured, direct: Sequence[Answer] | None) -> list[str]:
    """Return a table with a row per number of clients."""
    starts = ", ".join(f"{seconds:.1f} s" for seconds in measured.starts)
    lines = [
        f"voxtui serve with {measured.parts}; it was ready after {starts}",
        f"{'ms from the commit':28} {'first text':>13} {'first sound':>13} {'total':>13}",
        f"{'sessions clients turns /s':28} {'p50    p95':>13} {'p50    p95':>13} {'p50    p95':>13}"
        f" {'refused':>8}",
    ]
    if direct is not None:
        lines.append(_row("the engine, called directly", direct, ""))
    for load in measured.loads:
        head = f"{load.sessions:>8} {load.clients:>7} {load.turns_per_second:>8.1f}"
        if load.cold:
            lines.append(_row(f"{head}  1st", load.cold, ""))
        lines.append(_row(head, load.hot, f"{load.refused_share:.0%}"))
    if direct is not None:
        over = overhead_ms(measured, direct)
        lines.append(f"One client waits {number(over)} ms longer than the engine's caller, p50.")
    return lines


def overhead_ms(measured: Measured, direct: Sequence[Answer]) -> float | None:
    """Return the median wait of one client for the first sound, minus that without a server."""
    single = spread(answer.first_sound_ms for answer in measured.loads[0].hot)
    without = spread(answer.first_sound_ms for answer in direct)
    return single.p50 - without.p50 if single and without else None


def _row(head: str, answers: Sequence[Answer], refused: str) -> str:
    cells: list[str] = []
    for name in NUMBERS:
        times = spread(getattr(answer, name) for answer in answers)
        cells.append(f"{number(times and times.p50)} {number(times and times.p95):>6}")
    return f"{head:28} " + " ".join(f"{cell:>13}" for cell in cells) + f" {refused:>8}".rstrip()


def as_json(measured: Measured) -> dict[str, Any]:
    """Return a measurement, ready for JSON."""
    loads = [
        {
            "sessions": load.sessions,
            "clients": load.clients,
            "seconds": round(load.seconds, 2),
            "turns_per_second": round(load.turns_per_second, 2),
            "refused": round(load.refused_share, 3),
            "cold": as_json_of(load.cold),
            "hot": as_json_of(load.hot),
        }
        for load in measured.loads
    ]
    starts = [round(seconds, 2) for seconds in measured.starts]
    return {"parts": measured.parts, "start_seconds": starts, "loads": loads}


def as_json_of(answers: Sequence[Answer]) -> dict[str, Any]:
    return {
        name: spread_json(spread(getattr(answer, name) for answer in answers)) for name in NUMBERS
    }
