"""The panel as one line: the times of this turn against their targets."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from voxtui.storage.turn_metrics import FIRST_SOUND, TIMES, Headline
from voxtui.ui.panel.formatting import PEOPLE_NAMES, VERDICT_STYLES, TurnTimes, against

GAP = "  "

EARLIER = "◂ "
"""In front of the times of a selected turn."""


class TimesLine(Static):
    """First word, first sound and full answer in a row; as much of it as there is room for."""

    ALLOW_SELECT = False

    def __init__(self, times: TurnTimes) -> None:
        super().__init__(markup=False)
        self._times = times

    def on_resize(self) -> None:
        self.show()

    def show(self) -> None:
        width = self.content_size.width
        fits = (line for line in _lines(self._times) if line.cell_length <= width)
        line = next(fits, Content())
        if line != self.content:
            self.update(line, layout=False)


def _lines(times: TurnTimes) -> list[Content]:
    lines = [
        Content(GAP).join([_part(headline, times, goals=True) for headline in TIMES]),
        Content(GAP).join([_part(headline, times, goals=False) for headline in TIMES]),
        _part(FIRST_SOUND, times, goals=False),
    ]
    return [Content(EARLIER) + line for line in lines] if times.selected else lines


def _part(headline: Headline, times: TurnTimes, goals: bool) -> Content:
    verdict = headline.verdict(times.turn, times.targets)
    goal = headline.goal(times.turn, times.targets) if goals else None
    value, target = against(headline.of(times.turn), goal)
    return Content.assemble(
        (f"{PEOPLE_NAMES[headline]} ", "$text-muted"),
        (f"{verdict.sign} " if verdict else "", VERDICT_STYLES[verdict]),
        (value, f"bold {VERDICT_STYLES[verdict]}".strip()),
        (target, "$text-muted"),
    )
