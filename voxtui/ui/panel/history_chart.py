from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from voxtui.dialogue.timestamps import Turn
from voxtui.settings.schema import DEFAULT_BRAIN, TARGETS, Targets
from voxtui.storage.derived_latencies import FIRST_SOUND, WINDOW, Verdict, chart_top
from voxtui.ui.bars import CLIPPED, LOWER_EIGHTHS
from voxtui.ui.panel.formatting import PEOPLE_NAMES, TurnTimes, main_headline, number

COLUMN_CELLS = 2

SCALE_CELLS = 6


class HistoryChart(Widget):
    """The last turns as columns, with the target: first sound, or TTFT if nothing is spoken."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"history--within", "history--over", "history--label"}

    def __init__(self) -> None:
        super().__init__()
        self._headline = FIRST_SOUND
        self._targets: Targets = TARGETS[DEFAULT_BRAIN]
        self._turns: Sequence[Turn] = ()

    def show(self, times: TurnTimes) -> None:
        headline = main_headline(times.session)
        known = [turn for turn in times.session.all if headline.of(turn) is not None]
        turns = known[-WINDOW:]
        if turns != self._turns or times.targets != self._targets:
            self._headline, self._turns, self._targets = headline, turns, times.targets
            self.refresh()

    def render_line(self, y: int) -> Strip:
        label = self.get_component_rich_style("history--label")
        width, height = self.size
        if not self._turns or height < 3:
            return Strip.blank(width, self.rich_style)
        target = self._headline.goal(self._turns[-1], self._targets) or 0.0
        if y == 0:
            title = f"{PEOPLE_NAMES[self._headline]}, answer by answer"
            return Strip([Segment(title[:width].ljust(width), label)], width)
        rows = height - 1
        room = (width - SCALE_CELLS) // COLUMN_CELLS
        turns = self._turns[-room:]
        values = [self._headline.of(turn) or 0.0 for turn in turns]
        top = chart_top(values, target * 1.25)
        from_bottom = rows - y
        line = round(target / top * rows - 0.5)
        segments = [Segment(self._scale(from_bottom, rows, line, top, target), label)]
        empty = "┄" if from_bottom == line else " "
        for turn, value in zip(turns, values, strict=True):
            verdict = self._headline.verdict(turn, self._targets) or Verdict.WITHIN
            style = self.get_component_rich_style(f"history--{verdict.name.lower()}")
            if value > top and from_bottom == rows - 1:
                segments += [Segment(CLIPPED, style), Segment(empty, label)]
            else:
                segments += self._column(value / top * rows - from_bottom, style, label, empty)
        used = SCALE_CELLS + len(values) * COLUMN_CELLS
        return Strip([*segments, Segment(empty * (width - used), label)]).crop(0, width)

    def _scale(self, row: int, rows: int, line: int, top: float, target: float) -> str:
        value = target if row == line else top if row == rows - 1 else None
        return f"{number(value) if value is not None else '':>{SCALE_CELLS - 1}} "

    def _column(self, filled: float, style: Style, label: Style, empty: str) -> list[Segment]:
        eighths = max(0, min(8, round(filled * 8)))
        if not eighths:
            return [Segment(empty * COLUMN_CELLS, label)]
        return [Segment(LOWER_EIGHTHS[eighths - 1], style), Segment(empty, label)]
