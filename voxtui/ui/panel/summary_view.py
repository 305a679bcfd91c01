"""The panel as a summary: three times with their targets, the trend and the stages."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from voxtui.storage.derived_latencies import FIRST_SOUND, TOTAL, TTFT
from voxtui.ui.panel.formatting import (
    PEOPLE_NAMES,
    TYPED,
    VERDICT_STYLES,
    TurnTimes,
    plain_goal,
    plain_ms,
)
from voxtui.ui.panel.history_chart import HistoryChart
from voxtui.ui.panel.waterfall import Waterfall

TITLE = "How fast was it?"

EARLIER = "An earlier answer (Esc: newest)"


class SummaryView(Vertical):
    """At most fourteen numbers, in plain words."""

    def __init__(self) -> None:
        super().__init__()
        self._times = Static(markup=False, classes="times")
        self._history = HistoryChart()
        self._waterfall = Waterfall(plain=True)

    def compose(self) -> ComposeResult:
        yield self._times
        yield self._history
        yield self._waterfall

    def show(self, times: TurnTimes) -> None:
        if (text := Content("\n").join(_lines(times))) != self._times.content:
            self._times.update(text, layout=False)
        self._history.show(times)
        self._waterfall.show(times)


def _lines(times: TurnTimes) -> list[Content]:
    lines = [Content.styled(EARLIER if times.selected else TITLE, "$text-muted bold"), Content()]
    for headline in (FIRST_SOUND, TTFT, TOTAL):
        verdict = headline.verdict(times.turn, times.targets)
        goal = plain_goal(headline.goal(times.turn, times.targets))
        lines.append(
            Content.assemble(
                (f"{PEOPLE_NAMES[headline]:<13}", "$text-muted"),
                (f"{plain_ms(headline.of(times.turn)):>8}", "bold"),
                (f"   {verdict.sign if verdict else ' '} ", VERDICT_STYLES[verdict]),
                (goal, "$text-muted"),
            )
        )
    return [*lines, Content.styled(TYPED if times.turn.typed else "", "$text-muted")]
