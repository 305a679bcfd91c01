"""Decode 16-bit PCM and a WAV header while their bytes arrive; encode whole files."""

from __future__ import annotations

import io
import struct

import numpy as np

from voxtui.dialogue.data import SAMPLE_RATE, Samples

LONGEST_HEADER = 65_536
"""Maximum bytes. Some recorders write a table or a text before the sound."""

UNKNOWN_SIZE = 0x7FFF_0000
"""Minimum size that means "unknown", as 0 does: a program that pipes a WAV cannot know it."""

_PCM, _FORMAT_BYTES = 1, 16

FORMATS = {"mp3": ("MP3", None), "opus": ("OGG", "OPUS"), "flac": ("FLAC", "PCM_16"),
           "wav": ("WAV", "PCM_16")}  # fmt: skip
"""libsndfile's names of the container and the codec, by format."""


class PcmStream:
    """Turns the bytes of 16-bit mono PCM into samples. A chunk may end within a sample."""

    def __init__(self, size: int | None = None) -> None:
        """Read `size` bytes of sound and ignore the rest. Without `size` there is no limit."""
        self._left = size
        self._half = b""

    def feed(self, data: bytes) -> Samples:
        """Return the samples, float32 in [-1, 1), shape (n,)."""
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        data = self._half + data
        whole = len(data) - len(data) % 2
        self._half = data[whole:]
        return np.frombuffer(data[:whole], "<i2").astype(np.float32) / np.float32(32768)


def wav_header(start: bytes) -> tuple[int, int | None] | None:
    """Return (offset, bytes or None) of the sound in a WAV whose first bytes are `start`.

    Returns None while more bytes are needed. Raises ValueError unless it is 16-bit mono PCM at 16
    kHz with a header of at most LONGEST_HEADER.
    """
    if not b"RIFF".startswith(start[:4]) or not b"WAVE".startswith(start[8:12]):
        raise ValueError("no WAV")
    position, is_pcm = 12, False
    while len(start) >= position + 8:
        kind, size = struct.unpack_from("<4sI", start, position)
        position += 8
        if kind == b"data":
            if not is_pcm:
                raise ValueError("no 16-bit mono PCM at 16 kHz")
            return position, None if size == 0 or size >= UNKNOWN_SIZE else size
        if kind == b"fmt ":
            if len(start) < position + _FORMAT_BYTES:
                return None
            code, channels, rate = struct.unpack_from("<HHI", start, position)
            (bits,) = struct.unpack_from("<H", start, position + 14)
            is_pcm = (code, channels, rate, bits) == (_PCM, 1, SAMPLE_RATE, 16)
        position += size + size % 2
        if position > LONGEST_HEADER:
            raise ValueError("the header is too long")
    return None


def encode(samples: Samples, rate: int, form: str) -> bytes:
    """Return a file of `samples` (int16 or float32, mono) in `form`, a key of FORMATS."""
    import soundfile  # pyright: ignore[reportMissingTypeStubs]

    container, codec = FORMATS[form]
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, 1, codec, format=container) as sound:
        # in pieces, because libvorbis and libopus overflow their stack with long ones
        for start in range(0, len(samples), rate):
            sound.write(samples[start : start + rate])  # pyright: ignore[reportUnknownMemberType]
    return file.getvalue()
