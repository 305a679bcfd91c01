"""Warm sets of parts, lent to one request or connection at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxtui.serve.shapes import LIMIT, Refusal

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples
    from voxtui.dialogue.interfaces import SpeechDetector, Voice
    from voxtui.settings.schema import Config

RETRY_SECONDS = 1


@dataclass(frozen=True, slots=True)
class WarmParts:
    """The parts of one session. Used by one thread at a time."""

    recognise: Callable[[Samples], str]
    """samples (float32, 16 kHz) -> words; raises ModelError"""
    detector: SpeechDetector
    voice: Voice | None


class Pool:
    """Lends its sets on the event loop's thread."""

    def __init__(self, sets: Sequence[WarmParts]) -> None:
        self.size = len(sets)
        self._free = list(sets)

    @property
    def busy(self) -> int:
        return self.size - len(self._free)

    @contextmanager
    def lend(self) -> Generator[WarmParts]:
        """Lend a set. Raises Refusal (429) if all are lent."""
        if not self._free:
            raise Refusal(
                429,
                f"All {self.size} sessions are in use. Try again later, or start voxtui serve "
                "with more --sessions.",
                code="session_limit_reached",
                kind=LIMIT,
                headers={"retry-after": str(RETRY_SECONDS)},
            )
        parts = self._free.pop()
        try:
            yield parts
        finally:
            self._free.append(parts)


@contextmanager
def warm_pool(config: Config, notify: Callable[[str], object]) -> Generator[Pool]:
    """Load `serve.sessions` sets and yield them; close them at the end. Raises ModelError."""
    from voxtui.wiring import build_detector, build_voice, recogniser

    with ExitStack() as stack:
        sets: list[WarmParts] = []
        for _ in range(config.serve.sessions):
            to_text = stack.enter_context(recogniser(config, notify))
            voice = None
            if loaders := build_voice(config, notify):
                voice = loaders.load(lambda part: part.warm_up(lambda step, fraction: None)).part
                stack.callback(voice.close)
            sets.append(WarmParts(to_text.recognise, build_detector(config), voice))
        yield Pool(sets)
