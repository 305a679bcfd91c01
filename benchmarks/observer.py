"""Check the numbers on the screen against a recording made outside the program.

    python -m benchmarks.observer [--turns 10] [--json OUT]

The real `voxtui` runs in a pseudo-terminal with a virtual microphone and speaker. The script plays
a question into the microphone while it holds the key, records the speaker, and reads the screen
through a terminal emulator with the arrival time of each piece. Key, screen and recording share one
monotonic clock. A tone that is switched on at known moments puts the recording on that clock.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyte

from tests.audio.sounds import question
from tests.ui.pseudo_terminal import PseudoTerminal
from tests.virtual_audio import RATE, SPEAKER, Recorder, VirtualAudio
from voxtui.bench.environment import machine
from voxtui.dialogue.data import AUDIBLE
from voxtui.storage.derived_latencies import percentile

PRESS, RELEASE = "\x1b[32;1:1u", "\x1b[32;1:3u"
COLUMNS, ROWS = 120, 40
QUIT = "\x11"

QUESTION_START = 20
"""Number of characters of a line that tell a question, which the panel may cut off later."""

QUESTIONS = ("capital-of-france", "largest-planet", "days-in-a-week", "egypt", "first-month")


class Watched(PseudoTerminal):
    """A terminal whose screen can be read now and in the order of arrival.

    Output is read at once with its time and emulated later, because the emulator takes 1 ms per 300
    bytes and would delay the next read.
    """

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self._fed = 0
        self._arrived: deque[tuple[float, int]] = deque()
        """(time, end offset in the output) of each piece that is not on the screen yet"""
        super().__init__(command, size=(COLUMNS, ROWS), environment=environment)

    def _obey(self) -> None:
        self._arrived.append((time.monotonic(), len(self.output)))
        super()._obey()

    def first(self, shows: Callable[[Watched], bool]) -> float:
        """Return when the output since the last look first satisfied `shows`."""
        while self._arrived:
            at = self._show_next()
            if shows(self):
                return at
        raise AssertionError("\n".join(self.lines))

    def _show_next(self) -> float:
        at, end = self._arrived.popleft()
        self._stream.feed(bytes(self.output[self._fed : end]))
        self._fed = end
        return at

    @property
    def shown(self) -> list[str]:
        return list(self._screen.display)

    @property
    def lines(self) -> list[str]:
        """Return the screen lines after all output so far."""
        while self._arrived:
            self._show_next()
        return self.shown

    def number(self, headline: str) -> float | None:
        """Return the number that the panel shows for this turn, in ms."""
        for line in self.lines:
            if found := re.search(rf"{headline}\s+[✓✗]\s*(\d+)", line):
                return float(found[1])
        return None

    @property
    def replies(self) -> int:
        """Return how many visible answers have begun.

        While a turn moves up, half a repaint shows its question behind the name of the answer.
        """
        said = [re.match(r"\W*(You|Vox)\s+(\w.*)", line) for line in self.shown]
        words = [(match[1], match[2][:QUESTION_START]) for match in said if match]
        return sum(who == "Vox" and ("You", text) not in words for who, text in words)

    def state(self, word: str) -> bool:
        return any(word in line for line in self.lines)


@dataclass(frozen=True)
class Seen:
    """One turn seen from inside and outside, in ms from the release."""

    first_sound: float
    """the first sound on the screen"""
    sound_recorded: float
    ttft: float
    """the time to first token on the screen"""
    token_painted: float

    @property
    def sound_error(self) -> float:
        return self.first_sound - self.sound_recorded

    @property
    def paint_delay(self) -> float:
        return self.token_painted - self.ttft


@dataclass(frozen=True)
class Calibration:
    """The position of the recording on the monotonic clock, in seconds."""

    began_at: float
    """the time of its first sample"""
    uncertain: float
    """the uncertainty in seconds (±)"""
    made_at: float
    rate: float = RATE
    """the measured samples per second, because a sound device's clock differs from the computer's
    """

    def moment(self, sample: int) -> float:
        return self.began_at + sample / self.rate

    def sample(self, at: float) -> int:
        return round((at - self.began_at) * self.rate)

    def until(self, later: Calibration) -> Calibration:
        """Return the calibration for everything recorded between this one and `later`."""
        first, last = self.sample(self.made_at), later.sample(later.made_at)
        rate = (last - first) / (later.made_at - self.made_at)
        uncertain = max(self.uncertain, later.uncertain)
        return Calibration(self.made_at - first / rate, uncertain, self.made_at, rate)


def calibrate(audio: VirtualAudio, recorder: Recorder, clicks: int = 20) -> Calibration:
    """Switch a tone on repeatedly; it is audible from the server's next block on.

    The true time of each edge lies between the command and its return plus one block. The start of
    the recording lies in the intersection of these intervals.
    """
    tone = np.tile(np.sign(np.sin(np.arange(48) * 2 * np.pi / 48)) * 0.5, 48 * 1000)
    path = audio.wav(tone.astype(np.float32), RATE)
    playing = subprocess.Popen(
        ["paplay", f"--device={SPEAKER}", "--latency-msec=20", str(path)], env=audio.environ
    )
    edges: list[tuple[int, float, float]] = []
    began, pieces = time.monotonic(), recorder.pieces
    try:
        threading.Event().wait(0.5)
        for _ in range(clicks):
            audio.mute(True)
            quiet_from = time.monotonic() + 0.1
            recorder.until(quiet_from + 0.1)
            before, after = audio.mute(False)
            recorder.until(after + 0.1)
            start = recorder.index(quiet_from)
            loud = np.flatnonzero(np.abs(recorder.samples[start:]) > AUDIBLE)
            edges.append((start + int(loud[0]), before, after))
    finally:
        playing.terminate()
        playing.wait()
        audio.mute(False)
    earliest = max(before - edge / RATE for edge, before, _ in edges)
    block = recorder.block(since=pieces)
    bounds = [after + block - edge / RATE for edge, _, after in edges]
    # One before that was heard later than from the next block on: the machine was busy.
    latest = min(bound for bound in bounds if bound >= earliest)
    made_at = (began + time.monotonic()) / 2
    return Calibration((earliest + latest) / 2, (latest - earliest) / 2, made_at)


def observe(
    state: Path, turns: int, arguments: tuple[str, ...] = ()
) -> tuple[Calibration, list[Seen]]:
    """Run `voxtui`, hold `turns` turns and quit. Its files go to the directory `state`."""
    command = [sys.executable, "-m", "voxtui", "--set", "generation.max_new_tokens=24"]
    command += ["--set", "ui.panel=lab", *arguments]
    with (
        VirtualAudio() as audio,
        Watched(
            command, {**audio.env, "XDG_STATE_HOME": str(state), "COLORTERM": "truecolor"}
        ) as terminal,
    ):
        terminal.until(lambda: terminal.state("READY"))
        with audio.record() as recorder:
            before = calibrate(audio, recorder)
            watched = [
                _turn(audio, terminal, recorder, before, QUESTIONS[n % len(QUESTIONS)])
                for n in range(turns)
            ]
            calibration = before.until(calibrate(audio, recorder))
        terminal.send(QUIT)
        terminal.ends()
    return calibration, [turn(calibration) for turn in watched]


def _turn(
    audio: VirtualAudio,
    terminal: Watched,
    recorder: Recorder,
    before: Calibration,
    name: str,
) -> Callable[[Calibration], Seen]:
    """Return the turn on the calibrated clock; `before` is the estimate from before the turns."""
    terminal.until(lambda: terminal.state("READY"))
    if terminal.replies:  # a new conversation: the screen holds one answer at a time
        terminal.send("\x0e")
        terminal.until(lambda: terminal.lines and terminal.replies == 0)
    terminal.send(PRESS)
    audio.say(question(name)).wait()
    shown_before = len(terminal.output)
    released = terminal.send(RELEASE)
    terminal.until(lambda: terminal.output.find(b"READY", shown_before) >= 0)
    token_painted = terminal.first(lambda screen: screen.replies > 0) - released
    terminal.until(lambda: terminal.state("READY"))
    recorder.until(time.monotonic() + 0.1)
    start = before.sample(released)
    loud = start + int(np.flatnonzero(np.abs(recorder.samples[start:]) > AUDIBLE)[0])
    terminal.until(lambda: terminal.number("First sound") is not None)
    sound, ttft = terminal.number("First sound"), terminal.number("TTFT")
    assert sound is not None and ttft is not None, "\n".join(terminal.lines)
    return lambda calibration: Seen(
        sound, (calibration.moment(loud) - released) * 1000, ttft, token_painted * 1000
    )


SOUND_MS = 15.0
ONE_PAINT_MS = 1000 / 60


def report(calibration: Calibration, seen: list[Seen]) -> dict[str, Any]:
    errors = [turn.sound_error for turn in seen]
    delays = [turn.paint_delay for turn in seen]
    return {
        "turns": len(seen),
        "calibration_uncertain_ms": round(calibration.uncertain * 1000, 2),
        "recorder_ahead_of_the_clock_ppm": round((calibration.rate / RATE - 1) * 1e6),
        "first_sound_shown_minus_recorded_ms": _spread(errors, SOUND_MS),
        "first_token_painted_minus_shown_ttft_ms": _spread(delays, ONE_PAINT_MS),
        "seen": [asdict(turn) for turn in seen],
    }


def _spread(values: list[float], limit: float) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 1),
        "p95_of_size": round(percentile([abs(value) for value in values], 95) or 0.0, 1),
        "least": round(min(values), 1),
        "most": round(max(values), 1),
        "limit": round(limit, 1),
        "within": sum(abs(value) <= limit for value in values),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    about = machine()
    arguments = ("--set", f"brain.embedded.model={asked.model}")
    found = report(*observe(Path("build/observer"), asked.turns, arguments))
    for name, value in found.items():
        lines = value if isinstance(value, list) else [value]
        sys.stdout.write(f"{name}: " + "\n  ".join(map(str, lines)) + "\n")
    if asked.json:
        asked.json.write_text(json.dumps({"machine": about, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
