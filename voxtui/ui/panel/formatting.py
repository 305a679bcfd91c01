from __future__ import annotations

from dataclasses import dataclass, field

from voxtui.dialogue.timestamps import Outcome, Turn
from voxtui.settings.schema import Targets
from voxtui.storage.derived_latencies import (
    FIRST_SOUND,
    TOTAL,
    TTFT,
    Headline,
    SessionTimes,
    Verdict,
)

NO_TURN = Turn(0, "", Outcome.ANSWERED, {})

PEOPLE_NAMES = {TTFT: "first word", FIRST_SOUND: "first sound", TOTAL: "full answer"}
"""The headlines in plain words; the lab view has the technical names."""

VERDICT_STYLES = {Verdict.WITHIN: "$text-success", Verdict.OVER: "$text-warning", None: ""}


TYPED = "typed: less is ready, so longer targets"
"""Why the targets of a typed turn differ from those of a spoken one."""


def figure(turn: Turn) -> str:
    """Return the first sound, or the first word of a silent answer; empty without either."""
    headline = TTFT if turn.first_sound_ms is None else FIRST_SOUND
    if headline.of(turn) is None:
        return ""
    return f"{'♪ ' if headline is FIRST_SOUND else ''}{plain_ms(headline.of(turn))}"


@dataclass(slots=True)
class TurnTimes:
    targets: Targets
    session: SessionTimes = field(default_factory=SessionTimes)
    turn: Turn = NO_TURN
    selected: bool = False
    """whether the turn on display was selected and is not the newest one"""
    past: bool = False
    """whether a newer turn is in progress that has no times yet"""
    queue: str = ""
    """a line about synthesised speech that is not played yet; empty without such speech"""
    device_ms: float | None = None
    """the measured delay of the speaker in ms, which `first_sound` does not include"""


def main_headline(session: SessionTimes) -> Headline:
    """Return the headline that sums up a session: first sound, or TTFT if nothing is spoken."""
    return FIRST_SOUND if FIRST_SOUND.values(session.all) else TTFT


def number(value: float | None, thousand: str = "s") -> str:
    """Format a headline in four cells. `thousand` is the unit for values of 10,000 and more."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value < 9999.5 else f"{value / 1000:.0f}{thousand}"


def short_ms(seconds: float) -> str:
    """Format a duration in at most eight cells: `1.5 ms`, `150 ms`, `12.3 s`."""
    ms = seconds * 1000
    if ms >= 9999.5:
        return f"{seconds:.1f} s"
    return f"{ms:.0f} ms" if ms >= 9.95 or ms == 0 else f"{ms:.1f} ms"


def plain_ms(value: float | None) -> str:
    """Format milliseconds in plain words: `338 ms`, `1.24 s`, `37 s`."""
    if value is None:
        return "–"
    if value < 999.5:
        return f"{value:.0f} ms"
    seconds = value / 1000
    return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.0f} s"


def plain_goal(value: float | None) -> str:
    """Format a target in plain words: `≤ 500 ms`, `≤ 5 s`; empty for None."""
    if value is None:
        return ""
    return f"≤ {value:g} ms" if value < 1000 else f"≤ {value / 1000:g} s"
