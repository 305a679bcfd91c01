"""Measure how the recogniser hears a name to call voxtui by.

    python -m benchmarks.name spellings --kokoro FOLDER    how it spells the name, in many voices
    python -m benchmarks.name judge --kokoro FOLDER        calls, in other voices
    python -m benchmarks.name near                         near names, in voices without Kokoro
    python -m benchmarks.name recordings FOLDER ...         other people's speech
    python -m benchmarks.name detect-judge, detect-recordings    the same by pymicro-wakeword

FOLDER of --kokoro: see benchmarks.ears_clips. Voices need espeak-ng and flite, too. Each sentence
is spoken in a room with noise. A recording is any file below FOLDER that libsndfile reads, at any
rate; of each utterance the name is looked for, and words are decoded only after one. All sound is
cut by the speech detector, faster than real time. `--part 0:500` takes so many voices or files.
The models of pymicro-wakeword get all sound, uncut, frame by frame; `--name` chooses one of them.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import onnxruntime
import silero_vad
import soundfile

from voxtui.audio.micro_wake_word import MicroWakeWord
from voxtui.audio.resampling import resample
from voxtui.brains.embedded.recogniser import Moonshine
from voxtui.commands.segmentation import Segmenter, utterances
from voxtui.dialogue.data import FRAME_SAMPLES, SAMPLE_RATE, Frame, Utterance
from voxtui.dialogue.listening.heard_words import after_name
from voxtui.settings.schema import VadConfig, VoiceConfig
from voxtui.voices.hibari import HibariVoice

DATA = Path(__file__).parents[1] / "tests" / "data" / "name"
NAME = "Hey Vox"
MODELS = ("Hey Jarvis", "Alexa", "Hey Mycroft", "Okay Nabu")

SNR_DB = 15.0
ECHO_SECONDS = 0.4

CONTEXT = 64
"""Samples before each frame that Silero also reads."""

NEAR_VOICES = ("hibari", "flite:slt", "flite:rms", "flite:awb", "espeak:en-us")


class Speakers:
    """Voices by name: `hibari`, `espeak:VOICE`, `flite:VOICE`, else one of Kokoro's."""

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
        if voice.startswith("flite:"):
            with tempfile.NamedTemporaryFile(suffix=".wav") as file:
                command = ["flite", "-voice", voice[6:], "-t", text, "-o", file.name]
                subprocess.run(command, check=True)
                samples, rate = soundfile.read(file.name, dtype="float32")
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


class WholeSilero:
    """Silero over a whole sound at once: the same weights in a twentieth of the time."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        folder = Path(silero_vad.__file__).parent / "data"
        self._model: Any = onnxruntime.InferenceSession(
            str(folder / "silero_vad_16k_sequence.onnx"), options
        )
        self._probabilities: Iterator[float] = iter(())

    def read(self, sound: np.ndarray) -> None:
        padded = np.pad(sound, (CONTEXT, 0))
        windows = np.lib.stride_tricks.sliding_window_view(padded, CONTEXT + FRAME_SAMPLES)
        state = np.zeros((1, 1, 128), np.float32)
        inputs = {"input": windows[::FRAME_SAMPLES].copy(), "h": state, "c": state}
        self._probabilities = iter(self._model.run(["speech_probs"], inputs)[0].tolist())

    def reset(self) -> None:
        pass

    def probability(self, frame: Frame) -> float:
        return next(self._probabilities)


class Ears:
    """The detector and the recogniser, with their times."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._detector, self._recogniser = WholeSilero(), Moonshine()
        self._recogniser.load()
        self.detector_s = self.recogniser_s = 0.0

    def hear(self, sound: np.ndarray) -> Iterator[str]:
        """Yield the words of each utterance."""
        for utterance in self.utterances(sound):
            yield self.words(utterance)

    def utterances(self, sound: np.ndarray) -> list[Utterance]:
        started = time.process_time()
        frames = (
            Frame(sound[at : at + FRAME_SAMPLES], at / SAMPLE_RATE)
            for at in range(0, len(sound) - FRAME_SAMPLES, FRAME_SAMPLES)
        )
        self._detector.read(sound)
        found = list(utterances(frames, Segmenter(VadConfig(), self._detector)))
        self.detector_s += time.process_time() - started
        return found

    def words(self, utterance: Utterance, cancelled: Event | None = None) -> str:
        """Return the words. If `cancelled` is set, return only the name, if they begin with it."""
        started = time.process_time()
        heard = self._recogniser.recognise(utterance.samples, cancelled, self._name)
        self.recogniser_s += time.process_time() - started
        return heard.text


def plain(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())


def spellings(speakers: Speakers, ears: Ears) -> None:
    """Print the words in the place of the name, and their frequencies."""
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


def judge(speakers: Speakers, ears: Ears, part: slice) -> None:
    calls = (DATA / "calls.txt").read_text().splitlines()
    voices = tomllib.loads((DATA / "voices.toml").read_text())["judge"]
    for number, voice in list(enumerate(voices))[part]:
        random = np.random.default_rng(number)
        heard = [" ".join(ears.hear(in_noise(speakers.speak(text, voice), random)))
                 for text in calls]  # fmt: skip
        wrong = [words for words in heard if after_name(words, NAME) is None]
        print(f"{voice:26} {len(calls) - len(wrong)} of {len(calls)}   {wrong}", flush=True)


