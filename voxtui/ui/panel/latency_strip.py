from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from textual.content import Content
from textual.widgets import Static

from voxtui.storage.derived_latencies import FIRST_SOUND, TTFT, Stage, stages
from voxtui.ui.bars import blocks
from voxtui.ui.panel.formatting import PEOPLE_NAMES, TurnTimes, figure, plain_ms
from voxtui.ui.panel.waterfall import plain_stages

GAP = "  "

EARLIER = "◂ "
"""The mark in front of the times of a selected turn."""

BAR_CELLS, BAR_SECONDS = 11, 1.0
"""Cells of all bars together, and the time of the first sound at which they are filled.

It is one scale for all widths, so bars compare within a turn and between turns. A slower turn fills
the cells, too. Where there is less space the bars are left out.
"""

LEAST_WIDTH = 84
"""Minimum width in cells of a line that also names the key of the fuller views."""

STAGES = {"hearing": "$text-muted", "thinking": "$primary 75%", "voice": "$primary"}
"""The stages before the first sound, with their colours."""


class LatencyStrip(Static):
    """The first sound and its stages, without a verdict; empty before the first turn."""

    ALLOW_SELECT = False

    def __init__(self, times: TurnTimes, more: str) -> None:
        """`more` names the key of the fuller views."""
        super().__init__(markup=False)
        self._times = times
        self._more = more

    def on_resize(self) -> None:
        self.show()

    def show(self) -> None:
        width = self.content_size.width
        names_more = width >= LEAST_WIDTH
        line = _line(self._times, width - names_more * len(GAP + self._more))
        if line and names_more:
            line += Content.styled(self._more.rjust(width - line.cell_length), "$text-muted")
        if not (isinstance(self.content, Content) and line.is_same(self.content)):
            self.update(line, layout=False)


def _line(times: TurnTimes, width: int) -> Content:
    turn = times.turn
    if not (number := figure(turn)):
        return Content()
    style = "$text-muted" if times.past and not times.selected else "bold"
    what = TTFT if turn.first_sound_ms is None else FIRST_SOUND
    shown = Content.assemble((EARLIER if times.selected else "", "$text-muted"), (number, style))
    named = shown + Content.styled(f" {PEOPLE_NAMES[what]}", "$text-muted")
    found = [s for s in plain_stages(stages(turn.timestamps)) if s.name in STAGES and s.seconds > 0]
    ends = [0, *(round(end * 1000) for end in accumulate(stage.seconds for stage in found))]
    full = max(BAR_SECONDS, sum(stage.seconds for stage in found))
    bars = [max(1, round(stage.seconds / full * BAR_CELLS * 8)) for stage in found]
    # The ends are rounded and not the times, so that the times add up to the number before them.
    exact = [f" {plain_ms(end - start)}" for start, end in pairwise(ends)]
    short = [value.removesuffix(" ms") for value in exact]
    for head, values in (
        (named, exact),
        (named, short),
        (shown, exact),
        (shown, [""] * len(found)),
    ):
        texts = sum(len(f"{GAP}{s.name} {value}") for s, value in zip(found, values, strict=True))
        cells = BAR_CELLS + len(found)  # each bar may begin another cell
        if len(found) > 1 and head.cell_length + texts + cells <= width:
            return head + _stages(found, bars, values)
    return named if named.cell_length <= width else shown


def _stages(found: Sequence[Stage], eighths: Sequence[int], values: Sequence[str]) -> Content:
    line = Content()
    for stage, length, value in zip(found, eighths, values, strict=True):
        line += Content.assemble(
            (f"{GAP}{stage.name} ", "$text-muted"),
            (blocks(length), STAGES[stage.name]),
            (value, "$text-muted"),
        )
    return line
