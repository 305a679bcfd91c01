from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from voxtui.settings.schema import DEFAULT_BRAIN, TARGETS, Targets
from voxtui.storage.derived_latencies import SPEAKING, Stage, stages
from voxtui.ui.bars import bar
from voxtui.ui.panel.formatting import NO_TURN, TurnTimes, short_ms

LABEL_CELLS = 10
VALUE_CELLS = 8

STAGES = {
    "hidden": ("hidden", ""),
    "listen": ("wait", "hearing"),
    "send": ("wait", "hearing"),
    "encode": ("brain", "hearing"),
    "recognise": ("brain", "hearing"),
    "skill": ("brain", "thinking"),
    "prefill": ("brain", "thinking"),
    "call": ("brain", ""),
    "key": ("wait", ""),
    "tool": ("brain", ""),
    "result": ("brain", ""),
    "token": ("brain", "thinking"),
    "writing": ("writing", "writing"),
    "clause": ("brain", "thinking"),
    "language": ("voice", "voice"),
    "voice": ("voice", "voice"),
    "device": ("sound", "voice"),
    "speaking": ("sound", ""),
}
"""The style of each stage, and its plain name, which several may share; empty for none."""

PLAIN_LOOKS = {plain: look for look, plain in reversed(STAGES.values()) if plain}


class Waterfall(Widget):
    """The stages as bars on a time axis from the release. Speculative work lies left of zero."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"waterfall--{look}" for look, _ in STAGES.values()),
        "waterfall--label",
    }

    def __init__(self, plain: bool = False) -> None:
        """Draw few stages with plain names if `plain`."""
        super().__init__()
        self._plain = plain
        self._targets: Targets = TARGETS[DEFAULT_BRAIN]
        self._stages: Sequence[Stage] = ()
        self._turn = NO_TURN

    def show(self, times: TurnTimes) -> None:
        turn = times.turn
        found = stages(turn.timestamps, turn.speculative_s)
        found = plain_stages(found) if self._plain else found
        unchanged = found == self._stages and turn.timestamps.keys() == self._turn.timestamps.keys()
        if not unchanged or times.targets != self._targets:
            self._stages, self._turn, self._targets = found, turn, times.targets
            self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        label = self.get_component_rich_style("waterfall--label")
        cells = width - LABEL_CELLS - VALUE_CELLS
        if cells < 4 or self._turn is NO_TURN:
            return Strip([Segment(self._empty(y)[:width].ljust(width), label)], width)
        targets = self._targets.judging(self._turn.typed)
        at_least = max(targets.ttft_ms, targets.first_sound_ms) / 1000
        axis = Axis(self._stages, cells, at_least)
        rows = self._rows(self.size.height - 1)
        if y < len(rows):
            return self._stage_line(rows[y], axis, cells, label)
        if y == len(rows):
            line = f"{'':<{LABEL_CELLS}}{axis.labels()}{'':<{VALUE_CELLS}}"
            return Strip([Segment(line, label)], width)
        return Strip.blank(width, self.rich_style)

    def _empty(self, y: int) -> str:
        lines = ("The stages of a turn are drawn here,", "on a time axis from the release on.")
        return lines[y] if y < len(lines) else ""

    def _rows(self, room: int) -> Sequence[Stage]:
        """Return the stages that fit; the shortest are left out first."""
        if len(self._stages) <= room:
            return self._stages
        longest = sorted(self._stages, key=lambda stage: stage.seconds, reverse=True)[:room]
        return [stage for stage in self._stages if stage in longest]

    def _stage_line(self, stage: Stage, axis: Axis, cells: int, label: Style) -> Strip:
        look = PLAIN_LOOKS[stage.name] if self._plain else STAGES[stage.name][0]
        style = self.get_component_rich_style(f"waterfall--{look}")
        ground = [Segment(" ", label)] * cells
        ground[axis.zero] = Segment("▏", label)
        bars = bar(axis.cell(stage.start), axis.cell(stage.end), style, ground)
        name = Segment(f"{stage.name:<{LABEL_CELLS}}", label)
        value = Segment(f"{short_ms(stage.seconds):>{VALUE_CELLS}}", self.rich_style)
        return Strip([name, *bars, value], cells + LABEL_CELLS + VALUE_CELLS)


def plain_stages(found: Sequence[Stage]) -> list[Stage]:
    merged: dict[str, Stage] = {}
    for stage in found:
        if name := STAGES[stage.name][1]:
            first = merged.get(name, stage)
            merged[name] = Stage(name, first.start, stage.end)
    return list(merged.values())


class Axis:
    """Maps seconds since the release to cells. The scale ends at a round number."""

    HIDDEN_SHARE = 0.3
    """Length after which speculative work is cut off. Its row shows its duration."""

    def __init__(self, found: Sequence[Stage], cells: int, at_least: float) -> None:
        hidden = -min((stage.start for stage in found), default=0.0)
        # Speaking does not set the scale, because its length says nothing about speed.
        ends = [stage.end for stage in found if stage.name != SPEAKING]
        self.end = _round_up(max([*ends, at_least]))
        self._cells = cells
        left = min(hidden / (hidden + self.end), self.HIDDEN_SHARE) * cells
        self.zero = math.ceil(left)
        self._per_second = (cells - self.zero) / self.end

    def cell(self, seconds: float) -> float:
        return max(0.0, self.zero + seconds * self._per_second)

    def labels(self) -> str:
        line = [" "] * self._cells
        end = short_ms(self.end)
        for at, text in ((self.zero, "0"), (self._cells - len(end), end)):
            line[at : at + len(text)] = text
        return "".join(line[: self._cells])


def _round_up(seconds: float) -> float:
    """Return the next larger round number, so that the bars of a running turn do not jitter."""
    scale = 10.0 ** math.floor(math.log10(max(seconds, 0.1)))
    return next(step * scale for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * scale >= seconds)
