import pytest
from rich.segment import Segment
from rich.style import Style

from voxtui.dialogue.timestamps import Milestone
from voxtui.storage.derived_latencies import stages
from voxtui.ui.bars import bar, trend
from voxtui.ui.panel.waterfall import STAGES
from voxtui.ui.talk.talkbar import loudness

STYLE = Style(color="red", bgcolor="black")


def drawn(start, end, width=8):
    return "".join(segment.text for segment in bar(start, end, STYLE, [Segment(".")] * width))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 8, "████████"),
        (0, 4, "████...."),
        (2, 4, "..██...."),
        (0, 2.5, "██▌....."),
        (0, 0, "........"),
        (3, 3.01, "...▏...."),
        (7.99, 99, ".......▉"),
        (-5, 1, "█......."),
        (20, 30, ".......▉"),
    ],
)
def test_a_bar_is_drawn_in_eighths_and_stays_within_its_cells(start, end, expected):
    assert drawn(start, end) == expected


def test_a_bar_that_begins_within_a_cell_fills_its_right_part():
    left, *_ = bar(0.5, 2, STYLE, [Segment(".")] * 2)
    assert left.text == "▌"
    assert (left.style.color, left.style.bgcolor) == (STYLE.bgcolor, STYLE.color)


def test_a_trend_ends_with_the_latest_value_and_no_column_fills_its_cell():
    assert trend([1.0, 2.0, 4.0], 10) == "▂▄▇"
    assert trend([9.0, 1.0, 2.0, 4.0], 3) == "▂▄▇"
    assert trend([], 10) == ""
    assert trend([0.0], 10) == ""


def test_an_outlier_is_marked_and_does_not_flatten_a_trend():
    assert trend([1.0, 2.0, 1.0, 30.0, 1.0], 10) == "▃▅▃↑▃"


@pytest.mark.parametrize(
    ("level", "share"), [(0, 0), (1, 1), (0.001, 0), (0.1, 2 / 3), (2, 1), (1e-9, 0)]
)
def test_the_meter_shows_decibels(level, share):
    assert loudness(level) == pytest.approx(share)


def test_every_stage_of_a_turn_has_a_look():
    marks = {milestone.value: n / 10 for n, milestone in enumerate(Milestone)}
    assert {stage.name for stage in stages(marks, speculative_s=1.0)} == STAGES.keys()