def near(speakers: Speakers, ears: Ears, part: slice) -> None:
    sentences = (DATA / "near.txt").read_text().splitlines()
    for number, voice in list(enumerate(NEAR_VOICES))[part]:
        random = np.random.default_rng(number)
        heard = [(text, " ".join(ears.hear(in_noise(speakers.speak(text, voice), random))))
                 for text in sentences]  # fmt: skip
        taken = [
            f"{text} -> {words}" for text, words in heard if after_name(words, NAME) is not None
        ]
        print(f"{voice:26} {len(taken)} of {len(sentences)} taken   {taken}", flush=True)


def recordings(ears: Ears, files: Iterable[Path]) -> None:
    """Print the utterances that begin with the name, and the length of all speech."""
    sound_s = speech_s = 0.0
    heard, unread, false = 0, 0, list[str]()
    at_once = Event()
    at_once.set()
    for file in files:
        if (sound := read(file)) is None:
            unread += 1
            continue
        sound_s += len(sound) / SAMPLE_RATE
        for utterance in ears.utterances(np.pad(sound, SAMPLE_RATE)):
            heard += 1
            speech_s += sum(end - start for start, end in utterance.speech)
            if ears.words(utterance, at_once):
                false.append(f"{file.name}: {ears.words(utterance)}")
                print(false[-1], flush=True)
    print(f"{sound_s / 3600:.2f} h of sound, {speech_s / 3600:.2f} h of speech")
    print(f"{heard} utterances; {unread} files are no sound")
    print(f"false calls: {len(false)} {false}")
    share = (ears.detector_s / sound_s, ears.recogniser_s / sound_s)
    print(f"share of a core: detector {share[0]:.1%}, name {share[1]:.1%}")


class Detector:
    """A model of pymicro-wakeword as voxtui feeds it, with its time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._model = MicroWakeWord(name)
        self.seconds = 0.0

    def calls(self, sound: np.ndarray) -> list[float]:
        """Return the seconds at which the name ends."""
        started = time.process_time()
        ends = [
            round((at + FRAME_SAMPLES) / SAMPLE_RATE, 2)
            for at in range(0, len(sound) - FRAME_SAMPLES, FRAME_SAMPLES)
            if self._model.heard(Frame(sound[at : at + FRAME_SAMPLES], 0.0))
        ]
        self.seconds += time.process_time() - started
        return ends


def detect_judge(speakers: Speakers, detectors: list[Detector], part: slice) -> None:
    calls = (DATA / "calls.txt").read_text().splitlines()
    voices = tomllib.loads((DATA / "voices.toml").read_text())["judge"]
    for number, voice in list(enumerate(voices))[part]:
        for detector in detectors:
            random = np.random.default_rng(number)

            texts = [text.replace(NAME, detector.name) for text in calls]
            missed = [
                text for text in texts
                if not detector.calls(in_noise(speakers.speak(text, voice), random))
            ]  # fmt: skip
            count = len(calls) - len(missed)
            print(f"{voice:26} {detector.name:12} {count} of {len(calls)}   {missed}", flush=True)


def detect_recordings(detectors: list[Detector], files: Iterable[Path]) -> None:
    """Print the false calls; after Ctrl+C, those in the first files."""
    sound_s, count = 0.0, 0
    false: dict[str, list[str]] = {detector.name: [] for detector in detectors}
    with suppress(KeyboardInterrupt):
        for file in files:
            if (sound := read(file)) is None:
                continue
            for detector in detectors:
                for at in detector.calls(np.pad(sound, SAMPLE_RATE)):
                    false[detector.name].append(f"{file.name}: {at - 1:.1f}")
            sound_s += len(sound) / SAMPLE_RATE
            count += 1
    print(f"{sound_s / 3600:.2f} h of sound in {count} files")
    for detector in detectors:
        share, ends = detector.seconds / max(sound_s, 1.0), false[detector.name]
        print(f"{detector.name:12} {len(ends)} false calls, {share:.2%} of a core   {ends}")


def read(file: Path) -> np.ndarray | None:
    """Return the mono sound at 16 kHz, or None if libsndfile cannot read the file."""
    try:
        samples, rate = soundfile.read(file, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError:
        return None
    return resample(samples.mean(1), rate, SAMPLE_RATE)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    detecting = ["detect-judge", "detect-recordings"]
    parser.add_argument("what", choices=["spellings", "judge", "near", "recordings", *detecting])
    parser.add_argument("--name", action="append", choices=MODELS)
    parser.add_argument("folder", type=Path, nargs="*")
    parser.add_argument("--kokoro", type=Path)
    parser.add_argument("--part", default=":")
    options = parser.parse_args()
    part = slice(*(int(text) if text else None for text in options.part.split(":")))
    detectors = [Detector(name) for name in options.name or MODELS]
    files = (file for folder in options.folder for file in folder.rglob("*") if file.is_file())
    if options.what == "detect-recordings":
        detect_recordings(detectors, sorted(files)[part])
        return
    if options.what == "detect-judge":
        detect_judge(Speakers(options.kokoro), detectors, part)
        return
    ears = Ears("" if options.what == "spellings" else NAME)
    if options.what == "recordings":
        recordings(ears, sorted(files)[part])
        return
    speakers = Speakers(options.kokoro)
    if options.what == "spellings":
        spellings(speakers, ears)
    else:
        (judge if options.what == "judge" else near)(speakers, ears, part)


if __name__ == "__main__":
    main()
