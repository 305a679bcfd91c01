"""The panel at a glance: three times, the trend and the stages, in the words of people."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from voxtui.storage.turn_metrics import FIRST_SOUND, TOTAL, TTFT
from voxtui.ui.panel.formatting import PEOPLE_NAMES, VERDICT_STYLES, TurnTimes, plain_goal, plain_ms
from voxtui.ui.panel.headline_card import HeadlineCard
from voxtui.ui.panel.history_chart import HistoryChart
from voxtui.ui.panel.waterfall import Waterfall

TITLE = "How fast was it?"
"""At most twelve numbers stand below it."""

EARLIER = "An earlier answer (Esc: newest)"


class Beside(Static):
    """First word and full answer, each above its verdict."""

    def __init__(self) -> None:
        super().__init__(markup=False)

    def show(self, times: TurnTimes) -> None:
        lines: list[Content] = []
        for headline in (TTFT, TOTAL):
            verdict = headline.verdict(times.turn, times.targets)
            value = plain_ms(headline.of(times.turn))
            lines += [
                Content.assemble((f"{PEOPLE_NAMES[headline]:<12}", "$text-muted"), (value, "bold")),
                Content.assemble(
                    (f"{verdict.sign if verdict else ' '}", VERDICT_STYLES[verdict]),
                    (f" {plain_goal(headline.goal(times.turn, times.targets))}", "$text-muted"),
                ),
            ]
        if (text := Content("\n").join(lines)) != self.content:
            self.update(text, layout=False)


class SummaryView(Vertical):
    """The first sound large, the other times beside it, the trend, and the stages."""

    def __init__(self) -> None:
        super().__init__()
        self._title = Static(TITLE, markup=False, classes="title")
        self._card = HeadlineCard(FIRST_SOUND, PEOPLE_NAMES[FIRST_SOUND])
        self._beside = Beside()
        self._history = HistoryChart(plain=True)
        self._waterfall = Waterfall(plain=True)

    def compose(self) -> ComposeResult:
        yield self._title
        with Horizontal(id="first"):
            yield self._card
            yield self._beside
        yield self._history
        yield self._waterfall

    def show(self, times: TurnTimes) -> None:
        title = EARLIER if times.selected else TITLE
        if title != self._title.content:
            self._title.update(title, layout=False)
        self._card.show(times)
        self._beside.show(times)
        self._history.show(times)
        self._waterfall.show(times)
