"""`output_audio_buffer`: answers that the server itself plays into a track, in real time."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from voxtui.dialogue.timestamps import Turn
    from voxtui.serve.realtime.protocol import Item

TRACK_RATE = 48_000
"""Sample rate of Opus in Hz."""


@dataclass(frozen=True, slots=True)
class Sound:
    """The next piece of a spoken answer."""

    pcm: bytes
    """the samples: 16 bit, mono"""
    seconds: float


class Client(Protocol):
    """Carries events to the client. Used by the event loop's thread, except as noted."""

    @property
    def output(self) -> OutputBuffer | None:
        """The buffer that plays the answers over a track; None if sound is sent as events."""

    @property
    def waiting(self) -> int:
        """The bytes of speech that the client has not received yet. Any thread."""
        ...

    def deliver(self, event: Sound) -> None:
        """Have the session take `event` on the event loop. Any thread."""

    def send(self, type: str, **fields: object) -> None: ...  # noqa: A002 (a field of the protocol)

    def answered(self, turn: Turn) -> None:
        """Count a finished answer."""

    def failed(self) -> None:
        """Close the connection because the engine has failed."""


@dataclass(slots=True, eq=False)
class _PlayedAnswer:
    response_id: str
    item: Item
    pcm: bytearray = field(default_factory=bytearray)
    played: int = 0
    complete: bool = False


class OutputBuffer:
    """Plays answers in turn: 16 bit, mono, at TRACK_RATE. Used by the event loop's thread."""

    def __init__(self) -> None:
        self.client: Client | None = None
        """the receiver of events at the start and end of each played answer"""
        self.begun = asyncio.Event()
        self._answers: deque[_PlayedAnswer] = deque()

    @property
    def waiting(self) -> int:
        """The bytes that are not played yet. Any thread."""
        return sum(len(answer.pcm) for answer in [*self._answers])

    @property
    def playing(self) -> bool:
        """True if sound waits to be played, or may still be added."""
        return bool(self._answers)

    def add(self, response_id: str, item: Item, pcm: bytes) -> None:
        """Queue the next piece of an answer."""
        if not self._answers or self._answers[-1].response_id != response_id:
            self._answers.append(_PlayedAnswer(response_id, item))
        self._answers[-1].pcm += pcm
        self.begun.set()

    def complete(self, response_id: str) -> None:
        """Take note that an answer is complete."""
        for answer in self._answers:
            answer.complete = answer.complete or answer.response_id == response_id

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes to play, or silence without sound."""
        taken = bytearray()
        while self._answers and len(taken) < count:
            answer, missing = self._answers[0], count - len(taken)
            if answer.pcm:
                if not answer.played:
                    self._report("started", answer.response_id)
                taken += answer.pcm[:missing]
                answer.played += min(missing, len(answer.pcm))
                del answer.pcm[:missing]
            elif answer.complete:
                self._answers.popleft()
                if answer.played:
                    self._report("stopped", answer.response_id)
            else:
                break  # the voice is late
        if not self._answers:
            self.begun.clear()
        return bytes(taken.ljust(count, b"\0"))

    def clear(self) -> tuple[Item, float] | None:
        """Drop everything. Return the item that was being played, and its seconds so far."""
        if not self._answers:
            return None
        answer = self._answers[0]
        self._answers.clear()
        self._report("cleared", answer.response_id)
        return answer.item, answer.played / 2 / TRACK_RATE

    def _report(self, what: str, response_id: str) -> None:
        if self.client is not None:
            self.client.send(f"output_audio_buffer.{what}", response_id=response_id)
