"""Speakers without a device: into nothing, into a file, or into a file beside a real one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from voxtui.audio.resampling import resample
from voxtui.dialogue.data import SpeechChunk, audible
from voxtui.dialogue.interfaces import Speaker
from voxtui.dialogue.marks import Mark, Marks
from voxtui.errors import InputError

FILE_RATE = 24_000
"""Hz. That of the voices."""


class SilentSpeaker:
    """A Speaker nobody hears: speech is made and thrown away, and no first sound is claimed."""

    name = "none"

    def __init__(self) -> None:
        self._seconds = 0.0

    def open(self) -> None: ...

    def play(self, chunk: SpeechChunk, marks: Marks, stopped: Callable[[], bool]) -> None:
        self._seconds += chunk.seconds

    def finish(self, marks: Marks, stopped: Callable[[], bool]) -> float:
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def close(self) -> None: ...


class NullSpeaker(SilentSpeaker):
    """A Speaker without a device: speech is heard the moment it is handed over.

    A device adds its own latency to the first sound.
    """

    name = "no device"

    def play(self, chunk: SpeechChunk, marks: Marks, stopped: Callable[[], bool]) -> None:
        super().play(chunk, marks, stopped)
        heard = audible(chunk.samples)
        if len(heard):
            marks.mark(Mark.FIRST_SOUND, time.monotonic() + heard[0] / chunk.rate)


class FileSpeaker(SilentSpeaker):
    """Writes what is said to a 16-bit WAV, in order, without pacing.

    The file appears, whole, when `keep` is called; until then there is only a partial one.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        # Of this process alone: another one may be writing the same file.
        self._partial = path.parent / f".{path.name}.{os.getpid()}.partial"
        self._file: Any = None
        self.name = str(path)

    def open(self) -> None:
        """Raises InputError when it cannot be written there. Opening again does nothing."""
        if self._file is not None:
            return
        import soundfile

        if self._path.exists() and not self._path.is_file():
            raise InputError(f"{self._path}: is not a file, so no sound can be written there.")
        if str(self._path) == "-" or self._path.suffix.lower() not in ("", ".wav", ".wave"):
            raise InputError(f"{self._path}: the sound is a WAV; name it FILE.wav.")
        name: Any = os.fsencode(self._partial)  # need not be text
        try:
            self._partial.touch()  # says why not, which libsndfile does not
            self._file = soundfile.SoundFile(
                name, "w", FILE_RATE, 1, subtype="PCM_16", format="WAV"
            )
        except OSError as error:
            raise InputError(f"{self._path}: cannot be written: {error.strerror}.") from error
        except soundfile.LibsndfileError as error:
            self._partial.unlink()
            raise InputError(f"{self._path}: cannot be written there; a full disk?") from error

    def play(self, chunk: SpeechChunk, marks: Marks, stopped: Callable[[], bool]) -> None:
        import numpy as np

        super().play(chunk, marks, stopped)
        samples = resample(chunk.samples, chunk.rate, FILE_RATE)
        try:
            self._file.write(np.clip(samples, -1, 1))
        except RuntimeError as error:  # what libsndfile raises when the disk is full
            raise InputError(f"{self._path}: the sound could not be written.") from error

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def keep(self) -> None:
        """Close, and let the file appear. Raises InputError."""
        self.close()
        try:
            os.replace(self._partial, self._path)
        except OSError as error:
            self._partial.unlink(missing_ok=True)
            raise InputError(f"{self._path}: cannot be written there.") from error

    def abandon(self) -> None:
        """Close, and leave nothing behind."""
        self.close()
        self._partial.unlink(missing_ok=True)


class TeeSpeaker:
    """Two speakers as one; the first is the one that is heard."""

    def __init__(self, heard: Speaker, copy: FileSpeaker) -> None:
        self._heard = heard
        self._copy = copy

    @property
    def name(self) -> str:
        return self._heard.name

    def open(self) -> None:
        self._copy.open()
        self._heard.open()

    def play(self, chunk: SpeechChunk, marks: Marks, stopped: Callable[[], bool]) -> None:
        self._copy.play(chunk, marks, stopped)
        self._heard.play(chunk, marks, stopped)

    def finish(self, marks: Marks, stopped: Callable[[], bool]) -> float:
        self._copy.finish(marks, stopped)
        return self._heard.finish(marks, stopped)

    def close(self) -> None:
        self._heard.close()
        self._copy.close()
