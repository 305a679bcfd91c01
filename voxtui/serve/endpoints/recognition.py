"""Recognise sound while it arrives: a stream of samples in, a segment at each pause out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import TYPE_CHECKING, Self

import anyio
from anyio import from_thread, to_thread

from voxtui.audio.clips import TooLong
from voxtui.commands.transcribe import TranscriptSegment, segments
from voxtui.dialogue.data import SAMPLE_RATE
from voxtui.errors import VoxtuiError

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from voxtui.dialogue.data import Samples
    from voxtui.serve.shared_models import ModelSet
    from voxtui.settings.schema import VadConfig

QUEUED_PIECES = 8
"""Pieces of sound, of up to 2 s each, between the network and the recogniser. A full queue stops
the reading of the socket, so that a fast upload does not fill the memory."""

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
    _send: MemoryObjectSendStream[Samples] = field(init=False)
    _receive: MemoryObjectReceiveStream[Samples] = field(init=False)

    def __post_init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream["Samples"](QUEUED_PIECES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._send.close()
        self._receive.close()

    async def feed(self, samples: Samples) -> None:
        """Add samples (float32, 16 kHz). Waits while the recogniser is behind."""
        try:
            await self._send.send(samples)
        except anyio.BrokenResourceError:  # `run` has ended with an error
            assert self.error is not None
            raise self.error from None

    def end(self) -> None:
        """Note that no more samples will come."""
        self._send.close()

    def abandon(self) -> None:
        """End `run` within a piece or a token."""
        self.cancelled.set()
        self.end()

    async def run(self, sound: Iterable[Samples] | None = None) -> None:
        """Recognise `sound`, or what is fed, until its end. Sets `error` if that fails."""
        await to_thread.run_sync(self._work, self._fed() if sound is None else sound)
        self._receive.close()  # wakes a `feed` that waits

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

    def _fed(self) -> Iterator[Samples]:
        while True:
            try:
                yield from_thread.run(self._receive.receive)
            except anyio.EndOfStream:
                return
