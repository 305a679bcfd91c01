"""Work on the model's thread, and when each stage of it was done."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from threading import Event as Flag

from voxtui.brains.speculation import Speculation


class ModelWork(Speculation[int]):
    """A generator of tokens on the model's thread. It yields None where it can be stopped."""

    def __init__(
        self,
        work: Callable[[], Generator[int | None, None, None]],
        cancelled: Flag,
        ahead: int | None = None,
        key: Hashable = None,
    ) -> None:
        super().__init__(key, cancelled, ahead)
        self._work = work
        self._items: Generator[int | None, None, None] | None = None

    def advance(self, wanted: Callable[[], bool]) -> bool:
        """Run the generator on. See Speculation."""
        self._items = self._items or self._work()
        while wanted():
            try:
                token = next(self._items)
            except StopIteration:
                return True
            if token is not None:
                self.add(token)
        return False

    def release(self) -> None:
        """Close the generator where it stands."""
        items, self._items = self._items, None
        if items is not None:
            items.close()


@dataclass(slots=True)
class Timing:
    """When a reply's audio was encoded and its prompt prefilled (monotonic seconds)."""

    encoded_at: float | None = None
    prefilled_at: float | None = None


class VoxtralReply(ModelWork):
    """The reply to an utterance or a typed text."""

    def __init__(
        self,
        work: Callable[[], Generator[int | None, None, None]],
        timing: Timing,
        cancelled: Flag,
        ahead: int | None,
        key: Hashable,
    ) -> None:
        super().__init__(work, cancelled, ahead, key)
        self.timing = timing
