"""Look for growth over many turns or over a long open microphone, and print a report.

python -m benchmarks.soak turns 1000        # no pacing, no voice; the smallest chat model
python -m benchmarks.soak listen 3600       # seconds, on a virtual sound server of its own
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.fakes import ScriptedBrain
from tests.virtual_audio import MICROPHONE, RATE, SAID, VirtualAudio
from voxtui.audio.clips import load_clip
from voxtui.audio.microphone import SounddeviceMicrophone
from voxtui.audio.silero import PySilero
from voxtui.bench.environment import machine
from voxtui.brains.embedded.embedded_brain import EmbeddedBrain
from voxtui.commands.headless import headless
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import FRAME_SECONDS, SAMPLE_RATE, Frame
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.events import Event, Loaded
from voxtui.dialogue.timestamps import Outcome
from voxtui.settings.schema import BrainConfig, Config, EmbeddedBrainConfig, GenerationConfig
from voxtui.wiring import sample_clips

SETTLED = 0.2
"""Share of the turns after which one-time allocations are done."""


@dataclass
class Sample:
    """Resources of the process and its children at one moment."""

    turn: int
    megabytes: float
    threads: int
    files: int

    @classmethod
    def now(cls, turn: int) -> Sample:
        gc.collect()
        this = psutil.Process()
        family = [this, *this.children(recursive=True)]
        # Without file pages, because the kernel decides how many pages of the model stay in memory.
        infos = [process.memory_info() for process in family]
        memory = sum(info.rss - info.shared for info in infos)
        return cls(turn, memory / 1e6, sum(p.num_threads() for p in family),
                   sum(p.num_fds() for p in family))  # fmt: skip


@dataclass
class Continuity:
    """A detector that records every frame that does not continue the previous one."""

    detector: Any
    frames: int = 0
    lost: int = 0
    _last: float | None = None

    def reset(self) -> None:
        self._last = None
        self.detector.reset()

    def probability(self, frame: Frame) -> float:
        self.frames += 1
        if self._last is not None and abs(frame.captured_at - self._last - FRAME_SECONDS) > 1e-6:
            self.lost += 1
        self._last = frame.captured_at
        return self.detector.probability(frame)


@dataclass
class Soaked:
    turns: int
    seconds: float
    answered: int
    frames: int
    lost_frames: int
    samples: list[Sample] = field(default_factory=list)

    def _settled(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.turn >= SETTLED * self.turns]

    @property
    def megabytes_per_1000(self) -> float:
        """Return the slope of a line fitted to the memory of the settled turns."""
        settled = self._settled()
        turns, memory = [s.turn for s in settled], [s.megabytes for s in settled]
        return float(np.polyfit(turns, memory, 1)[0]) * 1000

    @property
    def more_threads(self) -> int:
        settled = self._settled()
        return settled[-1].threads - settled[0].threads

    @property
    def more_files(self) -> int:
        settled = self._settled()
        return settled[-1].files - settled[0].files


def turns(
    count: int, make_engine: Callable[[Callable[[Event], object], Any], Engine], every: int
) -> Soaked:
    """Hold `count` turns of one conversation over the sample clips without pacing."""
    clips = [load_clip(path, 120.0) for _, path in sample_clips()]
    continuity = Continuity(PySilero())
    begin, answered, samples = time.monotonic(), 0, []
    with headless(lambda emit: make_engine(emit, continuity)) as asked:
        for number in range(count):
            turn = asked.ask(clips[number % len(clips)], paced=False)
            answered += turn.outcome is Outcome.ANSWERED
            if (number + 1) % every == 0:
                samples.append(Sample.now(number + 1))
                sys.stderr.write(f"\r{number + 1}/{count}")
    sys.stderr.write("\n")
    seconds = time.monotonic() - begin
    return Soaked(count, seconds, answered, continuity.frames, continuity.lost, samples)


def embedded(emit: Callable[[Event], object], detector: Any) -> Engine:
    """Build an engine on the embedded brain with the smallest model, short answers and no voice."""
    config = Config(
        brain=BrainConfig(embedded=EmbeddedBrainConfig(model="smollm2-135m")),
        generation=GenerationConfig(max_new_tokens=8),
    )
    return Engine(Models(detector, EmbeddedBrain(config)), config, emit)


class Watched(SounddeviceMicrophone):
    """A microphone that inspects its frames before passing them on."""

    def __init__(self, device: str, look: Callable[[Frame], object]) -> None:
        super().__init__(device)
        self._look = look

    def open(self, sink: Callable[[Frame], None], lost: Callable[[str], None]) -> None:
        def both(frame: Frame) -> None:
            self._look(frame)
            sink(frame)

        super().open(both, lost)

    def attend(self, attended: bool) -> None:
        """Deliver every frame, because each is inspected."""


@dataclass
class Clicks:
    """Clicks found in a stream of frames, by sample count and by frame time."""

    samples: int = 0
    uneven: int = 0
    """the number of frames that are not 32 ± 10 ms after the previous one"""
    first: float | None = None
    last: float = 0.0
    clicks: list[tuple[float, float]] = field(default_factory=list)
    """(seconds by sample count, monotonic seconds by frame time) of each click"""

    def look(self, frame: Frame) -> None:
        if self.first is not None and abs(frame.captured_at - self.last - FRAME_SECONDS) > 0.01:
            self.uneven += 1
        self.first = self.first or frame.captured_at
        self.last = frame.captured_at
        loud = np.flatnonzero(np.abs(frame.samples) > 0.2)
        if len(loud):
            counted = (self.samples + int(loud[0])) / SAMPLE_RATE
            if not self.clicks or counted - self.clicks[-1][0] > 1:
                dated = frame.captured_at - FRAME_SECONDS + int(loud[0]) / SAMPLE_RATE
                self.clicks.append((counted, dated))
        self.samples += len(frame.samples)


def listen(seconds: float, pause: float = 10.0) -> dict[str, Any]:
    """Keep the microphone open and play a click at intervals, which a recorder captures as well."""
    heard, loaded = Clicks(), threading.Event()
    click = np.zeros(320, np.float32)
    click[:160] = 0.8
    with VirtualAudio() as audio, audio.environment():
        engine = Engine(
            Models(PySilero(), ScriptedBrain()),
            Config(),
            lambda event: loaded.set() if isinstance(event, Loaded) else None,
            Devices(microphone=Watched(MICROPHONE, heard.look)),
        )
        engine.start()
        assert loaded.wait(60)
        with audio.record(SAID) as recorder:
            before, end = psutil.Process().num_threads(), time.monotonic() + seconds
            cpu = time.process_time()
            while time.monotonic() < end:
                audio.say(click, ahead_ms=20).wait()  # 500 scatters the dates
                threading.Event().wait(pause)
            cpu = (time.process_time() - cpu) / seconds
            after = psutil.Process().num_threads()
            recorded = recorder.stop()
        engine.close()
    outside = _clicks(recorded)
    return listened(heard, outside, recorder.began_at) | {
        "seconds": seconds,
        "more_threads": after - before,
        "cpu_share": round(cpu, 4),
    }


def _clicks(recorded: np.ndarray) -> list[float]:
    """Return the time of each click in a recording, in seconds."""
    loud = np.flatnonzero(np.abs(recorded) > 0.2) / RATE
    return [float(at) for n, at in enumerate(loud) if not n or at - loud[n - 1] > 1]


def listened(heard: Clicks, outside: list[float], began_at: float) -> dict[str, Any]:
    """Compare both recordings of the same clicks: a difference is lost sound or clock drift."""
    pairs = [
        (inside, at)
        for inside in heard.clicks
        for at in outside
        if abs(inside[1] - began_at - at) < 0.5
    ]
    counted = np.array([inside[0] - at for inside, at in pairs])
    dated = np.array([inside[1] - began_at - at for inside, at in pairs])
    times = np.array([at for _, at in pairs])
    return {
        "frames": heard.samples // 512,
        "frames_out_of_time": heard.uneven,
        "clicks": len(pairs),
        "clicks_heard_by_one_only": len(heard.clicks) + len(outside) - 2 * len(pairs),
        "lost_or_gained_ms": round(float(np.ptp(counted)) * 1000, 3),
        "date_error_ms": {
            "first": round(float(dated[0]) * 1000, 2),
            "last": round(float(dated[-1]) * 1000, 2),
            "spread": round(float(np.ptp(dated)) * 1000, 2),
        },
        "count_drift_ppm": round(float(np.polyfit(times, counted, 1)[0]) * 1e6, 2),
        "date_drift_ppm": round(float(np.polyfit(times, dated, 1)[0]) * 1e6, 2),
    }


def report(soaked: Soaked) -> dict[str, Any]:
    first, last = soaked.samples[0], soaked.samples[-1]
    return {
        "turns": soaked.turns,
        "seconds": round(soaked.seconds, 1),
        "answered": soaked.answered,
        "frames": soaked.frames,
        "lost_frames": soaked.lost_frames,
        "megabytes": [round(first.megabytes, 1), round(last.megabytes, 1)],
        "megabytes_per_1000_settled_turns": round(soaked.megabytes_per_1000, 2),
        "threads": [first.threads, last.threads],
        "files": [first.files, last.files],
        "samples": [vars(sample) for sample in soaked.samples],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["turns", "listen"])
    parser.add_argument("count", type=float)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    about = machine()
    if asked.what == "turns":
        found = report(turns(int(asked.count), embedded, every=20))
    else:
        found = listen(asked.count)
    shown = {name: value for name, value in found.items() if name != "samples"}
    sys.stdout.write("\n".join(f"{name}: {value}" for name, value in shown.items()) + "\n")
    if asked.json:
        asked.json.write_text(json.dumps({"machine": about, asked.what: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
