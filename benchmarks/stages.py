"""Measure voxtui's own cost: every hop between two stages and the small work between them.

    python -m benchmarks.stages [--turns 60] [--json OUT]

The models are stubs that take no time. Each hop is measured in the real engine, with pauses between
tokens so that every thread has to be woken. The run is repeated beside a thread that never releases
the interpreter (as a screen that paints without pause) and beside one busy program per core.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.stubs import StubBrain
from voxtui.audio.microphone import Framer
from voxtui.audio.resampling import Resampler
from voxtui.audio.silero import PySilero
from voxtui.audio.speaker import PIECE_SECONDS
from voxtui.bench.environment import machine
from voxtui.dialogue import engine as engine_module
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import (
    FRAME_SAMPLES,
    FRAME_SECONDS,
    Frame,
    SpeechChunk,
    Token,
    UserTranscript,
)
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import Release, Talk
from voxtui.dialogue.events import Event, Loaded, ReplyText, TurnFinished
from voxtui.dialogue.protocols import StopFlag, TurnRequest
from voxtui.dialogue.speech.clauses import clauses
from voxtui.dialogue.timestamps import Timestamps
from voxtui.dialogue.turn.text_chunks import Chunker
from voxtui.settings.schema import Config, StreamingConfig
from voxtui.storage.derived_latencies import spread

TEXTS = (" Yes", " indeed", ".", " It", " is", " so", ".")
CLAUSE_TOKENS = 3
TOKEN_SECONDS = 0.004
"""Time between tokens, long enough for every thread to sleep."""

SOURCE = "stub"
DEVICE_RATE = 48_000
VOICE_RATE = 24_000

ECHO = """
import sys, time
from multiprocessing.connection import Connection
pipe = Connection(int(sys.argv[1]))
while pipe.recv():
    time.sleep(0.002)  # in place of a token being worked out: meanwhile its reader falls asleep
    pipe.send((" token", time.monotonic()))
"""
"""Code of the chat model's process. Each token carries its send time, so the pause is not measured.
"""

Times = dict[str, list[float]]
"""Seconds of each occurrence, by stage."""


class Stub(StubBrain):
    """Stub detector, brain, voice and speaker in one. They take no time."""

    def __init__(self) -> None:
        self.times: Times = defaultdict(list)
        self.at: dict[str, float] = {}

    def since(self, event: str, stage: str) -> None:
        """Record the time of `stage` from `event` until now, once per `event`."""
        begun = self.at.pop(event, None)
        if begun is not None:
            self.times[stage].append(time.monotonic() - begun)

    def begin(self, event: str) -> None:
        self.at[event] = time.monotonic()

    # A detector.

    def reset(self) -> None: ...

    def probability(self, frame: Frame) -> float:
        self.since("frame", "frame from its source to the engine")
        return float(frame.samples[0])

    # A brain.

    def reply(self, request: TurnRequest) -> Iterator[UserTranscript | Token]:
        self.since("last frame", "last frame to the brain at work")
        pause = threading.Event()
        yield UserTranscript("words")
        for count, text in enumerate(TEXTS, 1):
            pause.wait(TOKEN_SECONDS)
            if count == 1:
                self.begin("token")
            if count == CLAUSE_TOKENS:
                self.begin("clause")
            yield Token(text)

    # A voice.

    def speak(
        self, clause: str, speed: float | None = None, language: str = "en"
    ) -> Iterator[SpeechChunk]:
        self.since("clause", "last token of a clause to the voice at work")
        threading.Event().wait(TOKEN_SECONDS)
        self.begin("speech")
        yield SpeechChunk(np.zeros(VOICE_RATE, np.float32), VOICE_RATE, clause)

    # A speaker.

    def open(self) -> None: ...

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        self.since("speech", "speech to the speaker")

    def finish(self, timestamps: Timestamps, stopped: StopFlag) -> float:
        return 1.0


def hops(turns: int) -> Times:
    """Run turns through the real engine."""
    stub = Stub()
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def emit(event: Event) -> None:
        if isinstance(event, ReplyText):
            stub.since("token", "token to the screen's queue")
        events.put(event)

    engine = Engine(Models(stub, stub, stub), Config(), emit, Devices(speaker=stub))
    engine.start()
    _until(events, Loaded)
    for _ in range(turns):
        _speak(engine, stub)
        _until(events, TurnFinished)
    engine.close()
    return stub.times


def _speak(engine: Engine, stub: Stub) -> None:
    """Feed half a second of speech, release the key, and feed three frames of silence."""
    pause = threading.Event()
    speech = [1.0] * 16 + [0.0] * 3
    begin = time.monotonic() - len(speech) * FRAME_SECONDS
    turn = engine.post(Talk(begin, source=SOURCE, paced=False))
    for count, loud in enumerate(speech, 1):
        pause.wait(0.002)
        if count == 17:
            engine.post(Release(begin + 16.5 * FRAME_SECONDS, turn))
        samples = np.full(FRAME_SAMPLES, loud, np.float32)
        stub.begin("last frame" if count == 18 else "frame")
        engine.push(Frame(samples, begin + count * FRAME_SECONDS, source=SOURCE))


def _until(events: queue.SimpleQueue[Event], kind: type) -> None:
    while not isinstance(events.get(timeout=60), kind):
        pass


def pipe(count: int) -> Times:
    """Time a token from the chat model's process."""
    ours, theirs = Pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", ECHO, str(theirs.fileno())], pass_fds=[theirs.fileno()]
    )
    theirs.close()
    taken: list[float] = []
    try:
        for _ in range(count):
            ours.send(True)
            _, sent = ours.recv()
            taken.append(time.monotonic() - sent)
        ours.send(False)
    finally:
        child.wait()
        ours.close()
    return {"token from the chat model's process": taken}


