"""Measure how soon and how completely queued speech is audible on a virtual device.

    python -m benchmarks.sweep [--turns 20] [--periods 5,10,20,50]
        [--depths 20,40,100,200] [--busy 2]

The speaker is voxtui's own; only the device period and the amount of sound written ahead vary. The
recorder asks for blocks of 50 ms, because short blocks would speed up the server for everyone.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np

from benchmarks.observer import calibrate
from benchmarks.stages import busy
from tests.virtual_audio import RATE, SPEAKER, VirtualAudio
from voxtui.audio import played
from voxtui.audio import speaker as speakers
from voxtui.audio.speaker import SounddeviceSpeaker
from voxtui.bench.environment import machine
from voxtui.dialogue.data import AUDIBLE, SpeechChunk
from voxtui.dialogue.timestamps import Milestone, Timestamps

CLAUSE_SECONDS = 0.8
VOICE_RATE = 24_000
RECORDED_MS = 100
"""Recorded milliseconds: two blocks of 50 ms."""

STALL_SECONDS = 0.03
"""Time for which a thread holds the interpreter at once."""


@dataclass
class Heard:
    """One clause in the recording, in ms."""

    sound: float
    """the time from `play` to the sound in the recording"""
    error: float
    """`first_sound` minus the sound in the recording"""
    gaps: int


def clause() -> np.ndarray:
    """Return a tone that is loud from its first to its last sample, without 1 ms of silence."""
    at = np.arange(round(CLAUSE_SECONDS * VOICE_RATE)) / VOICE_RATE
    return (0.4 * np.cos(2 * np.pi * 1000 * at)).astype(np.float32)


def measure(period: float, depth: float, turns: int) -> list[Heard]:
    settings = {"PERIOD_SECONDS": period, "DEEP_SECONDS": depth}
    with ExitStack() as stack:
        for name, value in settings.items():
            stack.enter_context(patch.object(speakers, name, value))
        stack.enter_context(patch.object(played, "PERIOD_SECONDS", period))
        audio = stack.enter_context(VirtualAudio())
        stack.enter_context(audio.environment())
        recorder = stack.enter_context(audio.record(latency_ms=RECORDED_MS))
        calibration = calibrate(audio, recorder)
        speaker = SounddeviceSpeaker(SPEAKER)
        speaker.open()
        stack.callback(speaker.close)
        random = np.random.default_rng(0)
        heard: list[Heard] = []
        for _ in range(turns):
            recorder.until(time.monotonic() + 0.4 + 0.1 * random.random())
            timestamps, handed_over = Timestamps(), time.monotonic()
            speaker.play(SpeechChunk(clause(), VOICE_RATE, ""), timestamps, threading.Event())
            speaker.finish(timestamps, threading.Event())
            recorder.until(time.monotonic() + 0.2)
            start = calibration.sample(handed_over)
            loud = np.flatnonzero(np.abs(recorder.samples[start:]) > AUDIBLE)
            sound = calibration.moment(start + int(loud[0]))
            gaps = int(np.count_nonzero(np.diff(loud) > RATE / 1000))
            marked = timestamps.at(Milestone.FIRST_SOUND)
            assert marked is not None
            heard.append(Heard((sound - handed_over) * 1000, (marked - sound) * 1000, gaps))
    return heard


@contextmanager
def holding(wanted: bool) -> Iterator[None]:
    """Run a thread in this process that holds the interpreter."""
    ended = threading.Event()
    holder = threading.Thread(target=_hold, args=(ended,))
    if wanted:
        holder.start()
    try:
        yield
    finally:
        ended.set()
        if wanted:
            holder.join()


def _hold(ended: threading.Event) -> None:
    """Run a long native step that holds the interpreter lock, at intervals."""
    numbers = list(range(400_000))
    while not ended.wait(STALL_SECONDS):
        began = time.monotonic()
        while time.monotonic() - began < STALL_SECONDS:
            numbers.sort(key=None, reverse=True)


def row(period: float, depth: float, heard: list[Heard]) -> str:
    sounds = np.array([one.sound for one in heard])
    errors = np.array([one.error for one in heard])
    return (
        f"| {period * 1000:.0f} ms | {depth * 1000:.0f} ms | {len(heard)} "
        f"| {np.median(sounds):.1f} | {np.percentile(sounds, 95):.1f} | {sounds.max():.1f} "
        f"| {np.median(errors):+.1f} | {errors.min():+.1f} to {errors.max():+.1f} "
        f"| {sum(one.gaps for one in heard)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--periods", default="5,10,20,50")
    parser.add_argument("--depths", default="20,40,100,200")
    parser.add_argument("--busy", type=int, default=0, help="programs that never rest beside it")
    asked = parser.parse_args()
    write = sys.stdout.write
    write(json.dumps(machine()) + "\n")
    write("| taken at a time | kept ahead | n | sound p50 | p95 | max | mark p50 | mark | gaps |\n")
    write("|---" * 9 + "|\n")
    with busy(asked.busy), holding(asked.busy > 0):
        for depth in [int(ms) / 1000 for ms in asked.depths.split(",")]:
            for period in [int(ms) / 1000 for ms in asked.periods.split(",")]:
                if 2 * period <= depth:
                    write(row(period, depth, measure(period, depth, asked.turns)) + "\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
