"""Measure how the recogniser hears a name to call voxtui by.

    python -m benchmarks.name spellings --kokoro FOLDER    how it spells the name, in many voices
    python -m benchmarks.name judge --kokoro FOLDER        calls and near names, in other voices
    python -m benchmarks.name speech TEXT [--hours 2]      other people's speech

FOLDER: see benchmarks.ears_clips. Besides it needs espeak-ng. Each sentence is spoken in a room
with noise, cut by the speech detector, and recognised, faster than real time. TEXT is a file of
English sentences, which hibari and espeak's voices speak in turn.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile

from voxtui.audio.resampling import resample
from voxtui.audio.silero import PySilero
from voxtui.brains.embedded.recogniser import Moonshine
from voxtui.commands.segmentation import Segmenter, utterances
from voxtui.dialogue.data import FRAME_SAMPLES, SAMPLE_RATE, Frame
from voxtui.dialogue.listening.name import after_name
from voxtui.settings.schema import VadConfig, VoiceConfig
from voxtui.voices.hibari import HibariVoice

DATA = Path(__file__).parents[1] / "tests" / "data" / "name"
NAME = "Hey Vox"
SNR_DB = 15.0
ECHO_SECONDS = 0.4
ESPEAK = ("espeak:en-us", "espeak:en-gb+f3", "espeak:en-us+m3", "espeak:en-gb-scotland+f2")


class Speakers:
    """Voices by name: `hibari`, `espeak:VOICE`, else one of Kokoro's."""

    def __init__(self, kokoro: Path | None) -> None:
        self._hibari = HibariVoice(VoiceConfig())
        self._hibari.warm_up(lambda step, fraction: None)
        self._kokoro = None
        if kokoro:
            from benchmarks.ears_clips import Kokoro

            self._kokoro = Kokoro(kokoro)

    def speak(self, text: str, voice: str, speed: float = 1.0) -> np.ndarray:
        if voice == "hibari":
            chunks = list(self._hibari.speak(text, speed))
            samples = np.concatenate([chunk.samples for chunk in chunks])
            return resample(samples, chunks[0].rate, SAMPLE_RATE)
        if voice.startswith("espeak:"):
            words = f"{round(160 * speed)}"
            command = ["espeak-ng", "-v", voice[7:], "-s", words, "--stdout", text]
            wav = subprocess.run(command, check=True, capture_output=True).stdout
            samples, rate = soundfile.read(io.BytesIO(wav), dtype="float32")
            return resample(samples, rate, SAMPLE_RATE)
        assert self._kokoro
        return self._kokoro.speak(text, voice, speed)


