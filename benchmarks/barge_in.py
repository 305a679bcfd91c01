"""Measure the time from the key's byte in the terminal to silence on a virtual sound device.

    python -m benchmarks.barge_in [--turns 40]

The whole screen runs on a pseudo-terminal with the real engine and the real speaker. Stub brain and
voice speak an endless tone. The script writes the key's byte to the terminal at random times and
records the speaker from outside. Silence begins after the last sample above -50 dBFS.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.fakes import FakeMicrophone, LoudIsSpeech, ScriptedBrain
from tests.ui.pseudo_terminal import PseudoTerminal
from tests.virtual_audio import RATE, SPEAKER, VirtualAudio
from voxtui.audio.speaker import SounddeviceSpeaker
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import AUDIBLE, SpeechChunk
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import SendText
from voxtui.dialogue.protocols import Progress
from voxtui.session import clip_player
from voxtui.settings.schema import Config
from voxtui.storage.derived_latencies import percentile
from voxtui.terminal.native_stderr import native_stderr_in
from voxtui.ui.app import VoxtuiApp

DOWN, UP, SAMPLE = "\x1b[32;1:1;32u", "\x1b[32;1:3u", "1"
SETTLED_SECONDS = 0.6
"""Time after the key in which sound counts as late."""


class Tone:
    """A stub voice that speaks 60 s of a tone."""

    name = "tone"

    def warm_up(self, progress: Progress) -> None: ...

    def speak(
        self, clause: str, speed: float | None = None, language: str = "en"
    ) -> Iterator[SpeechChunk]:
        second = 0.3 * np.sin(np.arange(24_000) * 2 * np.pi * 440 / 24_000).astype(np.float32)
        for _ in range(60):
            yield SpeechChunk(second, 24_000, clause)
            clause = ""

    def close(self) -> None: ...


def screen() -> None:
    """Run the screen: the program in the pseudo-terminal."""

    def make_engine(emit):
        return Engine(
            Models(LoudIsSpeech(), ScriptedBrain(*([["A very long story."]] * 1000)), Tone()),
            Config(),
            emit,
            Devices(FakeMicrophone(), SounddeviceSpeaker(SPEAKER)),
        )

    with native_stderr_in(Path(os.devnull)):
        clips = [("tell me", Path())]

        def open_clip(path, max_seconds):
            return lambda listener, stopped: listener.post(SendText("tell me"))

        clip_player.open_clip = open_clip
        app = VoxtuiApp(make_engine, Config(), clips)
        app.run()
        app.session.close()


def measure(turns: int) -> list[float]:
    """Return the seconds from the key to silence for each turn."""
    uneven = random.Random(1)
    with VirtualAudio() as audio, tempfile.TemporaryDirectory() as state:
        environment = audio.env | {"XDG_STATE_HOME": state}
        command = [sys.executable, "-m", "benchmarks.barge_in", "--screen"]
        with PseudoTerminal(command, environment=environment) as terminal:
            terminal.until(lambda: b"READY" in terminal.output)
            with audio.record() as recorder:
                return [_one(terminal, recorder, 0.4 + uneven.random()) for _ in range(turns)]


def _one(terminal, recorder, after: float) -> float:
    said = time.monotonic()
    terminal.send(SAMPLE)
    terminal.until(lambda: _loud_since(recorder, said))
    threading.Event().wait(after)
    pressed = terminal.send(DOWN)
    terminal.send(UP)
    recorder.until(pressed + SETTLED_SECONDS)
    loud = np.flatnonzero(np.abs(recorder.since(said)) > AUDIBLE)
    return recorder.index(said) / RATE + int(loud[-1]) / RATE + recorder.began_at - pressed


def _loud_since(recorder, at: float) -> bool:
    return bool((np.abs(recorder.since(at)) > AUDIBLE).any())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--screen", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.screen:
        screen()
        return
    silent = [seconds * 1000 for seconds in measure(asked.turns)]
    found = {f"p{p}_ms": round(percentile(silent, p) or 0, 1) for p in (50, 95, 99)}
    print(json.dumps({"turns": len(silent), **found, "max_ms": round(max(silent), 1)}))


if __name__ == "__main__":
    main()
