"""The skills of the person at this machine: clock, sums and units."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from importlib import import_module

PREPARE_SECONDS = 2.0
"""Longest wait for the rules, whose patterns take a tenth of a second to compile."""


class LocalSkills:
    """Answers from rules, in memory and without a model. `now` returns the local time."""

    def __init__(self, now: Callable[[], datetime] = datetime.now) -> None:
        self._now = now
        self._thread = threading.Thread(target=self._prepare, name="voxtui-skills", daemon=True)

    def start(self) -> None:
        """Compile the rules on a thread of their own. Returns at once."""
        self._thread.start()

    def close(self) -> None:
        """End the thread. May be called twice."""
        if self._thread.is_alive():
            self._thread.join(PREPARE_SECONDS)

    def answer(self, words: str, again: bool) -> str | None:
        """Return the answer to `words`, or None. See Skills."""
        from voxtui.skills.meaning import Fact
        from voxtui.skills.understand import understand

        match understand(words, self._now()):
            case Fact(sentence=sentence):
                return sentence
            case _:
                return None

    def _prepare(self) -> None:
        import_module("voxtui.skills.understand")
