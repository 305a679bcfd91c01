"""Compare two measurements turn by turn of the same clip, with confidence intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from voxtui.bench.tables import MEASURED, number
from voxtui.dialogue.timestamps import Turn
from voxtui.errors import InputError, one_line
from voxtui.settings.files import file_errors, read_file
from voxtui.storage.derived_latencies import SPEED, Headline
from voxtui.storage.metrics_files import StoredTurn

LARGEST_REPORT = 100_000_000

FEWEST = 5
"""Minimum pairs of turns for a conclusion."""

RESAMPLES = 10_000


class OldReport(msgspec.Struct, frozen=True):
    """The compared part of a report by `voxtui bench --json`."""

    brain: str
    speaker: str
    machine: dict[str, Any]
    turns: list[StoredTurn]


def load(path: Path) -> OldReport:
    try:
        with file_errors(path, "read"):
            return msgspec.json.decode(read_file(path, LARGEST_REPORT), type=OldReport)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not a report of `voxtui bench --json`.") from error


@dataclass(frozen=True, slots=True)
class Difference:
    """New minus old, over pairs of turns."""

    pairs: int
    median: float
    low: float
    high: float
    """the upper end of the 95 % confidence interval of the median; `low` is the lower end"""

    @property
    def certain(self) -> bool:
        return self.pairs >= FEWEST and not self.low <= 0 <= self.high


def difference(old: Sequence[Turn], new: Sequence[Turn], headline: Headline) -> Difference | None:
    """Compare the n-th turns of each clip; return None without a pair.

    The interval is a bootstrap over the pairs: percentiles of resampled medians (B. Efron, R.
    Tibshirani, An Introduction to the Bootstrap, 1993).
    """
    values = [
        after - before
        for clip, turns in _by_clip(new, headline).items()
        for before, after in zip(_by_clip(old, headline).get(clip, []), turns, strict=False)
        if before is not None and after is not None
    ]
    if not values:
        return None
    random = np.random.default_rng(0)
    medians = np.median(random.choice(values, (RESAMPLES, len(values))), axis=1)
    percentile: Any = np.percentile  # untyped in part before numpy 2.4
    low, high = percentile(medians, [2.5, 97.5])
    return Difference(len(values), float(np.median(values)), float(low), float(high))


def _by_clip(turns: Sequence[Turn], headline: Headline) -> Mapping[str | None, list[float | None]]:
    by_clip: defaultdict[str | None, list[float | None]] = defaultdict(list)
    for turn in turns:
        by_clip[turn.clip].append(headline.of(turn))
    return by_clip


def compare(
    old: OldReport, path: Path, turns: Sequence[Turn], about: Mapping[str, Any]
) -> list[str]:
    date = old.machine.get("date", "an unknown day")
    lines = [one_line(f"Compared with {path} of {date}, turn by turn:")]
    for name, before, after in (
        ("brain", old.brain, about["brain"]),
        ("speaker", old.speaker, about["speaker"]),
        ("machine", old.machine.get("cpu"), about["machine"]["cpu"]),
    ):
        if before != after:
            lines.append(f"  {one_line(f'Different {name}: it was {before}, it is {after}.')}")
    earlier = [turn.as_turn() for turn in old.turns]
    compared = [(h, difference(earlier, turns, h)) for h in MEASURED]
    lines += [_line(headline, diff) for headline, diff in compared if diff]
    if not any(diff for _, diff in compared):
        lines.append("  The reports have no clip in common.")
    return lines


def _line(headline: Headline, diff: Difference) -> str:
    unit = f" {headline.unit}".rstrip()
    shift = f"{_signed(diff.median)}{unit} [{_signed(diff.low)}, {_signed(diff.high)}]"
    return f"  {headline.name:<12} {shift:<28} {_word(headline, diff)} ({diff.pairs} pairs)"


def _word(headline: Headline, diff: Difference) -> str:
    if diff.pairs < FEWEST:
        return "too few to tell"
    if not diff.certain:
        return "no difference"
    better = (diff.median > 0) == (headline is SPEED)
    return "faster" if better else "slower"


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{number(abs(value))}"
