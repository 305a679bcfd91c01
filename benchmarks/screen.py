"""Measure the screen: paint, event loop and idle CPU. `benchmarks.program` measures from outside.

    python -m benchmarks.screen [--turns 0 200 1000] [--rate 200] [--size 120x40] [--json OUT]

Everything runs on a pseudo-terminal and the real terminal driver.

- Idle: the CPU and the bytes to the terminal while only the noise of a room is heard.
- Paint: a scripted engine emits `--rate` tokens per second after `--turns` turns, below captions
  and beside the panel. A token is painted when a process at the other end of the terminal has read
  the bytes that contain it.
- Loop: the delay of a 5 ms sleep while the real models load, while sample clips are answered, and
  for a while after that.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import pty
import random
import re
import select
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.fakes import ScriptedEngine
from voxtui.bench.environment import machine
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import MICROPHONE
from voxtui.dialogue.events import (
    Caption,
    ReplyText,
    State,
    StateChanged,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.prefetch import SWITCH_SECONDS
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.settings.schema import Config, UiConfig
from voxtui.storage.derived_latencies import percentile
from voxtui.terminal.native_stderr import native_stderr_in
from voxtui.ui.app import VoxtuiApp
from voxtui.wiring import build_engine, sample_clips

TEXT = "The river winds slowly through the middle of the old city, under many bridges."
WORDS = TEXT.split()
STALL_SECONDS = 0.05
"""Time for which the screen may stand still before a person notices."""
SPOKEN_TOKENS = 20
"""Number of tokens before the first sound."""
CAPTIONS = 8
CAPTION_SECONDS = 0.05
"""Time between two captions; the recogniser needs longer for a pass."""
SETTLING_SECONDS = 5.0
"""Time until the microphone's level has been checked and nothing else is due."""
PAUSE_SECONDS = 0.2
"""Time between two answers, for Markdown rendering and garbage collection."""


TOKEN = re.compile(rb"Q[a-z]{4}")
"""Matches a token of the measured answers. Nothing else on the screen looks like it."""


