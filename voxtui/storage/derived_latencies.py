"""Numbers derived from the timestamps of turns: headlines, verdicts, percentiles and stages."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from voxtui.dialogue.data import SKILL
from voxtui.dialogue.timestamps import Milestone, Turn
from voxtui.settings.schema import Targets

WINDOW = 20
"""Number of turns for p50, p95 and p99."""


class Verdict(StrEnum):
    """The result of a number against its target, as a word and a sign, not as a colour alone."""

    WITHIN = "ok"
    OVER = "over"

    @property
    def sign(self) -> str:
        return "✓" if self is Verdict.WITHIN else "✗"


def verdict(value: float | None, target: float | None) -> Verdict | None:
    if value is None or target is None:
        return None
    return Verdict.WITHIN if value <= target else Verdict.OVER


@dataclass(frozen=True, slots=True)
class Headline:
    """A number of a turn that may have a target."""

    name: str
    unit: str
    attribute: str
    """its name in Turn and, if it has a target, in Targets"""
    mark: Milestone | None = None
    """the milestone that ends it, if it is a time"""

    def of(self, turn: Turn) -> float | None:
        return getattr(turn, self.attribute)

    def values(self, turns: Iterable[Turn]) -> list[float]:
        return [value for turn in turns if (value := self.of(turn)) is not None]

    def target(self, targets: Targets) -> float | None:
        return getattr(targets, self.attribute, None)

    @property
    def key(self) -> str:
        return self.name.lower().replace(" ", "_").replace("/", "_per_")

    def goal(self, turn: Turn, targets: Targets) -> float | None:
        return self.target(targets.judging(turn.typed))

    def verdict(self, turn: Turn, targets: Targets) -> Verdict | None:
        return verdict(self.of(turn), self.goal(turn, targets))

    def from_speech_end(self, turn: Turn) -> float | None:
        """Return the milliseconds from the end of speech instead of the release, or None."""
        return None if self.mark is None else turn.ms(self.mark, since=Milestone.SPEECH_ENDED)


TTFT = Headline("TTFT", "ms", "ttft_ms", Milestone.FIRST_TOKEN)
FIRST_SOUND = Headline("First sound", "ms", "first_sound_ms", Milestone.FIRST_SOUND)
TOTAL = Headline("Total", "ms", "total_ms", Milestone.LAST_TOKEN)
SPEED = Headline("Tokens/s", "", "tokens_per_s")

TIMES = (TTFT, FIRST_SOUND, TOTAL)

HEADLINES = (*TIMES, SPEED)

SPOKEN_NAMES = {TTFT: "First token", FIRST_SOUND: "first sound", TOTAL: "total"}


def times_sentence(turn: Turn, targets: Targets, device_ms: float | None) -> str:
    """Return the headlines of `turn`, each with its verdict. `device_ms`: the speaker's delay."""
    known: list[str] = []
    for headline, name in SPOKEN_NAMES.items():
        value, target = headline.of(turn), headline.goal(turn, targets)
        if value is not None and (judged := headline.verdict(turn, targets)):
            devices = ""
            if headline is FIRST_SOUND and device_ms is not None:
                devices = f" and {device_ms:.0f} in the devices"
            known.append(f"{name} {value:.0f} ms{devices}, {judged} {target:.0f}")
    return f"{', '.join(known)}." if known else "No numbers."


def percentile(values: Iterable[float], percent: float) -> float | None:
    """Return the smallest value that `percent` % of `values` do not exceed (nearest rank), or None.

    Without interpolation, so that each percentile is the time of a real turn.
    """
    ordered = sorted(values)
    return _rank(ordered, percent) if ordered else None


def _rank(ordered: Sequence[float], percent: float) -> float:
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


@dataclass(frozen=True, slots=True)
class Spread:
    n: int
    p50: float
    p95: float
    p99: float
    min: float
    max: float


