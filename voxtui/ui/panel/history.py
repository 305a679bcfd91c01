"""The last turns of the session as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from voxtui.dialogue.marks import Turn
from voxtui.records.metrics import FIRST_SOUND, WINDOW, SessionTimes, Verdict, chart_top
from voxtui.settings.schema import Targets
from voxtui.ui.bars import CLIPPED, LOWER_EIGHTHS
from voxtui.ui.panel.numbers import main_headline, number


class History(Widget):
    """The last turns as columns, with the target: first sound, or TTFT if nothing is spoken."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"history--within", "history--over", "history--label"}

    COLUMN_CELLS = 2
    SCALE_CELLS = 6

    def __init__(self, targets: Targets) -> None:
        super().__init__()
        self.targets = targets
        self._headline = FIRST_SOUND
        self._turns: Sequence[Turn] = ()

    def show(self, session: SessionTimes) -> None:
        self._headline = main_headline(session)
        known = [turn for turn in session.all.turns if self._headline.of(turn) is not None]
        self._turns = known[-WINDOW:]
        self.refresh()

    def render_line(self, y: int) -> Strip:
        label = self.get_component_rich_style("history--label")
        width, height = self.size
        if not self._turns or height < 3:
            return Strip.blank(width, self.rich_style)
        target = self._headline.goal(self._turns[-1], self.targets) or 0.0
        if y == 0:
            title = f"{self._headline.name}, turn by turn, goal ≤ {target:.0f}"
            return Strip([Segment(title[:width].ljust(width), label)], width)
        rows = height - 1
        room = (width - self.SCALE_CELLS) // (self.COLUMN_CELLS + 1)
        turns = self._turns[-room:]
        values = [self._headline.of(turn) or 0.0 for turn in turns]
        top = chart_top(values, target * 1.25)
        from_bottom = rows - y
        line = round(target / top * rows - 0.5)
        segments = [Segment(self._scale(from_bottom, rows, line, top, target), label)]
        empty = "┄" if from_bottom == line else " "
        for turn, value in zip(turns, values, strict=True):
            kept = self._headline.verdict(turn, self.targets) or Verdict.WITHIN
            style = self.get_component_rich_style(f"history--{kept.name.lower()}")
            if value > top and from_bottom == rows - 1:
                segments += [Segment(CLIPPED * self.COLUMN_CELLS, style), Segment(empty, label)]
            else:
                segments += self._column(value / top * rows - from_bottom, style, label, empty)
        used = self.SCALE_CELLS + len(values) * (self.COLUMN_CELLS + 1)
        return Strip([*segments, Segment(empty * (width - used), label)]).crop(0, width)

    def _scale(self, row: int, rows: int, line: int, top: float, target: float) -> str:
        value = target if row == line else top if row == rows - 1 else None
        return f"{number(value) if value is not None else '':>{self.SCALE_CELLS - 1}} "

    def _column(self, filled: float, style: Style, label: Style, empty: str) -> list[Segment]:
        """Return one row of a column that fills `filled` rows from this one up."""
        eighths = max(0, min(8, round(filled * 8)))
        if not eighths:
            return [Segment(empty * (self.COLUMN_CELLS + 1), label)]
        return [
            Segment(LOWER_EIGHTHS[eighths - 1] * self.COLUMN_CELLS, style),
            Segment(empty, label),
        ]
