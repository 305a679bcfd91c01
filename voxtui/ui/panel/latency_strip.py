from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise
from math import inf
from operator import itemgetter

from textual.content import Content
from textual.widgets import Static

from voxtui.storage.derived_latencies import FIRST_SOUND, TTFT, Stage, stages
from voxtui.ui.bars import LEFT_EIGHTHS
from voxtui.ui.panel.formatting import PEOPLE_NAMES, TurnTimes, figure, plain_ms
from voxtui.ui.panel.waterfall import plain_stages

GAP = "  "

EARLIER = "◂ "

BAR_CELLS, BAR_SECONDS = 16, 1.0
"""Cells of the bar, and the time of the first sound at which it is filled.

It is one scale for all widths, so bars compare within a turn and between turns. A slower turn fills
the cells, too. Where there is less space the bar is left out.
"""

LEAST_WIDTH = 84
"""Minimum width in cells of a line that also names the key of the fuller views."""

STAGES = {"hearing": "$foreground", "thinking": "$text-muted", "voice": "$text-primary"}

RECEDING = " 40%"
"""The opacity of a bar beside which something else happens."""

TRACK = "$panel"


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
    receding = times.past and not times.selected
    style = "$text-muted" if receding else "bold"
    what = TTFT if turn.first_sound_ms is None else FIRST_SOUND
    shown = Content.assemble((EARLIER if times.selected else "", "$text-muted"), (number, style))
    named = shown + Content.styled(f" {PEOPLE_NAMES[what]}", "$text-muted")
    until = turn.timestamps.get(what.mark or "", inf)
    counted = [stage for stage in stages(turn.timestamps) if stage.end <= until]
    found = [s for s in plain_stages(counted) if s.name in STAGES and s.seconds > 0]
    if found and found[-1].end < until:
        found = []  # a sentence was heard while a tool worked, and only the fuller views show that
    ends = [0, *(round(end * 1000) for end in accumulate(stage.seconds for stage in found))]
    # The ends are rounded and not the times, so that the times add up to the number before them.
    exact = [f" {plain_ms(end - start)}" for start, end in pairwise(ends)]
    short = [value.removesuffix(" ms") for value in exact]
    for head, values in (
        (named, exact),
        (named, short),
        (shown, exact),
        (shown, [""] * len(found)),
    ):
        names = (
            (f"{GAP}{stage.name}{value}", "$text-muted" if receding else STAGES[stage.name])
            for stage, value in zip(found, values, strict=True)
        )
        line = head + GAP + _bar(found, receding) + Content.assemble(*names)
        if len(found) > 1 and line.cell_length <= width:
            return line
    return named if named.cell_length <= width else shown


def _bar(found: Sequence[Stage], receding: bool) -> Content:
    """Draw the stages behind one another, in eighths of a cell, on a track of BAR_SECONDS.

    The bar of an earlier turn is `receding` while a new one is under way.

    A cell has two colours at most, so a stage that lies within one is drawn to the cell's end.
    """
    full = max(BAR_SECONDS, sum(stage.seconds for stage in found))
    parts: list[tuple[float, str]] = []
    begin, seconds = 0, 0.0
    for stage in found:
        seconds += stage.seconds
        end = max(begin + 1, round(seconds / full * BAR_CELLS * 8))
        cell_end = -(-begin // 8) * 8
        begin = max(end, cell_end)
        parts.append((begin, STAGES[stage.name] + RECEDING * receding))
    parts.append((inf, TRACK))

    def cell(number: int) -> tuple[str, str]:
        end, style = next(part for part in parts if part[0] > number * 8)
        _, behind = next(part for part in parts if part[0] > number * 8 + 7)
        if style is TRACK:
            return f"on {TRACK}", " "
        return f"{style} on {behind}", LEFT_EIGHTHS[min(8, int(end) - number * 8)]

    cells = groupby(map(cell, range(BAR_CELLS)), key=itemgetter(0))
    return Content.assemble(*(("".join(c for _, c in run), style) for style, run in cells))
