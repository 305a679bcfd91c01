"""Warm sets of parts, lent to one request or connection at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxtui.errors import ModelMissing
from voxtui.serve.openai_types import LIMIT, HttpError

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples
    from voxtui.dialogue.protocols import Brain, SpeechDetector, Voice
    from voxtui.settings.schema import Config

RETRY_SECONDS = 1

HAND_OVER_SECONDS = 0.5
"""A request waits so long for a set. One client that comes back at once would be refused without
it, because its last session is still being closed."""


@dataclass(frozen=True, slots=True)
class ModelSet:
    """The parts of one session. Used by one thread at a time."""

    recognise: Callable[[Samples], str]
    """samples (float32, 16 kHz) -> words; raises ModelError"""
    detector: SpeechDetector
    voice: Voice | None
    brain: Brain | None = None
    """the brain; None: only its recogniser is loaded"""
    overhearing: SpeechDetector | None = None
    """detector of speech over an answer; it runs beside the other one"""


class Pool:
    """Lends its sets on the event loop's thread, the one that was used last first."""

    def __init__(self, sets: Sequence[ModelSet], hand_over_s: float = HAND_OVER_SECONDS) -> None:
        self.size = len(sets)
        self.has_brains = all(parts.brain is not None for parts in sets)
        self._hand_over_s = hand_over_s
        self._free: asyncio.LifoQueue[ModelSet] = asyncio.LifoQueue()
        for parts in sets:
            self._free.put_nowait(parts)

    @property
    def busy(self) -> int:
        return self.size - self._free.qsize()

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[ModelSet]:
        """Lend a set. Raises HttpError (429) if all stay lent for HAND_OVER_SECONDS."""
        try:
            async with asyncio.timeout(self._hand_over_s):
                parts = await self._free.get()
        except TimeoutError:
            raise HttpError(
                429,
                f"All {self.size} sessions are in use. Try again later, or start voxtui serve "
                "with more --sessions.",
                code="session_limit_reached",
                kind=LIMIT,
                headers={"retry-after": str(RETRY_SECONDS)},
            ) from None
        try:
            yield parts
        finally:
            self._free.put_nowait(parts)


@contextmanager
def warm_pool(config: Config, notify: Callable[[str], object]) -> Generator[Pool]:
    """Load `serve.sessions` sets and yield them; close them at the end. Raises ModelError."""
    from voxtui.dialogue.listening import warm_up
    from voxtui.wiring import build_detector, build_voice

    with ExitStack() as stack:
        sets: list[ModelSet] = []
        for _ in range(config.serve.sessions):
            recognise, brain = _brain(config, notify, stack)
            voice = None
            if loaders := build_voice(config, notify):
                voice = loaders.load(lambda part: part.warm_up(lambda step, fraction: None)).part
                stack.callback(voice.close)
            detectors = build_detector(config), build_detector(config)
            for detector in detectors:
                warm_up(detector)
            sets.append(ModelSet(recognise, detectors[0], voice, brain, detectors[1]))
        yield Pool(sets)


def _brain(
    config: Config, notify: Callable[[str], object], stack: ExitStack
) -> tuple[Callable[[Samples], str], Brain | None]:
    """Load a brain. Without its chat model, load its recogniser only. Raises ModelError."""
    from threading import Event as Flag

    from voxtui.dialogue.data import Utterance
    from voxtui.wiring import build_brain, recogniser

    try:
        loaders = build_brain(config, notify)
        brain = loaders.load(lambda part: part.warm_up(lambda step, fraction: None)).part
    except ModelMissing as missing:
        notify(f"No answers, only transcription and speech. {missing}")
        return stack.enter_context(recogniser(config, notify)).recognise, None
    stack.callback(brain.close)

    def recognise(samples: Samples) -> str:
        tokens = brain.transcribe(Utterance(samples, (), 0.0), Flag())
        return "".join(token.text for token in tokens).strip()

    return recognise, brain
