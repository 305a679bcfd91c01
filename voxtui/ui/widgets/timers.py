"""The active timers and reminders, in one line above the talk bar."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

from textual.widgets import Static

from voxtui.dialogue.events import Countdown

TICK_SECONDS = 1 / 2

SNOOZE_KEY = "z"

HINT = "Any key: stop. Z: snooze"

LONGEST_NAME = 24


class Timers(Static):
    """Counts down. Takes no line without timers."""

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._countdowns: Sequence[Countdown] = ()
        self._line = ""

    def on_mount(self) -> None:
        self._ticking = self.set_interval(TICK_SECONDS, self.tick, pause=True)

    def use(self, countdowns: Sequence[Countdown]) -> None:
        self._countdowns = countdowns
        self.set_class(bool(countdowns), "shown")
        self.set_class(self.rings, "rings")
        (self._ticking.resume if countdowns else self._ticking.pause)()
        self.tick()

    @property
    def rings(self) -> bool:
        return any(one.rings for one in self._countdowns)

    async def on_click(self) -> None:
        await self.run_action("app.dismiss_timers")

    def tick(self) -> None:
        now = time.time()
        shown = sorted(self._countdowns, key=lambda one: not one.rings)
        line = "  ".join(describe(one, now) for one in shown)
        if self.rings:
            line = f"{HINT}  {line}"
        if line != self._line:
            self._line = line
            self.update(line, layout=False)


def describe(one: Countdown, now: float) -> str:
    """Return `pasta 4:32`, `pasta 4:32 paused` or `call mum 9:00 pm`, at Unix time `now`."""
    name = one.name if len(one.name) <= LONGEST_NAME else f"{one.name[: LONGEST_NAME - 1]}…"
    if one.rings:
        return f"◉ {name}"
    if one.missed and one.ends is not None:
        return f"! {name} missed {datetime.fromtimestamp(one.ends):%H:%M}"
    if one.clock and one.ends is not None:
        at = datetime.fromtimestamp(one.ends)
        today = at.date() == datetime.fromtimestamp(now).date()
        return f"◷ {name} {at:%H:%M}" if today else f"◷ {name} {at:%a %d %b %H:%M}"
    left = one.left if one.ends is None else one.ends - now
    paused = " paused" if one.ends is None else ""
    return f"◔ {name} {_left(left)}{paused}"


def _left(seconds: float) -> str:
    whole = max(0, round(seconds + 0.499))  # a timer of ten seconds begins at 0:10
    hours, rest = divmod(whole, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
