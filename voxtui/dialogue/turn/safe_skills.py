"""Skills whose errors never end the program: the brain answers instead."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from traceback import extract_tb

from voxtui.dialogue.data import ToolCall
from voxtui.dialogue.events import Event
from voxtui.dialogue.protocols import SkillAnswer, SkillRequest, Skills
from voxtui.dialogue.tool_interface import Tool

_log = logging.getLogger(__name__)


class SafeSkills:
    """Forwards to `skills`, and logs their exceptions. Implements Skills."""

    def __init__(self, skills: Skills) -> None:
        self._skills = skills

    def start(self, emit: Callable[[Event], object]) -> None:
        with _logged():
            self._skills.start(emit)

    def now(self) -> datetime:
        with _logged():
            return self._skills.now()
        return datetime.now()

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self._skills.tools

    def answer(self, request: SkillRequest) -> SkillAnswer | ToolCall | None:
        with _logged():
            return self._skills.answer(request)
        return None

    def stop_ringing(self, snooze: bool = False, missed: bool = False) -> bool:
        with _logged():
            return self._skills.stop_ringing(snooze, missed)
        return False

    def doubt(self, reply: str) -> str | None:
        with _logged():
            return self._skills.doubt(reply)
        return None

    def close(self) -> None:
        with _logged():
            self._skills.close()


@contextmanager
def _logged() -> Generator[None, None, bool | None]:
    """Log an exception and suppress it, because a conversation needs no skills."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        log_failure(error)


def log_failure(error: Exception) -> None:
    """Log one line: the type of `error` and its place. Its message may quote the user's words."""
    place = extract_tb(error.__traceback__)[-1]
    kind = type(error).__name__
    _log.error("A skill failed with %s at %s:%s.", kind, Path(place.filename).name, place.lineno)
