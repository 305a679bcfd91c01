"""The embedded recogniser: Moonshine tiny (English), weights inside its wheel."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from typing import TYPE_CHECKING, Any

from voxtui.dialogue.data import SAMPLE_RATE, Utterance
from voxtui.errors import ModelError, how_to_install

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

LONG_SECONDS = 12.0
"""A longer stretch is cut at its next pause, because the cost grows faster than its length."""

LONGEST_SECONDS = 28.0
"""A stretch without any pause is cut here: the model was trained on less than 30 s."""

PAUSE_SECONDS = 0.25
"""Shortest silence between two stretches of speech at which they may be cut."""


class Moonshine:
    """Speech to text. Thread-safe: one pass at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._transcriber: Any = None

    def load(self) -> None:
        """Load the weights. Raises ModelError."""
        try:
            from moonshine_voice import Transcriber, get_assets_path
            from moonshine_voice.errors import MoonshineError
            from moonshine_voice.moonshine_api import ModelArch
        except (ImportError, OSError) as error:
            raise ModelError(
                "The embedded recogniser is not installed or does not run here.",
                f"{how_to_install('embedded')} (Linux: glibc 2.34 or newer; macOS: Apple silicon)",
            ) from error
        # Its threads poll for each other, so two are slower than one if any other program runs.
        os.environ.setdefault("MOONSHINE_ORT_SINGLE_THREAD", "1")
        Transcriber._handle = None  # otherwise the `__del__` of a model that did not load raises
        try:
            self._transcriber = Transcriber(
                os.path.join(str(get_assets_path()), "tiny-en"),
                ModelArch.TINY,
                # Its own detector cuts words off: word error rate 9.2 % with it, 2.4 % without.
                options={"vad_threshold": "0.0", "return_audio_data": "false"},
            )
        except MoonshineError as error:
            raise ModelError(
                f"The embedded recogniser did not load: {str(error).rstrip('.')}.",
                "Is there memory left? `voxtui doctor` says how much.",
            ) from error

    def recognise(self, samples: Samples) -> str:
        """Return the words in `samples` (float32, 16 kHz, up to 30 s). Raises ModelError."""
        from moonshine_voice.errors import MoonshineError, check_error
        from moonshine_voice.moonshine_api import TranscriptC

        transcript = ctypes.POINTER(TranscriptC)()
        with self._lock:
            # Its Python method takes a list: turning 30 s of samples into one holds the GIL for
            # tens of milliseconds. The version is pinned exactly.
            lib, handle = self._transcriber._lib, self._transcriber._handle
            try:
                check_error(
                    lib.moonshine_transcribe_without_streaming(
                        handle,
                        samples.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
                        len(samples),
                        SAMPLE_RATE,
                        0,
                        ctypes.byref(transcript),
                    )
                )
            except MoonshineError as error:
                raise ModelError(f"The embedded recogniser failed: {error}.") from error
            lines = self._transcriber._parse_transcript(transcript).lines
        return " ".join(line.text.strip() for line in lines).strip()

    def close(self) -> None:
        with self._lock:
            if self._transcriber is not None:
                self._transcriber.close()
                self._transcriber = None


def stretches(utterance: Utterance) -> list[tuple[int, int]]:
    """Return (start, end) samples of the parts of `utterance` to recognise, cut at pauses.

    Only the last part changes while `utterance` grows.
    """
    begin, cuts = 0, list[int]()
    for (_, end), (start, _) in zip(utterance.speech, utterance.speech[1:], strict=False):
        middle = int((end + start) / 2 * SAMPLE_RATE)
        if start - end >= PAUSE_SECONDS and middle - begin >= LONG_SECONDS * SAMPLE_RATE:
            cuts.append(middle)
            begin = middle
    bounds = [0, *cuts, len(utterance.samples)]
    parts: list[tuple[int, int]] = []
    for start, end in itertools.pairwise(bounds):
        while end - start > LONGEST_SECONDS * SAMPLE_RATE:
            parts.append((start, start + int(LONGEST_SECONDS * SAMPLE_RATE)))
            start = parts[-1][1]
        parts.append((start, end))
    return parts
