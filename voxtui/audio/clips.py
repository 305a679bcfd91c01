"""Read sound files, and play them to the engine as if a person spoke them."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from voxtui.audio.resampling import Resampler
from voxtui.dialogue.data import (
    FRAME_SAMPLES,
    FRAME_SECONDS,
    OWN_SOURCES,
    SAMPLE_RATE,
    Frame,
    Samples,
)
from voxtui.dialogue.engine_commands import Cancel, Command, Release, Talk
from voxtui.errors import InputError, one_line

BLOCK_SAMPLES = 131_072

RATES = range(1000, 384_001)
"""Valid sample rates in Hz. A header with another rate is damaged: at millions of Hz, a second of
sound would take the memory of hours."""

NO_SOUND_FILE = "is not a sound file that can be read"

NOT_PIPED = "Write the sound to a file first."

SILENT_FRAMES = 7
"""Silent frames after a clip, because the engine listens up to 200 ms after its last speech."""


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """A sound file as mono float32 at 16 kHz."""

    name: str
    samples: Samples

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE


def load_clip(path: Path, max_seconds: float) -> Clip:
    """Read any format of libsndfile as one channel. Raises InputError, such as TooLong."""
    # A file called `microphone` must not be mistaken for the microphone.
    name = f"./{path.name}" if path.name in OWN_SOURCES else path.name
    return Clip(one_line(name), np.concatenate([*pieces(path, max_seconds)]))


def check_clip(path: Path) -> None:
    """Raise InputError if the beginning of the file cannot be read as sound."""
    next(pieces(path, math.inf))


class TooLong(InputError):
    """A sound file is longer than the caller allows."""


def pieces(path: Path, max_seconds: float) -> Iterator[Samples]:
    """Read a file like `load_clip`, a few seconds at a time, so that memory is bounded.

    Raises InputError, such as TooLong, which comes before the first piece if the header has the
    length.
    """
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
        raise InputError(f"{path}: cannot be read: Permission denied.")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: is empty.")


def _read(path: Path, max_seconds: float) -> Iterator[Samples]:
    import soundfile  # pyright: ignore[reportMissingTypeStubs]

    read, name = 0, cast("Any", os.fsencode(path))  # the name need not be valid UTF-8
    try:
        with soundfile.SoundFile(name) as file:
            if file.samplerate not in RATES:
                header = f"its header says {file.samplerate} samples a second"
                raise InputError(f"{path}: is damaged: {header}.")
            _check_length(path, file.frames / file.samplerate, max_seconds)
            for piece in _mono(path, file, max_seconds):
                yield piece
                read += len(piece)
    except (soundfile.LibsndfileError, OSError, ValueError) as error:
        what = f"is damaged after {read / SAMPLE_RATE:.0f} s" if read else NO_SOUND_FILE
        raise InputError(f"{path}: {what}.") from error


def _check_length(path: Path, seconds: float, max_seconds: float) -> None:
    if seconds > max_seconds:
        raise TooLong(
            f"{path}: is longer than {max_seconds:g} s.", "audio.max_utterance_s sets the limit."
        )


def _mono(path: Path, file: Any, max_seconds: float) -> Iterator[Samples]:
    """Yield the mean of all channels at 16 kHz. Count the samples: a header may be wrong."""
    count, given, size = 0, 0, max(1, BLOCK_SAMPLES // file.channels)
    resampler = Resampler(file.samplerate, SAMPLE_RATE)
    # Not with soundfile's blocks(), which needs a file that can seek, and which fills the blocks
    # missing from a shortened file with uninitialised memory.
    while len(block := file.read(size, dtype="float32", always_2d=True)):
        count += len(block)
        _check_length(path, count / file.samplerate, max_seconds)
        piece = resampler.process(block.mean(axis=1))
        given += len(piece)
        yield piece
    after = np.zeros(file.samplerate // 10, np.float32)  # flushes the resampler
    left = round(count * SAMPLE_RATE / file.samplerate) - given
    yield resampler.process(after, last=True)[: max(0, left)]


def frames(sound: Iterable[Samples]) -> Iterator[Samples]:
    rest = np.zeros(0, np.float32)
    for piece in sound:
        rest = np.concatenate([rest, piece])
        whole = len(rest) - len(rest) % FRAME_SAMPLES
        yield from rest[:whole].reshape(-1, FRAME_SAMPLES)
        rest = rest[whole:]
    if len(rest):
        yield np.pad(rest, (0, FRAME_SAMPLES - len(rest)))


class FrameSink(Protocol):
    """The methods of the engine that `speak` calls."""

    def post(self, command: Command) -> int: ...
    def push(self, frame: Frame) -> None: ...


def speak(
    clip: Clip,
    engine: FrameSink,
    stopped: threading.Event,
    paced: bool = True,
    held: float | None = None,
) -> None:
    """Hold the key while `clip` is heard, on the calling thread; cancel the turn once `stopped`.

    The key is released after `held` seconds of the clip, if given. If `paced`, each frame arrives
    when its last sample would have been captured. Otherwise all arrive at once, with the same
    spacing of capture times, ending now.
    """
    if stopped.is_set():  # while the clip was read, a key press may have begun another turn
        return
    begin = time.monotonic() - (0.0 if paced else clip.seconds + FRAME_SECONDS)
    turn = engine.post(Talk(begin, source=clip.name, paced=paced))
    released = begin + (clip.seconds if held is None else held)
    up = False
    silence = np.zeros(SILENT_FRAMES * FRAME_SAMPLES, np.float32)

    def stopped_before(at: float) -> bool:
        return stopped.wait(max(0.0, at - time.monotonic())) if paced else stopped.is_set()

    for count, samples in enumerate(frames([clip.samples, silence]), 1):
        captured_at = begin + count * FRAME_SECONDS
        if not up and captured_at > released:
            if stopped_before(released):
                break
            engine.post(Release(released, turn))
            up = True
        if stopped_before(captured_at) or stopped.is_set():
            break
        engine.push(Frame(samples, captured_at, source=clip.name))
    else:
        return
    engine.post(Cancel(turn))
