"""Measure in simulated rooms how soon a voice ends an answer, and what ends one by mistake.

    python -m benchmarks.interruptions [--answers 60] [--echo 30 100] [--reverberation 0 200 500]
                                       [--people DIRECTORY ...]

The real converter, echo canceller and speech detector run, without a device and faster than real
time, so the result does not depend on the load of the machine. Our own voice speaks the answers.
Each second one is interrupted: by a sample question, or by a WAV file of one of the directories.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
import soundfile

from tests.audio.sounds import QUESTIONS, question
from voxtui.audio.echo_canceller import EchoCanceller
from voxtui.audio.microphone import BLOCK_SECONDS, Framer
from voxtui.audio.played import Played, PlayedSegment
from voxtui.audio.resampling import resample
from voxtui.audio.silero import PySilero
from voxtui.dialogue.data import Frame
from voxtui.dialogue.listening.endpointing import VoiceBargeIn
from voxtui.dialogue.live_config import LiveConfig
from voxtui.settings.schema import Config, VadConfig
from voxtui.voices.hibari import HibariVoice

RATE = 48_000
BLOCK = round(BLOCK_SECONDS * RATE)

SENTENCES = (
    "The moon goes around the earth in about a month, and it always shows us the same side.",
    "You can boil the pasta for nine minutes, then drain it and add a little olive oil and salt.",
    "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve.",
    "Spiders have eight legs, while insects have six, and that is how you tell them apart.",
    "Sure! I would suggest a walk by the river, a good lunch, and a museum in the afternoon.",
    "A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P.",
    "Why did the chicken cross the road? Because it wanted to get to the other side of it.",
    "Photosynthesis is how plants turn water and carbon dioxide into sugar and oxygen.",
)

BEGIN_SECONDS = 0.05
"""Time from the beginning of the answer to that of the playback."""

AHEAD_SECONDS = 0.2
"""Time by which the speaker records its sound before it plays."""

PAUSE_SECONDS = 1.2
"""Length of silence between two answers."""

DEVICES_SECONDS = 0.045
"""Time that capture, decision and the end of the sound take in addition."""

DIRECT = 0.64
"""Share of an echo's energy that comes directly from the loudspeaker."""

RULES = ((130, False), (80, False), (42, False), (130, True), (80, True), (42, True), (32, True))
"""Values of `vad.interrupt_ms`, and whether faint frames are left out, as in voxtui."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer as the microphone hears it, without its echo."""

    frames: list[tuple[Frame, float]]
    """the frames, each with its probability of speech"""
    words_at: float | None
    """the time at which a voice began to interrupt it"""

    def ended(self, interrupt_ms: int, ignores_faint: bool) -> float | None:
        """Return the capture time of the frame that ends the answer, or None if none does."""
        detector = _Known()
        barge_in = VoiceBargeIn(
            detector, LiveConfig(Config(vad=VadConfig(interrupt_ms=interrupt_ms)))
        )
        for frame, detector.value in self.frames:
            louder = frame if ignores_faint else Frame(frame.samples + 1.0, frame.captured_at)
            if barge_in.interrupts(louder, 1):
                return frame.captured_at
        return None


class _Known:
    """A detector with known results."""

    value = 0.0

    def reset(self) -> None: ...

    def probability(self, frame: Frame) -> float:
        return self.value


