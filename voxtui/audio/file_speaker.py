"""Speakers without a device: discard speech, or write it to a file."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from voxtui.audio.resampling import resample
from voxtui.dialogue.data import SpeechChunk, audible
from voxtui.dialogue.protocols import Speaker, StopFlag
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import InputError

FILE_RATE = 24_000
"""Sample rate in Hz, the same as that of the voices."""


class SilentSpeaker:
    """A Speaker that discards speech at once and writes no FIRST_SOUND."""

    name = "none"

    def __init__(self) -> None:
        self._seconds = 0.0

    def open(self) -> None: ...

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        self._seconds += chunk.seconds

    def finish(self, timestamps: Timestamps, stopped: StopFlag) -> float:
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def chime(self, at: float | None) -> None: ...

    def close(self) -> None: ...


class NullSpeaker(SilentSpeaker):
    """A Speaker that writes FIRST_SOUND as soon as it gets a chunk: no device adds its latency."""

    name = "no device"

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        super().play(chunk, timestamps, stopped)
        heard = audible(chunk.samples)
        if len(heard):
            timestamps.record(Milestone.FIRST_SOUND, time.monotonic() + heard[0] / chunk.rate)


class FileSpeaker:
    """Writes speech to a 16-bit WAV, and plays it on `speaker`, which discards it by default.

    `save` makes the file appear as a whole. Until then a hidden file beside it collects the speech.
    """

    def __init__(self, path: Path) -> None:
        self.speaker: Speaker = SilentSpeaker()
        self._path = path
        # A name that cannot be guessed, because others may write to the directory.
        self._partial = path.parent / f".{path.name}.{secrets.token_hex(8)}.partial"
        self._file: Any = None

    @property
    def name(self) -> str:
        return self.speaker.name

    def open(self) -> None:
        """Create the hidden file, unless it is open, and open `speaker`. Raises InputError."""
        if self._file is None:
            self._create()
        self.speaker.open()

    def _create(self) -> None:
        import soundfile  # pyright: ignore[reportMissingTypeStubs]

        if self._path.exists() and not self._path.is_file():
            raise InputError(f"{self._path}: is not a regular file.", "Name a WAV file.")
        if str(self._path) == "-" or self._path.suffix.lower() not in ("", ".wav", ".wave"):
            raise InputError(f"{self._path}: is not the name of a WAV file.", "Name it FILE.wav.")
        try:
            # The flags refuse a link and a file that exists already.
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            descriptor = os.open(self._partial, flags, 0o666)
        except OSError as error:
            raise InputError(f"{self._path}: cannot be written: {error.strerror}.") from error
        try:
            self._file = soundfile.SoundFile(
                descriptor, "w", FILE_RATE, 1, subtype="PCM_16", format="WAV"
            )
        except soundfile.LibsndfileError as error:
            self._partial.unlink()
            raise InputError(f"{self._path}: cannot be written; is the disk full?") from error

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        import numpy as np

        samples = resample(chunk.samples, chunk.rate, FILE_RATE)
        try:
            self._file.write(np.clip(samples, -1, 1))
        except RuntimeError as error:  # libsndfile's, on a full disk
            raise InputError(f"{self._path}: cannot be written; is the disk full?") from error
        self.speaker.play(chunk, timestamps, stopped)

    def finish(self, timestamps: Timestamps, stopped: StopFlag) -> float:
        return self.speaker.finish(timestamps, stopped)

    def chime(self, at: float | None) -> None:
        self.speaker.chime(at)

    def close(self) -> None:
        self.speaker.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def save(self) -> None:
        self.close()
        try:
            os.replace(self._partial, self._path)
        except OSError as error:
            self._partial.unlink(missing_ok=True)
            raise InputError(f"{self._path}: cannot be written: {error.strerror}.") from error

    def abandon(self) -> None:
        self.close()
        self._partial.unlink(missing_ok=True)


@contextmanager
def file_speaker(path: Path | None) -> Generator[FileSpeaker | None]:
    """Yield a writer of `path`, or None. The file stays unless it raises. Raises InputError."""
    file = FileSpeaker(path) if path else None
    try:
        yield file
    except BaseException:
        if file:
            file.abandon()
        raise
    if file:
        file.save()