def work(count: int) -> Times:
    """Time the small work between the stages, each alone."""
    random = np.random.default_rng(0)
    block = (0.1 * random.standard_normal(int(DEVICE_RATE * FRAME_SECONDS))).astype(np.float32)
    second = (0.1 * random.standard_normal(VOICE_RATE)).astype(np.float32)
    piece = second[: round(PIECE_SECONDS * VOICE_RATE)]
    resampler = Resampler(VOICE_RATE, DEVICE_RATE)
    framer, detector = Framer(DEVICE_RATE), PySilero()
    chunker = Chunker(StreamingConfig(), lambda text: None)
    frame = Frame(block[:FRAME_SAMPLES], 0.0)
    steps: dict[str, Callable[[], Any]] = {
        "32 ms of microphone: 48 kHz to a frame": lambda: framer.frames(block, time.monotonic()),
        "speech detector, a frame": lambda: detector.probability(frame),
        "chunker, a token": lambda: chunker.add(" word"),
        "clauses of a reply of seven tokens": lambda: list(clauses(iter(TEXTS))),
        "piece of speech, 24 to 48 kHz": lambda: resampler.process(piece),
        "second of speech, 24 to 48 kHz": lambda: resampler.process(second),
    }
    times: Times = {}
    for name, step in steps.items():
        step()
        times[name] = [_took(step) for _ in range(count)]
    chunker.flush()
    return times


def _took(step: Callable[[], Any]) -> float:
    began = time.monotonic()
    step()
    return time.monotonic() - began


@contextmanager
def painting() -> Generator[None]:
    """Run a thread that never releases the interpreter voluntarily."""
    ended = threading.Event()

    def paint() -> None:
        while not ended.is_set():
            sum(range(1000))

    thread = threading.Thread(target=paint)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def busy(programs: int) -> Generator[list[subprocess.Popen[bytes]]]:
    """Run `count` busy processes."""
    with ExitStack() as stack:
        started: list[subprocess.Popen[bytes]] = []
        for _ in range(programs):
            program = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(program.wait)
            stack.callback(program.kill)
            started.append(program)
        yield started


def measure(turns: int) -> dict[str, Times]:
    """Return condition -> stage -> seconds."""

    def everything() -> Times:
        return {**work(turns * 4), **hops(turns), **pipe(turns * 4)}

    found = {"alone": everything()}
    with painting():
        found["beside a painting thread"] = everything()
    cores = os.cpu_count() or 1
    with busy(cores):
        found[f"beside {cores} busy programs"] = everything()
    return found


def table(found: dict[str, Times]) -> str:
    heads = " | ".join(f"{condition}: p50 | p95" for condition in found)
    lines = [f"| ms | n | {heads} |", "|---" * (2 + 2 * len(found)) + "|"]
    for stage, alone in next(iter(found.values())).items():
        spreads = [spread(1000 * s for s in times[stage]) for times in found.values()]
        cells = " | ".join(f"{s.p50:.2f} | {s.p95:.2f}" for s in spreads if s)
        lines.append(f"| {stage} | {len(alone)} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    about = machine()
    sys.setswitchinterval(engine_module.SWITCH_SECONDS)
    found = measure(asked.turns)
    sys.stdout.write(f"{json.dumps(about)}\n{table(found)}\n")
    if asked.json:
        rounded = {
            condition: {
                stage: [round(s * 1000, 3) for s in taken] for stage, taken in times.items()
            }
            for condition, times in found.items()
        }
        asked.json.write_text(json.dumps({"machine": about, "ms": rounded}) + "\n")


if __name__ == "__main__":
    main()
