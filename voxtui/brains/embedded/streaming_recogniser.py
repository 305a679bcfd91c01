"""The larger Moonshine recogniser: a streaming model, run by the runtime in Moonshine's wheel.

That runtime gives words without the probabilities of their tokens. So no word is doubtful, and
speech in another language is noticed only if the decoder repeats itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxtui.brains.embedded.recogniser import LONGEST_SECONDS, Heard, Moonshine
from voxtui.dialogue.data import SAMPLE_RATE
from voxtui.errors import ModelError, how_to_install
from voxtui.models.catalogue import RECOGNISERS
from voxtui.models.installed import recogniser_directory

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

OPTIONS = {
    "vad_threshold": 0.0,  # the utterance was cut to its speech already
    "vad_max_segment_duration": LONGEST_SECONDS + 2.0,
    "return_audio_data": "false",
}


class StreamingMoonshine:
    """Speech to text. Thread-safe: one pass at a time.

    `find` returns the folder of the weights, or raises ModelError. `kind` is the name of such a
    model in the runtime.
    """

    def __init__(self, find: Callable[[], Path], kind: str = "SMALL_STREAMING") -> None:
        self._find = find
        self._kind = kind
        self._lock = threading.Lock()
        self._runtime: Any = None
        self._transcriber: Any = None

    def load(self) -> None:
        """Load the weights. Raises ModelError."""
        folder = self._find()
        try:
            self._runtime = import_module("moonshine_voice.transcriber")
        except (ImportError, OSError) as error:
            raise ModelError(
                "The embedded recogniser is not installed or does not run here.",
                how_to_install("embedded"),
            ) from error
        try:
            self._transcriber = self._runtime.Transcriber(
                folder, self._runtime.ModelArch[self._kind], options=OPTIONS
            )
        except self._runtime.MoonshineError as error:
            raise ModelError(
                f"The recogniser in {folder} did not load: {str(error).rstrip('.')}.",
                "Is there memory left? `voxtui doctor` says how much.",
            ) from error

    def recognise(self, samples: Samples) -> Heard:
        """Return the words in `samples` (float32, 16 kHz, up to 30 s). Raises ModelError."""
        with self._lock:
            try:
                found = self._transcriber.transcribe_without_streaming(
                    samples.tolist(), SAMPLE_RATE
                )
            except self._runtime.MoonshineError as error:
                raise ModelError(
                    f"The embedded recogniser failed: {str(error).rstrip('.')}."
                ) from error
        return Heard(" ".join(filter(None, (line.text.strip() for line in found.lines))))

    def close(self) -> None:
        with self._lock:
            if self._transcriber is not None:
                self._transcriber.close()
                self._transcriber = None


def embedded_recogniser(name: str) -> Moonshine | StreamingMoonshine:
    """Return the recogniser that `brain.embedded.recogniser` names. It is not loaded yet."""
    if name in RECOGNISERS:
        return StreamingMoonshine(partial(recogniser_directory, name))
    return Moonshine()