def spread(values: Iterable[float | None]) -> Spread | None:
    """Return the distribution of the values other than None, or None if there are none."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    p50, p95, p99 = (_rank(known, percent) for percent in (50, 95, 99))
    return Spread(len(known), p50, p95, p99, known[0], known[-1])


class SessionTimes:
    """The turns since the start. The first one after models were loaded counts as cold.

    Turns that a skill answered do not count, because no model worked on them, nor those that waited
    for a key. When the brain
    changes its way of computing (`path`), the warm turns begin anew.
    """

    def __init__(self) -> None:
        self.all: list[Turn] = []
        self.warm = deque[Turn](maxlen=WINDOW)
        self.cold = deque[Turn](maxlen=WINDOW)
        self._models_are_new = True
        self._path = ""

    def models_loaded(self) -> None:
        self._models_are_new = True

    def add(self, turn: Turn) -> None:
        if turn.ttft_ms is None or turn.brain == SKILL or Milestone.CONFIRMED in turn.timestamps:
            return
        if turn.path != self._path:  # a faster path answers from now on
            self._path = turn.path
            self.warm.clear()
        self.all.append(turn)
        (self.cold if self._models_are_new else self.warm).append(turn)
        self._models_are_new = False


def chart_top(values: Sequence[float], at_least: float = 0.0) -> float:
    """Return the upper end of a scale for `values` that a single outlier does not flatten."""
    middle = percentile(values, 50) or 0.0
    return max(at_least, min(max(values, default=0.0), 3 * middle))


def downsample_max(values: Sequence[float], width: int) -> list[float]:
    """Return at most `width` values, the largest of each range, so that no peak is lost."""
    if len(values) <= width:
        return [*values]
    edges = [len(values) * i // width for i in range(width + 1)]
    return [max(values[begin:end]) for begin, end in pairwise(edges)]


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a turn, in seconds from the release."""

    name: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class PlaybackLead:
    """Computes how much synthesised speech of a turn still waits to be played."""

    def __init__(self) -> None:
        self.underrun_s = 0.0
        """the seconds in which the speaker had nothing to play because the voice was too slow"""
        self._made_s = 0.0

    def update(self, made_s: float, playing_s: float) -> float:
        """Return the lead, from seconds of speech made and seconds since the first sound."""
        if self._made_s and made_s > self._made_s:  # the speaker may have been silent before
            self.underrun_s = max(self.underrun_s, playing_s - self._made_s)
        self._made_s = made_s
        return max(0.0, made_s - (playing_s - self.underrun_s))


def characters_at(spoken: Sequence[tuple[int, float]], seconds: float) -> int:
    """Return the number of characters of a reply that were heard in `seconds` of its speech.

    `spoken` is that of Timestamps. Within a clause the characters count as evenly spaced.
    """
    for (begin, since), (end, until) in pairwise(spoken):
        if seconds < until:
            share = max(0.0, seconds - since) / (until - since)
            return begin + int((end - begin) * share)
    return spoken[-1][0]


_PATH: Sequence[tuple[str, Milestone]] = (
    ("listen", Milestone.CAPTURED),
    ("send", Milestone.SENT),
    ("encode", Milestone.ENCODED),
    ("recognise", Milestone.TRANSCRIBED),
    ("skill", Milestone.SKILL),
    ("prefill", Milestone.PREFILLED),
    ("call", Milestone.CALLED),
    ("key", Milestone.CONFIRMED),
    ("tool", Milestone.TOOL_ENDED),
    ("result", Milestone.RESULT_READ),
    ("token", Milestone.FIRST_TOKEN),
    ("clause", Milestone.FIRST_CLAUSE),
    ("language", Milestone.LANGUAGE),
    ("voice", Milestone.FIRST_AUDIO),
    ("device", Milestone.FIRST_SOUND),
)
"""The stages from the release to the first sound, each with the milestone that ends it."""

SPEAKING = "speaking"

_BESIDE: Sequence[tuple[str, Milestone, Milestone]] = (
    ("writing", Milestone.FIRST_TOKEN, Milestone.LAST_TOKEN),
    (SPEAKING, Milestone.FIRST_SOUND, Milestone.LAST_SOUND),
)
"""The stages that overlap those or follow them, each with its first and last milestone."""


def stages(timestamps: Mapping[str, float], speculative_s: float = 0.0) -> list[Stage]:
    """Return the stages that `timestamps` (seconds from the release) reached, hidden work first.

    A stage begins where the previous one ended. A stage that ended before the release has no
    length. A prompt that was read after the first token, beside the voice, is part of the writing.
    """
    reached = [Stage("hidden", -speculative_s, 0.0)] if speculative_s > 0 else []
    at, first = 0.0, timestamps.get(Milestone.FIRST_TOKEN, math.inf)
    for name, mark in _PATH:
        seconds = timestamps.get(mark)
        if seconds is not None and (seconds <= first or mark is not Milestone.PREFILLED):
            end = max(at, seconds)
            reached.append(Stage(name, at, end))
            at = end
    for name, begin, end in _BESIDE:
        first, last = timestamps.get(begin), timestamps.get(end)
        if first is not None and last is not None:
            reached.append(Stage(name, first, last))
    return reached
