"""The panel as a laboratory: every number of the turn and of the session."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from voxtui.ui.panel.formatting import TurnTimes
from voxtui.ui.panel.history_chart import HistoryChart
from voxtui.ui.panel.percentile_table import PercentileTable
from voxtui.ui.panel.waterfall import Waterfall


class FullView(Vertical):
    def __init__(self) -> None:
        super().__init__()
        self._numbers = PercentileTable()
        self._waterfall = Waterfall()
        self._history = HistoryChart()

    def compose(self) -> ComposeResult:
        yield self._numbers
        yield self._waterfall
        yield self._history

    def show(self, times: TurnTimes) -> None:
        self._numbers.set_class(times.device_ms is not None, "measured")
        self.show_numbers(times)
        self._waterfall.show(times)
        self._history.show(times)

    def show_numbers(self, times: TurnTimes) -> None:
        self._numbers.show(times)
