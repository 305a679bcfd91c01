"""The latency panel: one line, or beside the conversation a summary or the lab view."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.geometry import Size

from voxtui.dialogue.timestamps import Milestone, Outcome, Timestamps, Turn
from voxtui.settings.schema import Targets
from voxtui.ui.panel.formatting import NO_TURN, TurnTimes
from voxtui.ui.panel.history_chart import HistoryChart
from voxtui.ui.panel.latency_strip import LatencyStrip
from voxtui.ui.panel.percentile_table import PercentileTable
from voxtui.ui.panel.summary_view import SummaryView
from voxtui.ui.panel.waterfall import Waterfall

PanelSize: TypeAlias = Literal["line", "glance", "lab"]

SIZES: tuple[PanelSize, ...] = ("line", "glance", "lab")

LEAST_TERMINAL = Size(72, 16)
"""Minimum size of a terminal on which the panel is more than a line."""


def size_for(wanted: str, terminal: Size) -> PanelSize:
    """Return the size of the panel on `terminal`; `wanted` is a value of ui.panel."""
    fits = terminal.width >= LEAST_TERMINAL.width and terminal.height >= LEAST_TERMINAL.height
    return wanted if fits and wanted in ("glance", "lab") else "line"


class FullView(Vertical):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = PercentileTable()
        self._waterfall = Waterfall()
        self._history = HistoryChart()

    def compose(self) -> ComposeResult:
        yield self.numbers
        yield self._waterfall
        yield self._history

    def show(self, times: TurnTimes) -> None:
        self.numbers.set_class(times.device_ms is not None, "measured")
        self.numbers.show(times)
        self._waterfall.show(times)
        self._history.show(times)


class LatencyPanel(Container):
    """The times of this turn, live, and of the last ones. The line is `strip`, placed elsewhere."""

    def __init__(self, targets: Targets, more: str = "") -> None:
        super().__init__()
        self.chosen: PanelSize = "line"
        self._times = TurnTimes(targets)
        self.strip = LatencyStrip(self._times, more)
        self._lab = FullView()
        self._views: dict[PanelSize, SummaryView | FullView] = {
            "glance": SummaryView(),
            "lab": self._lab,
        }
        """the views, mounted when first shown, because each widget delays the first frame"""
        self._live = self._finished = NO_TURN
        self._selected: Turn | None = None
        self._typed = False

    def compose(self) -> ComposeResult:
        if view := self._views.get(self.chosen):
            yield view

    def on_mount(self) -> None:
        self.call_after_refresh(self._show)

    def on_resize(self) -> None:
        self._show()

    def show_as(self, size: PanelSize) -> None:
        self.chosen = size
        self.display = size != "line"
        self.strip.display = size == "line"
        for name, view in self._views.items():
            view.display = name == size
            self.set_class(name == size, f"-{name}")
        if self.is_mounted:
            view = self._views.get(size, self)
            if not view.is_attached:
                self.mount(view)
            view.call_after_refresh(self._show)

    def judge_by(self, targets: Targets) -> None:
        self._times.targets = targets
        self._show()

    def devices_add(self, ms: float | None) -> None:
        """Set the most that the device adds to the first sound, as measured; None if unknown."""
        self._times.device_ms = ms
        self._show()

    @property
    def turn(self) -> Turn:
        """The turn on display. Milestones may still be added to it."""
        return self._times.turn

    def select(self, turn: Turn | None) -> None:
        """Show a finished turn; None shows the turn in progress or the newest one again."""
        self._selected = turn
        self._show()

    def recall(self, turn: Turn = NO_TURN) -> None:
        """Show `turn`, or none, until the next one."""
        self._live = self._finished = turn
        self._show()

    def models_loaded(self) -> None:
        self._times.session.models_loaded()

    def begin(self, typed: bool) -> None:
        self._typed = typed
        self._times.queue, self._times.past = "", True
        if self.chosen == "line":  # the others take long to paint, and do not show it
            self.strip.show()

    def follow(self, timestamps: Timestamps, ahead: float, late: float) -> None:
        """Show the milestones reached so far. The previous turn stays until the release.

        `ahead` is how many seconds the voice is ahead of the speaker, and `late` how long it was
        behind.
        """
        times, reached = self._times, timestamps.since_release()
        before, times.queue = times.queue, _queue(timestamps, ahead, late)
        if reached and reached != self._live.timestamps:
            ahead = timestamps.speculative_s
            self._live = replace(
                NO_TURN, timestamps=reached, typed=self._typed, speculative_s=ahead
            )
            times.past = False
            self._show()
        elif times.queue != before and self.chosen == "lab":  # the others do not show it
            self._lab.numbers.show(times)

    def finish(self, turn: Turn) -> None:
        """Add a finished turn. One that ended before an answer is shown only if it failed."""
        self._times.session.add(turn)
        if turn.outcome is Outcome.FAILED or Milestone.FIRST_TOKEN in turn.timestamps:
            self._finished = turn
        self._live, self._times.queue, self._times.past = self._finished, "", False
        self._show()

    def complete(self, timestamps: Timestamps) -> None:
        reached = {**timestamps.since_release(), **self._live.timestamps}
        self._live = self._finished = replace(self._live, timestamps=reached)
        self._show()

    def _show(self) -> None:
        self._times.turn = self._selected or self._live
        self._times.selected = self._selected is not None
        if not self.is_mounted:
            return
        if view := self._views.get(self.chosen):
            view.show(self._times)
        else:
            self.strip.show()


def _queue(timestamps: Timestamps, ahead: float, late: float) -> str:
    """Return a line about the voice and the speaker; empty after the last sound."""
    over = timestamps.at(Milestone.LAST_SOUND) or timestamps.at(Milestone.CANCELLED)
    if over is not None or timestamps.at(Milestone.FIRST_AUDIO) is None:
        return ""
    return f"voice: {ahead:.1f} s ahead" + (f", {late:.1f} s too late" if late >= 0.05 else "")
