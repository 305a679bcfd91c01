"""Sound files as utterances: read, checked, and spoken in real time as if into a microphone."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from voxtui.audio.resampling import Resampler
from voxtui.dialogue.data import FRAME_SAMPLES, FRAME_SECONDS, OWN_SOURCES, SAMPLE_RATE, Frame
from voxtui.errors import InputError

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

BLOCK_SAMPLES = 131_072

RATES = range(1000, 384_001)
"""Hz. A file that says otherwise is damaged: a rate in the millions would make hours of memory of
a second."""

NO_SOUND_FILE = "is not a sound file that can be read"

NOT_PIPED = "Write the sound to a file first."

SILENT_FRAMES = 7
"""Frames of zeros after a clip: speech that reaches its very end is listened to for 200 ms more."""


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """A sound file as mono float32 at 16 kHz."""

    name: str
    samples: Samples
    """shape (n,), in [-1, 1]"""

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE


def load_clip(path: Path, max_seconds: float) -> Clip:
    """Read any format libsndfile knows, mixed to one channel.

    Raises InputError, one sentence naming the file; one longer than `max_seconds` is refused too.
    """
    # Not to be mistaken for the microphone, the keyboard or a replay.
    name = f"./{path.name}" if path.name in OWN_SOURCES else path.name
    return Clip(name, np.concatenate([*pieces(path, max_seconds)]))


def check_clip(path: Path) -> None:
    """Raises InputError, as far as the beginning of the file tells."""
    next(pieces(path, math.inf))


def pieces(path: Path, max_seconds: float) -> Iterator[Samples]:
    """What `load_clip` reads, a few seconds at a time: memory is bounded whatever the length."""
    _check_file(path)
    found = False
    for piece in _read(path, max_seconds):
        if not np.isfinite(piece).all():
            raise InputError(f"{path}: holds samples that are not numbers.")
        found = found or len(piece) > 0
        yield piece.clip(-1, 1)
    if not found:
        raise InputError(f"{path}: holds no sound.")


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path}: is a directory, not a sound file.")
    if not path.exists():
        raise InputError(f"{path}: there is no such file.", NOT_PIPED if str(path) == "-" else "")
    if not path.is_file():
        raise InputError(f"{path}: is a pipe or a device, not a sound file.", NOT_PIPED)
    if not os.access(path, os.R_OK):
        raise InputError(f"{path}: may not be read.")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: is empty.")


def _read(path: Path, max_seconds: float) -> Iterator[Samples]:
    import soundfile

    read, name = 0, cast("Any", os.fsencode(path))  # need not be text
    try:
        with soundfile.SoundFile(name) as file:
            _check_rate(path, file.samplerate)
            _check_length(path, file.frames / file.samplerate, max_seconds)
            for piece in _mono(path, file, max_seconds):
                yield piece
                read += len(piece)
    except (soundfile.LibsndfileError, OSError, ValueError) as error:
        what = f"is damaged after {read / SAMPLE_RATE:.0f} s" if read else NO_SOUND_FILE
        raise InputError(f"{path}: {what}.") from error


def _check_rate(path: Path, rate: int) -> None:
    if rate not in RATES:
        raise InputError(f"{path}: claims {rate} samples a second, so it is damaged.")


def _check_length(path: Path, seconds: float, max_seconds: float) -> None:
    if seconds > max_seconds:
        raise InputError(
            f"{path}: is longer than {max_seconds:g} s.", "audio.max_utterance_s sets the limit."
        )


def _mono(path: Path, file: Any, max_seconds: float) -> Iterator[Samples]:
    """All channels in equal parts, at 16 kHz. The header may lie about the length: count."""
    count, given, size = 0, 0, max(1, BLOCK_SAMPLES // file.channels)
    resampler = Resampler(file.samplerate, SAMPLE_RATE)
    # Not in the blocks of soundfile: it has none of what cannot be sought in, and fills those that
    # a shortened file lacks with whatever stood in memory.
    while len(block := file.read(size, dtype="float32", always_2d=True)):
        count += len(block)
        _check_length(path, count / file.samplerate, max_seconds)
        piece = resampler.process(block.mean(axis=1))
        given += len(piece)
        yield piece
    after = np.zeros(file.samplerate // 10, np.float32)  # lets out what was held back
    left = round(count * SAMPLE_RATE / file.samplerate) - given
    yield resampler.process(after, last=True)[: max(0, left)]


def frames(sound: Iterable[Samples]) -> Iterator[Samples]:
    """The pieces of `sound` in pieces of a frame, the last one filled up with zeros."""
    rest = np.zeros(0, np.float32)
    for piece in sound:
        rest = np.concatenate([rest, piece])
        whole = len(rest) - len(rest) % FRAME_SAMPLES
        yield from rest[:whole].reshape(-1, FRAME_SAMPLES)
        rest = rest[whole:]
    if len(rest):
        yield np.pad(rest, (0, FRAME_SAMPLES - len(rest)))


class Listener(Protocol):
    """The part of the engine that a clip is spoken to."""

    def talk(self, at: float | None = None, source: str = "", paced: bool = True) -> int: ...
    def push_frame(self, frame: Frame) -> None: ...
    def release(self, at: float | None = None, turn: int | None = None) -> None: ...


def speak(
    clip: Clip,
    engine: Listener,
    stopped: threading.Event,
    paced: bool = True,
    held: float | None = None,
) -> None:
    """Hold the key while `clip` is heard, on the calling thread, until it ends or `stopped`.

    `held`: the key comes up after so many seconds of it.

    In real time: each frame arrives when its last sample would have been captured. Not `paced`: at
    once, with the same spacing of capture times, ending now.
    """
    if stopped.is_set():  # while it was being read, a key may have begun another turn
        return
    begin = time.monotonic() - (0.0 if paced else clip.seconds + FRAME_SECONDS)
    turn = engine.talk(begin, source=clip.name, paced=paced)
    released = begin + (clip.seconds if held is None else held)
    up = False
    silence = np.zeros(SILENT_FRAMES * FRAME_SAMPLES, np.float32)
    for count, samples in enumerate(frames([clip.samples, silence]), 1):
        captured_at = begin + count * FRAME_SECONDS
        if not up and captured_at > released:
            if paced and stopped.wait(max(0.0, released - time.monotonic())):
                return
            engine.release(released, turn)
            up = True
        if paced and stopped.wait(max(0.0, captured_at - time.monotonic())):
            return
        if stopped.is_set():
            return
        engine.push_frame(Frame(samples, captured_at, source=clip.name))
