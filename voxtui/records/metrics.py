"""What the marks of turns say: headlines, verdicts, the window of the last turns, and stages."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TypeAlias

from voxtui.dialogue.marks import Mark, Turn
from voxtui.settings.schema import TargetsConfig

WINDOW = 20
"""Turns that p50, p95 and p99 are taken over."""

DeviceOffset: TypeAlias = Callable[[str | None], float | None]
"""Milliseconds that were measured of this speaker, beyond what the sound system knows."""


class Verdict(StrEnum):
    """A number against its target, in a word and in a sign, so that it never depends on colour."""

    WITHIN = "ok"
    OVER = "over"

    @property
    def sign(self) -> str:
        return "✓" if self is Verdict.WITHIN else "✗"


def verdict(value: float | None, target: float | None) -> Verdict | None:
    """Whether `value` keeps to `target`; None where either is missing."""
    if value is None or target is None:
        return None
    return Verdict.WITHIN if value <= target else Verdict.OVER


@dataclass(frozen=True, slots=True)
class Headline:
    """A number a turn is judged by."""

    name: str
    unit: str
    of: Callable[[Turn], float | None]
    target: Callable[[TargetsConfig], float | None]
    mark: Mark | None = None
    """where it ends, for a time"""

    @property
    def key(self) -> str:
        """Its name in JSON and on the command line."""
        return self.name.lower().replace(" ", "_").replace("/", "_per_")

    def felt(self, turn: Turn) -> float | None:
        """The time as a person feels it: from the end of the speech instead of the release."""
        return None if self.mark is None else turn.ms(self.mark, since=Mark.SPEECH_ENDED)


TTFT = Headline(
    "TTFT",
    "ms",
    lambda turn: turn.ttft_ms,
    lambda targets: targets.ttft_ms,
    Mark.FIRST_TOKEN,
)
FIRST_SOUND = Headline(
    "First sound",
    "ms",
    lambda turn: turn.first_sound_ms,
    lambda targets: targets.first_sound_ms,
    Mark.FIRST_SOUND,
)
TOTAL = Headline(
    "Total",
    "ms",
    lambda turn: turn.total_ms,
    lambda targets: targets.total_ms,
    Mark.LAST_TOKEN,
)
SPEED = Headline("Tokens/s", "", lambda turn: turn.tokens_per_s, lambda targets: None)

TIMES = (TTFT, FIRST_SOUND, TOTAL)

HEADLINES = (*TIMES, SPEED)


def percentile(values: Iterable[float], percent: float) -> float | None:
    """The nearest rank: the smallest value that `percent` % of `values` do not exceed.

    None without any value. No interpolation: each is a turn that there was.
    """
    ordered = sorted(values)
    return _rank(ordered, percent) if ordered else None


def _rank(ordered: Sequence[float], percent: float) -> float:
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


@dataclass(frozen=True, slots=True)
class Spread:
    """How a number is distributed."""

    n: int
    p50: float
    p95: float
    p99: float
    least: float
    most: float


def spread(values: Iterable[float | None]) -> Spread | None:
    """Of the values that are there; None without any."""
    found = sorted(value for value in values if value is not None)
    if not found:
        return None
    p50, p95, p99 = (_rank(found, percent) for percent in (50, 95, 99))
    return Spread(len(found), p50, p95, p99, found[0], found[-1])


class Window:
    """The last turns that reached a first token."""

    def __init__(self, size: int | None = WINDOW) -> None:
        self._turns: deque[Turn] = deque(maxlen=size)

    def add(self, turn: Turn) -> None:
        if turn.ttft_ms is not None:
            self._turns.append(turn)

    def __len__(self) -> int:
        return len(self._turns)

    def values(self, headline: Headline) -> list[float]:
        """Oldest first; turns without this number are left out."""
        return [value for turn in self._turns if (value := headline.of(turn)) is not None]

    def percentile(self, headline: Headline, percent: float) -> float | None:
        return percentile(self.values(headline), percent)


class SessionTimes:
    """The turns since the start. The first after models were loaded is cold, and kept apart."""

    def __init__(self) -> None:
        self.all = Window(None)
        self.warm = Window()
        self.cold = Window()
        self._models_are_new = True

    def models_loaded(self) -> None:
        self._models_are_new = True

    def add(self, turn: Turn) -> None:
        if turn.ttft_ms is None:
            return
        self.all.add(turn)
        (self.cold if self._models_are_new else self.warm).add(turn)
        self._models_are_new = False


def downsample_max(values: Sequence[float], width: int) -> list[float]:
    """At most `width` values that stand for all: the largest of each stretch, so none is hidden."""
    if len(values) <= width:
        return [*values]
    edges = [len(values) * i // width for i in range(width + 1)]
    return [max(values[begin:end]) for begin, end in pairwise(edges)]


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of a turn, in seconds from the release."""

    name: str
    start: float
    end: float
    hidden: bool = False
    """done before the release, while the key was held"""

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Lead:
    """How much speech of a turn is made and waits to be heard: whether the voice keeps up."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        """seconds in which the speaker had nothing to play, as the voice was too slow"""
        self._made_s = 0.0

    def seconds(self, made_s: float, sounding_s: float) -> float:
        """Of `made_s` seconds of speech, those not heard yet `sounding_s` after the first sound."""
        if self._made_s and made_s > self._made_s:  # a silence before it was one within the answer
            self.waited_s = max(self.waited_s, sounding_s - self._made_s)
        self._made_s = made_s
        return max(0.0, made_s - (sounding_s - self.waited_s))


_PATH: Sequence[tuple[str, Mark]] = (
    ("listen", Mark.CAPTURED),
    ("send", Mark.SENT),
    ("encode", Mark.ENCODED),
    ("recognise", Mark.TRANSCRIBED),
    ("prefill", Mark.PREFILLED),
    ("token", Mark.FIRST_TOKEN),
    ("clause", Mark.FIRST_CLAUSE),
    ("voice", Mark.FIRST_AUDIO),
    ("device", Mark.FIRST_SOUND),
)
"""The way from the release to the first sound: each stage ends at its mark."""

SPEAKING = "speaking"

_BESIDE: Sequence[tuple[str, Mark, Mark]] = (
    ("writing", Mark.FIRST_TOKEN, Mark.LAST_TOKEN),
    (SPEAKING, Mark.FIRST_SOUND, Mark.LAST_SOUND),
)
"""What goes on beside that way, or after it."""


def stages(marks: Mapping[str, float], speculative_s: float = 0.0) -> list[Stage]:
    """What the time after the release went into, and how much work was hidden before it.

    `marks` are seconds relative to the release. A stage begins where the last one reached ended;
    one that was over before the release takes no time after it.
    """
    found = [Stage("hidden", -speculative_s, 0.0, hidden=True)] if speculative_s > 0 else []
    at = 0.0
    for name, mark in _PATH:
        if (reached := marks.get(mark)) is not None:
            end = max(at, reached)
            found.append(Stage(name, at, end))
            at = end
    for name, begin, end in _BESIDE:
        first, last = marks.get(begin), marks.get(end)
        if first is not None and last is not None:
            found.append(Stage(name, first, last))
    return found
