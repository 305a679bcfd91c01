"""Token to paint, event-loop lateness and idle CPU of the screen, on a real terminal driver.

    python -m tests.ui.measure_paint [--rate 200] [--turns 0] [--size 120x40] [--seconds 6]

The app runs on a pseudo-terminal with a scripted engine, whose tokens come from another thread.
`paint` is from handing a token to the app until Textual has written the line that holds it.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import pty
import struct
import sys
import termios
import threading
import time
from collections import deque
from pathlib import Path

from tests.fakes import ScriptedEngine
from voxtui.config import Config
from voxtui.metrics import percentile
from voxtui.turn import Event, ReplyText, State, StateChanged
from voxtui.ui.app import VoxtuiApp
from voxtui.ui.stderr import native_stderr_in

TEXT = "The river winds slowly through the middle of the old city, under many bridges."
WORDS = TEXT.split()


class MeasuredApp(VoxtuiApp):
    def __init__(self, rate: float, turns: int, seconds: float) -> None:
        super().__init__(self._engine, Config())
        self._rate, self._turns, self._seconds = rate, turns, seconds
        self.paints: list[float] = []
        self.lateness: list[float] = []
        self.idle_cpu = self.busy_cpu = 0.0
        self._handed_over: deque[float] = deque()
        self._appended = 0

    def _engine(self, emit):
        def timed(event: Event) -> None:
            if isinstance(event, ReplyText):
                self._handed_over.append(time.monotonic())
            emit(event)

        return ScriptedEngine(timed)

    def on_ready(self) -> None:
        self.run_worker(self._measure())

    async def _measure(self) -> None:
        await asyncio.sleep(0.5)
        self.engine.load()
        for n in range(self._turns):
            self.engine.begin("typed")
            self.engine.report(ReplyText(n + 1, TEXT * 2))
            self.engine.finish()
            await asyncio.sleep(0.02)
        await asyncio.sleep(1.0)
        before = time.process_time()
        await asyncio.sleep(self._seconds)
        self.idle_cpu = (time.process_time() - before) / self._seconds
        self.paints.clear()
        speaker = threading.Thread(target=self._stream)
        before = time.process_time()
        speaker.start()
        while speaker.is_alive():
            at = time.monotonic()
            await asyncio.sleep(0.005)
            self.lateness.append(time.monotonic() - at - 0.005)
        self.busy_cpu = (time.process_time() - before) / self._seconds
        await asyncio.sleep(0.2)
        self.exit()

    def _stream(self) -> None:
        begun, number = time.monotonic(), 0
        per_turn = 160
        for n in range(int(self._rate * self._seconds)):
            if n % per_turn == 0:
                self.engine.begin("typed")
                self.engine.report(StateChanged(State.THINKING), StateChanged(State.SPEAKING))
                number = self.engine.turns
            time.sleep(max(0.0, begun + n / self._rate - time.monotonic()))
            self.engine.level = 0.1 + n % 7 / 10
            self.engine.report(ReplyText(number, WORDS[n % len(WORDS)] + " "))

    def _show_reply(self, view, text) -> None:
        super()._show_reply(view, text)
        self._appended += 1

    def post_display_hook(self) -> None:
        super().post_display_hook()
        if self._view and self._view.latest and self._view.latest.painted and self._appended:
            handed_over = [self._handed_over.popleft() for _ in range(self._appended)]
            self._appended = 0
            self.when_written(lambda at: self.paints.extend(at - then for then in handed_over))


def report(app: MeasuredApp) -> dict[str, object]:
    def ms(values: list[float]) -> dict[str, float]:
        found = {f"p{p}": percentile(values, p) or 0.0 for p in (50, 95, 99, 100)}
        return {name: round(value * 1000, 1) for name, value in found.items()}

    return {
        "tokens": len(app.paints),
        "paint_ms": ms(app.paints),
        "loop_late_ms": ms(app.lateness),
        "busy_cpu": round(app.busy_cpu, 3),
        "idle_cpu": round(app.idle_cpu, 4),
    }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rate", type=float, default=200)
    options.add_argument("--turns", type=int, default=0, help="turns already on the screen")
    options.add_argument("--size", default="120x40")
    options.add_argument("--seconds", type=float, default=6)
    options.add_argument("--out", type=Path, default=Path("paint.json"))
    asked = options.parse_args()
    columns, rows = map(int, asked.size.split("x"))
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        app = MeasuredApp(asked.rate, asked.turns, asked.seconds)
        with native_stderr_in(asked.out.with_suffix(".log")):
            app.run()
        if not app.return_code:
            asked.out.write_text(json.dumps(report(app)))
        os._exit(app.return_code or 0)
    written = b""
    try:
        while piece := os.read(terminal, 65536):
            written = (written + piece)[-20_000:]
    except OSError:
        pass
    os.waitpid(child, 0)
    if not asked.out.exists():
        sys.exit(written.decode(errors="replace"))
    sys.stdout.write(asked.out.read_text() + "\n")
    asked.out.unlink()
    asked.out.with_suffix(".log").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
