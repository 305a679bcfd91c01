"""Tell the model when the user speaks."""

from __future__ import annotations

from datetime import datetime, timedelta

from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.protocols import Past, ReplyOptions, Skills

BEGUN_RECENTLY = timedelta(minutes=1)
"""A text that was begun longer ago gets the time of its last key. Until then the work on it stays
valid."""


class TurnClock:
    """Gives each turn its time, if the configuration and the skills have one."""

    def __init__(self, skills: Skills | None, config: LiveConfig) -> None:
        self._skills = skills
        self._config = config

    def local_time(self, begun: datetime | None = None) -> datetime | None:
        """Return the time to tell the brain, or None for no time. Any thread.

        It is `begun`, the moment at which the user began, if that is not long ago.
        """
        if self._skills is None or not self._config.current.brain.clock:
            return None
        now = self._skills.now()
        return begun if begun is not None and abs(now - begun) < BEGUN_RECENTLY else now

    def with_time(
        self, options: ReplyOptions, past: Past, begun: datetime | None = None
    ) -> ReplyOptions:
        """Return `options` with the time of a turn after `past` that the user began at `begun`."""
        at = self.local_time(begun)
        return options if at is None else options.with_clock(clock_line(at, past))


def clock_line(now: datetime, past: Past) -> str:
    """Return the line that stands before the user's words, and stays with them.

    It has the date only if no past turn of this day has it, because each digit is a token.
    """
    date = f"{now:%A}, {now.day} {now:%B} {now.year}"
    if any(date in turn.clock for turn in past):
        return f"({now:%H:%M})"
    return f"(It is {date}, {now:%H:%M}.)"