def in_noise(samples: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the speech in a room, between pauses, with noise as of a fan and of a television."""
    from benchmarks.ears_clips import in_room, noise

    response = in_room(np.eye(1, 1, dtype=np.float32)[0], ECHO_SECONDS, random)
    size = len(samples) + len(response)
    room = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(response, size), size)
    sound = np.pad(room, (SAMPLE_RATE // 2, SAMPLE_RATE))
    added = noise("hum", len(sound), samples, random) / 2
    added = added / np.std(added) + random.normal(0, 0.5, len(sound))
    added *= np.std(samples) / np.std(added) * 10 ** (-SNR_DB / 20)
    sound = sound + added
    return (0.3 * sound / np.abs(sound).max()).astype(np.float32)


class Ears:
    """The detector and the recogniser, with the time that they took."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._detector, self._recogniser = PySilero(), Moonshine()
        self._recogniser.load()
        self.detector_s = self.recogniser_s = 0.0

    def hear(self, sound: np.ndarray) -> Iterator[str]:
        started = time.process_time()
        frames = (
            Frame(sound[at : at + FRAME_SAMPLES], at / SAMPLE_RATE)
            for at in range(0, len(sound) - FRAME_SAMPLES, FRAME_SAMPLES)
        )
        found = list(utterances(frames, Segmenter(VadConfig(), self._detector)))
        self.detector_s += time.process_time() - started
        for utterance in found:
            started = time.process_time()
            text = self._recogniser.recognise(utterance.samples, name=self._name).text
            self.recogniser_s += time.process_time() - started
            yield text


def plain(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())


def spellings(speakers: Speakers, ears: Ears) -> None:
    """Print what stands in the place of the name, and how often."""
    voices = tomllib.loads((DATA / "voices.toml").read_text())["spellings"]
    random = np.random.default_rng(0)
    questions = ("what is the time?", "how old is the moon?", "tell me a story.")
    heard: Counter[str] = Counter()
    for number, voice in enumerate(voices):
        for question in (questions[number % 3], ""):
            samples = speakers.speak(f"{NAME}, {question}", voice, random.uniform(0.9, 1.2))
            for sound in (in_noise(samples, random), np.pad(samples, SAMPLE_RATE)):
                words = plain(" ".join(ears.hear(sound.astype(np.float32))))
                first, *_ = plain(question) or [""]
                end = words.index(first) if first in words else 2 if first else len(words)
                heard[" ".join(words[:end])] += 1
    for spelling, count in heard.most_common():
        print(f"{count:4} {spelling}")


def judge(speakers: Speakers, ears: Ears) -> None:
    voices = tomllib.loads((DATA / "voices.toml").read_text())["judge"]
    random = np.random.default_rng(1)
    calls, near = ((DATA / name).read_text().splitlines() for name in ("calls.txt", "near.txt"))
    missed: Counter[str] = Counter()
    for voice in voices:
        heard = [" ".join(ears.hear(in_noise(speakers.speak(text, voice), random)))
                 for text in calls]  # fmt: skip
        wrong = [words for words in heard if after_name(words, NAME) is None]
        missed[voice] = len(wrong)
        print(f"{voice:26} {len(calls) - len(wrong)} of {len(calls)}   {wrong}", flush=True)
    whole = sum(2 * count < len(calls) for count in missed.values())
    print(f"voices that are recognised more often than not: {whole} of {len(voices)}")
    print(f"calls: {len(calls) * len(voices) - missed.total()} of {len(calls) * len(voices)}")
    taken: Counter[str] = Counter()
    for voice in ("hibari", *ESPEAK):
        for text in near:
            words = " ".join(ears.hear(in_noise(speakers.speak(text, voice), random)))
            if after_name(words, NAME) is not None:
                taken[f"{text} -> {words}"] += 1
    print(f"near names taken: {taken.total()} of {len(near) * (1 + len(ESPEAK))}")
    for text, count in taken.most_common():
        print(f"{count:4} {text}")


def speech(speakers: Speakers, ears: Ears, file: Path, hours: float) -> None:
    sentences = [line for line in file.read_text().splitlines() if line.strip()]
    voices = ("hibari", *ESPEAK)
    random = np.random.default_rng(2)
    seconds, number, false = 0.0, 0, list[str]()
    while seconds < hours * 3600 and number * 4 < len(sentences):
        text = " ".join(sentences[number * 4 : number * 4 + 4])
        sound = in_noise(speakers.speak(text, voices[number % len(voices)]), random)
        seconds += len(sound) / SAMPLE_RATE
        number += 1
        for words in ears.hear(sound):
            if not number % 100:
                print(number, f"{seconds:.0f} s", len(false), flush=True)
            if after_name(words, NAME) is not None:
                false.append(words)
    share = (ears.detector_s / seconds, ears.recogniser_s / seconds)
    print(f"{seconds / 3600:.2f} h, {number} passages, false calls: {len(false)} {false}")
    print(f"share of a core: detector {share[0]:.1%}, recogniser {share[1]:.1%} (one pass)")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["spellings", "judge", "speech"])
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("--kokoro", type=Path)
    parser.add_argument("--hours", type=float, default=2.0)
    options = parser.parse_args()
    speakers = Speakers(options.kokoro)
    ears = Ears("" if options.what == "spellings" else NAME)
    if options.what == "spellings":
        spellings(speakers, ears)
    elif options.what == "judge":
        judge(speakers, ears)
    else:
        speech(speakers, ears, options.text, options.hours)


if __name__ == "__main__":
    main()