def token_of(number: int) -> str:
    """Return a word that stands for `number`, unique to it."""
    letters = (number // 26**place % 26 for place in range(4))
    return "Q" + "".join(chr(ord("a") + letter) for letter in letters)


class MeasuredApp(VoxtuiApp):
    def __init__(self, rate: float, turns: int, seconds: float, panel: str) -> None:
        super().__init__(self._engine, Config(ui=UiConfig(panel=panel)))
        self._rate, self._turns, self._seconds = rate, turns, seconds
        self.handed_over: dict[str, float] = {}
        """monotonic seconds at which each token left the engine"""
        self.lateness: list[float] = []
        self.idle_cpu = self.busy_cpu = self.mib = 0.0
        self.idle_bytes = 0.0
        """the bytes written to the terminal per second while idle"""
        self._noise = random.Random(1)
        self._idle = False
        self._written = 0

    def _engine(self, emit):
        self._scripted = ScriptedEngine(emit)
        return self._scripted

    def on_ready(self) -> None:
        assert self._driver is not None
        write = self._driver.write

        def counted(data: str) -> None:
            self._written += len(data.encode())
            write(data)

        self._driver.write = counted
        sys.setswitchinterval(SWITCH_SECONDS)  # as the real engine does
        self.run_worker(self._measure())

    def tick(self) -> None:
        if self._idle:  # the noise of a quiet room, around -55 dBFS: the peak of a second's blocks
            self._scripted.level = 0.0018 * max(self._noise.uniform(0.6, 1.6) for _ in range(60))
        super().tick()

    async def _measure(self) -> None:
        await asyncio.sleep(0.5)
        self._scripted.load()
        for n in range(self._turns):
            self._scripted.begin("typed")
            self._scripted.report(ReplyText(n + 1, TEXT * 2))
            self._scripted.finish()
            await asyncio.sleep(0.02)
        await asyncio.sleep(SETTLING_SECONDS)
        before, written = time.process_time(), self._written
        self._idle = True
        await asyncio.sleep(self._seconds)
        self._idle = False
        self.idle_cpu = (time.process_time() - before) / self._seconds
        self.idle_bytes = (self._written - written) / self._seconds
        speaker = threading.Thread(target=self._stream)
        before = time.process_time()
        speaker.start()
        while speaker.is_alive():
            at = time.monotonic()
            await asyncio.sleep(0.005)
            self.lateness.append(time.monotonic() - at - 0.005)
        self.busy_cpu = (time.process_time() - before) / self._seconds
        await asyncio.sleep(0.2)
        self.mib = _resident_mib()
        self.exit()

    def _stream(self) -> None:
        begun, number = time.monotonic(), 0
        per_turn = 160
        timestamps = Timestamps()
        for n in range(int(self._rate * self._seconds)):
            if n % per_turn == 0:
                before = time.monotonic()
                if n:
                    self._scripted.finish(
                        timestamps=timestamps.since_release(), tokens=per_turn, reply=TEXT
                    )
                    time.sleep(PAUSE_SECONDS)  # the time between two answers
                number, timestamps = self._speak()
                begun += time.monotonic() - before
            time.sleep(max(0.0, begun + n / self._rate - time.monotonic()))  # the rate of tokens
            if n % per_turn == SPOKEN_TOKENS:
                for mark in (Milestone.FIRST_CLAUSE, Milestone.FIRST_AUDIO, Milestone.FIRST_SOUND):
                    timestamps.record(mark)
                timestamps.speech_s = per_turn / self._rate
                timestamps.spoken.append((per_turn * 5, timestamps.speech_s))
                self._scripted.report(StateChanged(State.SPEAKING))
            token = token_of(n)
            self.handed_over[token] = time.monotonic()
            self._scripted.report(ReplyText(number, f"{token} "))

    def _speak(self) -> tuple[int, Timestamps]:
        """Begin a turn with captions. Return its number and its timestamps after the release."""
        engine, timestamps = self._scripted, Timestamps()
        engine.turns += 1
        engine.report(
            TurnStarted(engine.turns, MICROPHONE, timestamps), StateChanged(State.LISTENING)
        )
        for n in range(CAPTIONS):
            engine.level = 0.1 + n % 7 / 10
            engine.report(Caption(engine.turns, " ".join(WORDS[: n + 3]), 10))
            time.sleep(CAPTION_SECONDS)  # the time between two passes of the recogniser
        timestamps.record(Milestone.RELEASED)
        engine.report(StateChanged(State.THINKING), UserWords(engine.turns, TEXT))
        timestamps.record(Milestone.FIRST_TOKEN)
        return engine.turns, timestamps


class LoadingApp(VoxtuiApp):
    """The screen on the real models without sound devices."""

    def __init__(self) -> None:
        config = Config()
        super().__init__(
            lambda emit: build_engine(config, emit, Devices()),
            config,
            sample_clips(),
        )
        self.while_loading: list[float] = []
        self.since_ready: list[float] = []
        self.loaded_after = 0.0

    def on_ready(self) -> None:
        self.run_worker(self._measure())

    async def _measure(self) -> None:
        began = time.monotonic()
        await self._watch(self.while_loading, lambda: self.session.state is not State.LOADING)
        self.loaded_after = time.monotonic() - began
        for number in (1, 2, 3):
            self.main.action_clip(number)
            await self._watch(self.since_ready, lambda: self.session.state is not State.READY)
            await self._watch(self.since_ready, lambda: self.session.state is State.READY)
        idle_until = time.monotonic() + SETTLING_SECONDS
        await self._watch(self.since_ready, lambda: time.monotonic() > idle_until)
        self.exit()

    async def _watch(self, late: list[float], over: Callable[[], bool]) -> None:
        while not over():
            at = time.monotonic()
            await asyncio.sleep(0.005)
            late.append(time.monotonic() - at - 0.005)


def spread(seconds: Sequence[float]) -> dict[str, float]:
    found = {name: percentile(seconds, p) or 0.0 for name, p in SPREAD.items()}
    return {name: round(value * 1000, 1) for name, value in found.items()}


SPREAD = {"p50": 50, "p95": 95, "p99": 99, "max": 100}


def paint(rate: float, turns: int, seconds: float, panel: str) -> dict[str, Any]:
    app = MeasuredApp(rate, turns, seconds, panel)
    app.run()
    return {
        "turns": turns,
        "panel": panel,
        "handed_over": app.handed_over,
        "loop_late_ms": spread(app.lateness),
        "busy_cpu": round(app.busy_cpu, 3),
        "idle_cpu": round(app.idle_cpu, 4),
        "idle_bytes_per_s": round(app.idle_bytes),
        "resident_mib": round(app.mib),
    }


def load() -> dict[str, Any]:
    app = LoadingApp()
    app.run()
    app.session.close()
    return {
        "loaded_after_s": round(app.loaded_after, 1),
        "loading_late_ms": spread(app.while_loading),
        "since_ready_late_ms": spread(app.since_ready),
        "stalls_since_ready": sum(late > STALL_SECONDS for late in app.since_ready),
    }


def in_terminal(measure: Callable[[], dict[str, Any]], size: tuple[int, int]) -> dict[str, Any]:
    """Run `measure` in a process on a pseudo-terminal and return its result.

    `paint_ms` is the time from each of its tokens `handed_over` to the bytes that show it here.
    """
    answer, told = os.pipe()
    child, terminal = pty.fork()
    if child == 0:
        columns, rows = size
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        with native_stderr_in(Path(os.devnull)):
            found = measure()
        os.write(told, json.dumps(found).encode())
        os._exit(0)
    os.close(told)
    written, result, seen = b"", b"", dict[str, float]()
    for source, piece in _read(terminal, answer):
        if source == answer:
            result += piece
            continue
        now, written = time.monotonic(), (written + piece)[-20_000 - len(piece) :]
        for token in TOKEN.findall(written[-len(piece) - 4 :]):  # one may lie in two pieces
            seen.setdefault(token.decode(), now)
    os.waitpid(child, 0)
    os.close(answer)
    os.close(terminal)
    if not result:
        sys.exit(written.decode(errors="replace"))
    found = json.loads(result)
    if (handed_over := found.pop("handed_over", None)) is not None:
        found["tokens"] = len(handed_over)
        found["paint_ms"] = spread([seen[token] - at for token, at in handed_over.items()])
    return found


def _read(*files: int) -> Iterator[tuple[int, bytes]]:
    """Yield each piece that can be read, with its file, until all files end."""
    left = [*files]
    while left:
        for file in select.select(left, [], [])[0]:
            try:
                piece = os.read(file, 65536)
            except OSError:  # how the end of a process shows on a terminal
                piece = b""
            if piece:
                yield file, piece
            else:
                left.remove(file)


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rate", type=float, default=200)
    options.add_argument("--turns", type=int, nargs="*", default=[0, 200, 1000])
    options.add_argument("--panels", nargs="*", default=["glance", "lab"])
    options.add_argument("--only-paint", action="store_true", help="without the real models")
    options.add_argument("--size", default="120x40")
    options.add_argument("--seconds", type=float, default=10)
    options.add_argument("--json", type=Path)
    asked = options.parse_args()
    columns, rows = map(int, asked.size.split("x"))
    about = machine()
    found: dict[str, Any] = {"machine": about, "rate": asked.rate, "size": asked.size}
    cases = [(turns, panel) for turns in asked.turns for panel in asked.panels]
    measures = [partial(paint, asked.rate, turns, asked.seconds, panel) for turns, panel in cases]
    found["paint"] = [in_terminal(measure, (columns, rows)) for measure in measures]
    if not asked.only_paint:
        found["load"] = in_terminal(load, (columns, rows))
    sys.stdout.write(table(found))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


def table(found: dict[str, Any]) -> str:
    lines = ["| ms | p50 | p95 | p99 | max |", "|---|---|---|---|---|"]

    def row(name: str, values: dict[str, float]) -> None:
        lines.append(f"| {name} | " + " | ".join(f"{values[key]:.1f}" for key in SPREAD) + " |")

    for one in found["paint"]:
        row(f"token to paint, {_case(one)}", one["paint_ms"])
    for one in found["paint"]:
        row(f"event loop late meanwhile, {_case(one)}", one["loop_late_ms"])
    if load := found.get("load"):
        row("event loop late while the models load", load["loading_late_ms"])
        row("event loop late from READY on", load["since_ready_late_ms"])
        lines.append(
            f"\nmodels loaded after {load['loaded_after_s']} s; "
            f"{load['stalls_since_ready']} stalls above {STALL_SECONDS * 1000:.0f} ms since"
        )
    for one in found["paint"]:
        lines.append(
            f"\n{_case(one)}: {one['busy_cpu']:.0%} of a core while it streams, "
            f"{one['idle_cpu']:.1%} and {one['idle_bytes_per_s']} bytes/s idle, "
            f"{one['resident_mib']} MiB"
        )
    return "\n".join(lines) + "\n"


def _case(one: dict[str, Any]) -> str:
    return f"{one['turns']} turns before, {one['panel']}"


if __name__ == "__main__":
    main()
