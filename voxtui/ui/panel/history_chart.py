"""The last turns of the session as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from voxtui.dialogue.timestamps import Turn
from voxtui.settings.schema import DEFAULT_BRAIN, TARGETS, Targets
from voxtui.storage.turn_metrics import FIRST_SOUND, WINDOW, Verdict, chart_top
from voxtui.ui.bars import CLIPPED, LOWER_EIGHTHS
from voxtui.ui.panel.formatting import PEOPLE_NAMES, TurnTimes, main_headline, number


class HistoryChart(Widget):
    """The last turns as columns, with the target: first sound, or TTFT if nothing is spoken."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"history--within", "history--over", "history--label"}

    def __init__(self, plain: bool = False) -> None:
        """Draw narrow columns without a scale, and a plain title, if `plain`."""
        super().__init__()
        self._plain = plain
        self._column_cells = 1 if plain else 2
        self._scale_cells = 0 if plain else 6
        self._headline = FIRST_SOUND
        self._targets: Targets = TARGETS[DEFAULT_BRAIN]
        self._turns: Sequence[Turn] = ()

    def show(self, times: TurnTimes) -> None:
        headline = main_headline(times.session)
        known = [turn for turn in times.session.all.turns if headline.of(turn) is not None]
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
            return Strip([Segment(self._title(target)[:width].ljust(width), label)], width)
        rows = height - 1
        room = (width - self._scale_cells) // (self._column_cells + 1)
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
                segments += [Segment(CLIPPED * self._column_cells, style), Segment(empty, label)]
            else:
                segments += self._column(value / top * rows - from_bottom, style, label, empty)
        used = self._scale_cells + len(values) * (self._column_cells + 1)
        return Strip([*segments, Segment(empty * (width - used), label)]).crop(0, width)

    def _title(self, target: float) -> str:
        if self._plain:
            return f"{PEOPLE_NAMES[self._headline]}, answer by answer"
        return f"{self._headline.name}, turn by turn, goal ≤ {target:.0f}"

    def _scale(self, row: int, rows: int, line: int, top: float, target: float) -> str:
        if self._plain:
            return ""
        value = target if row == line else top if row == rows - 1 else None
        return f"{number(value) if value is not None else '':>{self._scale_cells - 1}} "

    def _column(self, filled: float, style: Style, label: Style, empty: str) -> list[Segment]:
        """Return one row of a column that fills `filled` rows from this one up."""
        eighths = max(0, min(8, round(filled * 8)))
        if not eighths:
            return [Segment(empty * (self._column_cells + 1), label)]
        return [
            Segment(LOWER_EIGHTHS[eighths - 1] * self._column_cells, style),
            Segment(empty, label),
        ]
