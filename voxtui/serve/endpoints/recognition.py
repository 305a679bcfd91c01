"""Recognise sound while it arrives: samples in, a segment at each pause out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import TYPE_CHECKING

from anyio import from_thread, to_thread

from voxtui.audio.clips import TooLong
from voxtui.commands.transcribe import TranscriptSegment, segments
from voxtui.dialogue.data import SAMPLE_RATE
from voxtui.errors import VoxtuiError

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples
    from voxtui.serve.shared_models import ModelSet
    from voxtui.settings.schema import VadConfig

OnSegment = Callable[[TranscriptSegment], Coroutine[object, object, None]]


@dataclass(slots=True)
class Recognition:
    """Sound on its way through a recogniser. Its methods belong to the event loop's thread."""

    parts: ModelSet
    vad: VadConfig
    on_segment: OnSegment
    seconds: float = 0.0
    """seconds of sound so far"""
    infer_seconds: float = 0.0
    """seconds in which the recogniser worked"""
    error: VoxtuiError | None = None
    most_seconds: float = math.inf
    """seconds of sound after which `run` ends with TooLong"""
    cancelled: Flag = field(default_factory=Flag)
    """set by any thread to end `run` within a piece or a token"""

    async def run(self, sound: Iterable[Samples]) -> None:
        """Recognise `sound` until its end. Sets `error` if that fails."""
        await to_thread.run_sync(self._work, sound)

    def _work(self, sound: Iterable[Samples]) -> None:
        """Run on a thread of its own."""
        found = segments(
            "", self._counted(sound), self.vad, self.parts.detector, self._timed_recognise
        )
        try:
            for segment in found:
                from_thread.run(self.on_segment, segment)
        except VoxtuiError as error:
            self.error = error

    def _timed_recognise(self, samples: Samples) -> str:
        began = time.monotonic()
        try:
            words = self.parts.recognise(samples, self.cancelled)
            return "" if self.cancelled.is_set() else words
        finally:
            self.infer_seconds += time.monotonic() - began

    def _counted(self, sound: Iterable[Samples]) -> Iterator[Samples]:
        for piece in sound:
            self.seconds += len(piece) / SAMPLE_RATE
            if self.seconds > self.most_seconds:
                raise TooLong(f"The sound is longer than {self.most_seconds:g} s.")
            if self.cancelled.is_set():
                return
            yield piece
