"""Bars drawn in eighths of a cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style

from voxtui.storage.derived_latencies import chart_top

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEFT_EIGHTHS = " ▏▎▍▌▋▊▉█"

LOWER_EIGHTHS = "▁▂▃▄▅▆▇█"

LINE, HALF_LINE = "━", "╸"

CLIPPED = "↑"
"""The top of a column that exceeds the scale."""


def bar(start: float, end: float, style: Style, ground: Sequence[Segment]) -> list[Segment]:
    """Draw a bar from `start` to `end`, in cells, over the cells of `ground`.

    A bar longer than zero is at least an eighth of a cell wide, so that it is visible.
    """
    width = len(ground)
    first = max(0, min(round(start * 8), width * 8 - 1))
    last = max(first + (end > start), min(round(end * 8), width * 8))

    def cell(i: int) -> Segment:
        left, right = max(first - i * 8, 0), min(last - i * 8, 8)
        if left >= 8 or right <= left:
            return ground[i]
        if left == 0:
            return Segment(LEFT_EIGHTHS[right], style)
        # No character fills a cell from the right: draw the empty left part in inverse colours.
        inverse = Style(color=style.bgcolor, bgcolor=style.color)
        return Segment(LEFT_EIGHTHS[left], inverse if style.bgcolor else style)

    return list(Segment.simplify(cell(i) for i in range(width)))


def wave(samples: NDArray[np.float32], width: int) -> str:
    """Draw sound as one row of columns; the loudest has full height."""
    import numpy as np

    if not len(samples) or width < 1:
        return ""
    peaks = [float(np.abs(part).max(initial=0.0)) for part in np.array_split(samples, width)]
    top = max(peaks)
    # The root, because a sound that is perceived as half as loud has a tenth of the power.
    return _columns([math.sqrt(peak / top) for peak in peaks], LOWER_EIGHTHS) if top else ""


def trend(values: Sequence[float], width: int) -> str:
    """Draw the last `width` values as one row of columns; CLIPPED stands for an outlier.

    No column fills its cell, so that adjacent rows stay apart.
    """
    shown = values[-width:]
    top = chart_top(shown)
    columns = _columns([min(value, top) for value in shown], LOWER_EIGHTHS[:-1])
    clipped = (value > top for value in shown)
    return "".join(
        CLIPPED if over else column for over, column in zip(clipped, columns, strict=False)
    )


def _columns(values: Sequence[float], glyphs: str) -> str:
    top = max(values, default=0.0)
    if top <= 0:
        return ""
    last = len(glyphs) - 1
    return "".join(glyphs[min(last, int(value / top * (last + 0.999)))] for value in values)
