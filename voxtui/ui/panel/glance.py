"""The panel at a glance: three times, the trend and the stages, in the words of people."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from voxtui.records.metrics import FIRST_SOUND, TOTAL, TTFT
from voxtui.ui.panel.card import Card
from voxtui.ui.panel.history import History
from voxtui.ui.panel.times import PEOPLE_NAMES, VERDICT_STYLES, Times, plain_goal, plain_ms
from voxtui.ui.panel.waterfall import Waterfall

TITLE = "How fast was it?"
"""At most twelve numbers stand below it."""

EARLIER = "An earlier answer (Esc: newest)"


class Beside(Static):
    """First word and full answer, each above its verdict."""

    def __init__(self) -> None:
        super().__init__(markup=False)

    def show(self, times: Times) -> None:
        lines: list[Content] = []
        for headline in (TTFT, TOTAL):
            kept = headline.verdict(times.turn, times.targets)
            value = plain_ms(headline.of(times.turn))
            lines += [
                Content.assemble((f"{PEOPLE_NAMES[headline]:<12}", "$text-muted"), (value, "bold")),
                Content.assemble(
                    (f"{kept.sign if kept else ' '}", VERDICT_STYLES[kept]),
                    (f" {plain_goal(headline.goal(times.turn, times.targets))}", "$text-muted"),
                ),
            ]
        if (text := Content("\n").join(lines)) != self.content:
            self.update(text, layout=False)


class Glance(Vertical):
    """The first sound large, the other times beside it, the trend, and the stages."""

    def __init__(self) -> None:
        super().__init__()
        self._title = Static(TITLE, markup=False, classes="title")
        self._card = Card(FIRST_SOUND, PEOPLE_NAMES[FIRST_SOUND])
        self._beside = Beside()
        self._history = History(plain=True)
        self._waterfall = Waterfall(plain=True)

    def compose(self) -> ComposeResult:
        yield self._title
        with Horizontal(id="first"):
            yield self._card
            yield self._beside
        yield self._history
        yield self._waterfall

    def show(self, times: Times) -> None:
        title = EARLIER if times.selected else TITLE
        if title != self._title.content:
            self._title.update(title, layout=False)
        self._card.show(times)
        self._beside.show(times)
        self._history.show(times)
        self._waterfall.show(times)
