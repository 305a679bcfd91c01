"""`output_audio_buffer`: the answers that the server itself plays, in real time, into a track."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from voxtui.audio.pcm import PcmStream
from voxtui.audio.resampling import Resampler
from voxtui.serve.realtime.protocol import server_event
from voxtui.serve.realtime.session_settings import RATE

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples
    from voxtui.dialogue.timestamps import Turn
    from voxtui.serve.realtime.protocol import Item
    from voxtui.serve.realtime.session_settings import Json
    from voxtui.serve.realtime.wire_audio import Sound

TRACK_RATE = 48_000
"""Hz, as Opus has it."""

BLOCK = RATE // 100
"""Samples that change their rate at once, so that a long sound never holds the event loop."""


class Client(Protocol):
    """Carries events to the client. Used by the event loop's thread."""

    @property
    def output(self) -> OutputBuffer | None:
        """What plays the answers over a track; None: the client gets their sound as events."""

    def send(self, event: Json) -> None: ...

    def answered(self, turn: Turn) -> None:
        """Count an answer that has ended."""

    def failed(self) -> None:
        """Close the connection, because the engine has failed."""


@dataclass(slots=True, eq=False)
class _PlayedAnswer:
    response_id: str
    item: Item
    sounds: deque[Samples] = field(default_factory=deque["Samples"])
    """sounds at RATE"""
    pcm: PcmStream = field(default_factory=PcmStream)
    resampler: Resampler = field(default_factory=lambda: Resampler(RATE, TRACK_RATE))
    played: int = 0
    """samples at TRACK_RATE"""
    complete: bool = False


class OutputBuffer:
    """Plays answers one after the other. Used by the event loop's thread."""

    def __init__(self) -> None:
        self.client: Client | None = None
        """gets an event as an answer begins and ends to play"""
        self.waiting = 0
        """bytes that are not played yet; read by any thread"""
        self.begun = asyncio.Event()
        """an answer is being played"""
        self._answers: deque[_PlayedAnswer] = deque()
        self._ready = np.zeros(0, np.float32)
        """sound of the first answer, at TRACK_RATE"""

    @property
    def playing(self) -> bool:
        """Return whether something waits to be played, or may still be added."""
        return bool(self._answers)

    def add(self, response_id: str, item: Item, sound: Sound) -> None:
        """Play the next piece of an answer."""
        if not self._answers or self._answers[-1].response_id != response_id:
            self._answers.append(_PlayedAnswer(response_id, item))
        self.begun.set()
        answer = self._answers[-1]
        samples = answer.pcm.feed(sound.pcm)
        answer.sounds.extend(samples[at : at + BLOCK] for at in range(0, len(samples), BLOCK))
        self.waiting += len(sound.pcm)

    def complete(self, response_id: str) -> None:
        """Say that nothing follows of an answer."""
        for answer in self._answers:
            answer.complete = answer.complete or answer.response_id == response_id

    def take(self, count: int) -> Samples:
        """Return the next samples to play, at TRACK_RATE; silence where there are none."""
        taken = np.zeros(count, np.float32)
        filled = 0
        while filled < count and self._fill():
            answer, some = self._answers[0], self._ready[: count - filled]
            if not answer.played:
                self._report("started", answer.response_id)
            taken[filled : filled + len(some)] = some
            filled += len(some)
            answer.played += len(some)
            self._ready = self._ready[len(some) :]
        return taken

    def clear(self) -> tuple[Item, float] | None:
        """Drop everything. Returns the item that was being played, and its seconds so far."""
        if not self._answers:
            return None
        answer = self._answers[0]
        self._answers.clear()
        self._ready = self._ready[:0]
        self.waiting = 0
        self._report("cleared", answer.response_id)
        return answer.item, answer.played / TRACK_RATE

    def _report(self, what: str, response_id: str) -> None:
        if self.client is not None:
            event = server_event(f"output_audio_buffer.{what}", response_id=response_id)
            self.client.send(event)

    def _fill(self) -> bool:
        """Make samples ready. Returns False if there are none now."""
        while not len(self._ready):
            if not self._answers:
                self.begun.clear()
                return False
            answer = self._answers[0]
            if answer.sounds:
                samples = answer.sounds.popleft()
                self.waiting -= 2 * len(samples)
                self._ready = answer.resampler.process(samples)
            elif answer.complete:
                self._answers.popleft()
                if answer.played:
                    self._report("stopped", answer.response_id)
            else:
                return False  # the voice is late
        return True