class Room:
    """A simulated microphone that hears our own speaker, with a clock of its own."""

    def __init__(self, percent: int, reverberation_ms: int) -> None:
        self._random = np.random.default_rng(1000 * percent + reverberation_ms)
        self._volume = (percent / 100) ** 3  # as sound servers understand it
        self._reverberation = reverberation_ms / 1000
        self._played, self._detector = Played(), PySilero()
        self._framer = Framer(RATE, EchoCanceller(self._played))
        self._now = 0.0
        for _ in self._pass(np.zeros(RATE // 2, np.float32)):
            pass

    def answer(self, speech: np.ndarray, words: np.ndarray | None) -> Heard:
        """Play `speech`; a person says `words` from 2 to 5 s after its beginning."""
        begins = self._now + BEGIN_SECONDS
        segment = PlayedSegment(RATE, began_at=begins)
        delay = BEGIN_SECONDS + self._random.uniform(0.035, 0.045)
        sound = np.pad(self._volume * self._reflected(speech), (round(delay * RATE), 0))
        words_at = None
        if words is not None:
            after = 2.0 + self._random.uniform(0.0, 3.0)
            words_at, first = begins + after, round((BEGIN_SECONDS + after) * RATE)
            sound = sound[: first + 3 * RATE // 2]
            said = self._reflected(words)[: len(sound) - first]
            sound[first : first + len(said)] += said
        frames = list[tuple[Frame, float]]()
        self._detector.reset()
        for start in range(0, len(sound), BLOCK):
            ahead = min(len(speech), round((self._now + AHEAD_SECONDS - begins) * RATE))
            if ahead > segment.written:
                self._played.add(segment, speech[segment.written : ahead])
                segment.written = ahead
            for frame in self._pass(sound[start : start + BLOCK]):
                if frame.echo_free and frame.captured_at > begins:
                    frames.append((frame, self._detector.probability(frame)))
        segment.dropped_at = self._now
        for _ in self._pass(np.zeros(round(PAUSE_SECONDS * RATE), np.float32)):
            pass
        return Heard(frames, words_at)

    def _pass(self, sound: np.ndarray) -> Iterator[Frame]:
        for start in range(0, len(sound) - BLOCK + 1, BLOCK):
            self._now += BLOCK_SECONDS
            noise = 1e-4 * self._random.standard_normal(BLOCK).astype(np.float32)
            yield from self._framer.frames(sound[start : start + BLOCK] + noise, self._now)

    def _reflected(self, sound: np.ndarray) -> np.ndarray:
        """Return `sound` and its reverberation, which decays by 60 dB."""
        length = round(self._reverberation * RATE)
        if not length:
            return sound.copy()
        tail = self._random.standard_normal(length) * 10 ** (-3 * np.arange(length) / length)
        tail *= np.sqrt((1 - DIRECT) / (tail @ tail))
        tail[0] = np.sqrt(DIRECT)
        size = 1 << (len(sound) + length).bit_length()
        product = np.fft.rfft(sound, size) * np.fft.rfft(tail, size)
        return np.fft.irfft(product, size)[: len(sound)].astype(np.float32)


def people(directories: Sequence[Path]) -> Iterator[np.ndarray]:
    """Yield the speech of one voice after another, without end."""
    asked = sorted(path.stem for path in QUESTIONS.glob("*.flac"))
    loudness = np.sqrt(np.mean(question(asked[0]) ** 2))
    files = [sorted(directory.glob("*.wav")) for directory in directories]
    voices = [cycle(p for p in paths if 1.2 < soundfile.info(p).duration < 5) for paths in files]
    for name in cycle(asked):
        yield question(name, RATE)
        for voice in voices:
            sound, own = soundfile.read(next(voice), dtype="float32")
            sound *= loudness / np.sqrt(np.mean(sound**2))
            loud = np.flatnonzero(np.abs(sound) > 0.01)
            yield resample(sound[loud[0] : loud[-1]], own, RATE)


def spoken() -> list[np.ndarray]:
    voice = HibariVoice(Config().voice)
    voice.warm_up(lambda step, fraction: None)
    made = [list(voice.speak(sentence)) for sentence in SENTENCES]
    voice.close()
    sounds = [(np.concatenate([c.samples for c in chunks]), chunks[0].rate) for chunks in made]
    return [np.pad(resample(samples, rate, RATE), (0, RATE // 10)) for samples, rate in sounds]


def report(heard: Sequence[Heard]) -> None:
    """Print the result of each rule for these answers."""
    alone = sum((h.words_at or h.frames[-1][0].captured_at) - h.frames[0][0].captured_at
                for h in heard if h.frames)  # fmt: skip
    print(f"  {len(heard)} answers, {alone / 60:.1f} minutes of them alone and free of echo")
    for interrupt_ms, ignores_faint in RULES:
        wrong, late = 0, list[float]()
        for one in heard:
            at = one.ended(interrupt_ms, ignores_faint)
            if at is not None and (one.words_at is None or at <= one.words_at):
                wrong += 1
            elif one.words_at is not None:
                late.append(np.inf if at is None else at - one.words_at + DEVICES_SECONDS)
        ms = 1000 * np.array(late)
        print(
            f"  {interrupt_ms} ms{', not faint' if ignores_faint else '':11}: {wrong} by mistake; "
            f"{np.sum(ms <= 300)} of {len(ms)} within 300 ms, median {np.median(ms):.0f} ms",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--answers", type=int, default=60, help="in each room")
    parser.add_argument("--echo", type=int, nargs="+", default=[30, 100], help="percent")
    parser.add_argument("--reverberation", type=int, nargs="+", default=[0, 200, 500], help="ms")
    parser.add_argument("--people", type=Path, nargs="*", default=[])
    asked = parser.parse_args()
    sentences = spoken()
    for percent in asked.echo:
        heard, words = list[Heard](), people(asked.people)
        for reverberation in asked.reverberation:
            room, order = Room(percent, reverberation), random.Random(reverberation)
            for number in range(asked.answers):
                speech = np.concatenate(order.sample(sentences, 2))
                heard.append(room.answer(speech, next(words) if number % 2 else None))
        print(f"echo {percent} %")
        report(heard)
    return 0


if __name__ == "__main__":
    sys.exit(main())
