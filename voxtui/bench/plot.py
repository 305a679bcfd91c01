"""One picture of a measurement: where the time goes, and how it is distributed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from voxtui.bench.measure import Measured
from voxtui.bench.report import stage_times
from voxtui.bench.tables import MEASURED
from voxtui.dialogue.marks import Turn
from voxtui.errors import InputError, how_to_install
from voxtui.records.metrics import SPEAKING, SPEED
from voxtui.settings.schema import TargetsConfig

INKS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
"""Told apart with any kind of colour vision (M. Okabe, K. Ito, Color Universal Design, 2008)."""

HIDDEN_INK = "#BBBBBB"


def ready(path: Path) -> None:
    """Raises InputError where no picture could be written, before anything is measured."""
    if find_spec("matplotlib") is None:
        raise InputError(
            "--plot needs matplotlib, which is not installed.", how_to_install("bench")
        )
    if path.suffix != ".png":
        raise InputError(f"{path}: the picture is a PNG; name it FILE.png.")
    if not path.absolute().parent.is_dir() or path.is_dir():
        raise InputError(f"{path}: cannot be written there.")


def plot(measured: Measured, targets: TargetsConfig, path: Path) -> None:
    """Raises InputError."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _stages(left, measured)
    _distribution(right, measured.turns, targets)
    figure.suptitle(f"{measured.brain}, {len(measured.turns)} turns", fontsize=11)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InputError(f"{path}: the picture cannot be written: {error.strerror}.") from error


def _stages(axes: Any, measured: Measured) -> None:
    """A bar per clip: the median of each stage, one after another; hidden work left of zero."""
    names = [clip.name for clip in measured.clips]
    inks: dict[str, str] = {}
    for place, name in enumerate(names):
        at = 0.0
        turns = [turn for turn in measured.turns if turn.clip == name]
        for stage, times in stage_times(turns).items():
            if stage in ("writing", SPEAKING):  # beside the others, and after the first sound
                continue
            hidden, ms = stage == "hidden", statistics.median(times)
            first = stage not in inks
            ink = inks.setdefault(stage, HIDDEN_INK if hidden else INKS[len(inks) % len(INKS)])
            label = stage if first else None
            axes.barh(place, ms, left=-ms if hidden else at, color=ink, label=label, height=0.6)
            at += 0.0 if hidden else ms
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("ms from the release (median of each stage)")
    axes.set_title("Where the time goes until the first sound", fontsize=10)
    axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=8)


def _distribution(axes: Any, turns: Sequence[Turn], targets: TargetsConfig) -> None:
    """For each headline the share of turns that took at most so long; its target dashed."""
    timed = (headline for headline in MEASURED if headline is not SPEED)
    for headline, ink in zip(timed, INKS, strict=False):
        values = sorted(value for turn in turns if (value := headline.of(turn)) is not None)
        if values:
            shares = [100 * (n + 1) / len(values) for n in range(len(values))]
            axes.step(values, shares, where="post", color=ink, label=headline.name)
            axes.axvline(headline.target(targets), color=ink, linestyle=":", linewidth=1)
    axes.set_xlabel("ms from the release (dotted: target)")
    axes.set_ylabel("% of turns")
    axes.set_xscale("log")
    axes.set_ylim(0, 101)
    axes.set_title("How it is distributed", fontsize=10)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    axes.grid(alpha=0.2)
