"""Write sound in compressed formats, by libsndfile."""

from __future__ import annotations

import io

from voxtui.dialogue.data import Samples

FORMATS = {"mp3": ("MP3", None), "opus": ("OGG", "OPUS"), "flac": ("FLAC", "PCM_16"),
           "wav": ("WAV", "PCM_16")}  # fmt: skip
"""libsndfile's names of the container and the codec, by format."""


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
