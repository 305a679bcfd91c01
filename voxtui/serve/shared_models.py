"""Warm sets of models, each lent to one request or connection at a time."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from voxtui.errors import ModelMissing
from voxtui.serve.openai_types import LIMIT, HttpError
from voxtui.serve.upload import Disconnected

if TYPE_CHECKING:
    from threading import Event as Flag

    from voxtui.dialogue.data import Samples
    from voxtui.dialogue.protocols import Brain, SpeechDetector, Voice
    from voxtui.settings.schema import Config

HAND_OVER_SECONDS = 0.5
"""Maximum wait of a conversation for a set. Without it, a client that returns at once would be
refused while its last session is still closing."""

QUEUE_SECONDS = 300.0
"""Maximum wait of a request, because a conversation may hold a set for an hour."""

MOST_REQUESTS = 64
"""Maximum requests at once, also waiting and uploading. One client may have half of them."""

LONGEST_RETRY_SECONDS = 60


@dataclass(frozen=True, slots=True)
class ModelSet:
    """The models of one session. Used by one thread at a time."""

    recognise: Callable[[Samples, Flag], str]
    """the recogniser, from (samples (float32, 16 kHz), cancelled) to words; raises ModelError"""
    detector: SpeechDetector
    voice: Voice | None
    brain: Brain | None = None
    """the brain, or None if only its recogniser is loaded"""
    overhearing: SpeechDetector | None = None
    """the detector of speech over an answer, which runs beside the other one"""


class Queued(Protocol):
    """A request that waits for its turn."""

    client: str
    left: asyncio.Future[None]
    """the future that is done once the client has disconnected"""
    answer_headers: dict[str, str]


class Pool:
    """Lends its sets on the event loop's thread, the most recently used one first.

    Waiting clients take turns: one request of each client, then the next one of each.
    """

    def __init__(
        self,
        sets: Sequence[ModelSet],
        hand_over_s: float = HAND_OVER_SECONDS,
        queue_s: float = QUEUE_SECONDS,
        most_requests: int = MOST_REQUESTS,
    ) -> None:
        self.size = len(sets)
        self.has_brains = all(parts.brain is not None for parts in sets)
        loaded = (parts.brain.name for parts in sets if parts.brain is not None)
        self.brain = next(loaded, "embedded")
        """the name of the loaded brain; without a chat model it is the embedded recogniser"""
        self._hand_over_s = hand_over_s
        self._queue_s = queue_s
        self._most = max(most_requests, 4 * len(sets))  # one client may use every set
        self._free = list(sets)
        self._waiting: dict[object, deque[asyncio.Future[ModelSet]]] = {}
        """the waiting requests by client, the next client first"""
        self._admitted = Counter[str]()
        self._lent_seconds = 1.0
        """the mean time in seconds for which a request holds a set"""

    @property
    def busy(self) -> int:
        return self.size - len(self._free)

    @property
    def waiting(self) -> int:
        return sum(len(line) for line in self._waiting.values())

    @contextmanager
    def admitted(self, client: str) -> Generator[None]:
        """Count a request of `client`. Raises HttpError (429) if there are too many."""
        all_of_it = self._admitted.total() >= self._most
        if all_of_it or self._admitted[client] >= max(1, self._most // 2):
            whose = "All" if all_of_it else "Your"
            raise self._refusal(f"{whose} places in the queue are taken", "queue_full")
        self._admitted[client] += 1
        try:
            yield
        finally:
            self._admitted[client] -= 1
            self._admitted += Counter()  # drops who has none

    @asynccontextmanager
    async def lend(self, request: Queued | None = None) -> AsyncGenerator[ModelSet]:
        """Lend a set to a request, which waits for its turn, or to a conversation (None).

        Raises HttpError (429) if none becomes free in time, and Disconnected.
        """
        parts = await self._next(request)
        began = time.monotonic()
        try:
            yield parts
        finally:
            if request is not None:
                took = time.monotonic() - began
                self._lent_seconds += (took - self._lent_seconds) / 8
            self._give_back(parts)

    async def _next(self, request: Queued | None) -> ModelSet:
        waiter: asyncio.Future[ModelSet] = asyncio.get_running_loop().create_future()
        seconds = self._hand_over_s
        client: object = waiter
        if request is not None:
            seconds, client = self._queue_s, request.client
            before = self.waiting + (not self._free)
            request.answer_headers["x-voxtui-queue-position"] = str(before)
            request.left.add_done_callback(
                lambda left: None if waiter.done() else waiter.set_exception(Disconnected())
            )
        line = self._waiting.setdefault(client, deque())
        line.append(waiter)
        self._hand_out()
        try:
            await asyncio.wait((waiter,), timeout=seconds)
        except asyncio.CancelledError:
            if waiter.done() and waiter.exception() is None:
                self._give_back(waiter.result())
            raise
        finally:
            if waiter in line:
                line.remove(waiter)
                waiter.cancel()  # nobody would see that the client left
            if not line and self._waiting.get(client) is line:
                del self._waiting[client]
        if waiter.cancelled():
            raise self._refusal(f"All {self.size} sessions are in use", "session_limit_reached")
        return waiter.result()

    def _give_back(self, parts: ModelSet) -> None:
        self._free.append(parts)
        self._hand_out()

    def _hand_out(self) -> None:
        while self._free and self._waiting:
            client = next(iter(self._waiting))
            line = self._waiting.pop(client)
            waiter = line.popleft()
            if line:
                self._waiting[client] = line  # behind the others
            if not waiter.done():
                waiter.set_result(self._free.pop())

    def _refusal(self, why: str, code: str) -> HttpError:
        seconds = self._lent_seconds * (self.waiting + 1) / self.size
        retry = min(LONGEST_RETRY_SECONDS, math.ceil(seconds))
        return HttpError(
            429,
            f"{why}. Try again in {retry} s, or start voxtui serve with more --sessions.",
            code=code,
            kind=LIMIT,
            headers={"retry-after": str(retry)},
        )


@contextmanager
def warm_pool(config: Config, notify: Callable[[str], object]) -> Generator[Pool]:
    """Load `serve.sessions` sets and yield them; close them at the end. Raises ModelError."""
    from voxtui.dialogue.listening.listener import warm_up
    from voxtui.wiring import build_detector, build_voice

    with ExitStack() as stack:
        sets: list[ModelSet] = []
        for _ in range(config.serve.sessions):
            recognise, brain = _brain(config, notify, stack)
            voice = None
            if loaders := build_voice(config):
                voice = loaders.load(lambda part: part.warm_up(lambda step, fraction: None)).part
                stack.callback(voice.close)
            detectors = build_detector(config), build_detector(config)
            warm_up(detectors)
            sets.append(ModelSet(recognise, detectors[0], voice, brain, detectors[1]))
        yield Pool(sets)


def _brain(
    config: Config, notify: Callable[[str], object], stack: ExitStack
) -> tuple[Callable[[Samples, Flag], str], Brain | None]:
    """Load a brain, or without its chat model only its recogniser. Raises ModelError."""
    from voxtui.wiring import build_brain, recogniser, transcriber

    try:
        loaders = build_brain(config, notify)
        brain = loaders.load(lambda part: part.warm_up(lambda step, fraction: None)).part
    except ModelMissing as missing:
        notify(f"No answers, only transcription and speech. {missing}")
        return stack.enter_context(recogniser(config, notify)).recognise, None
    stack.callback(brain.close)
    return transcriber(brain), brain
