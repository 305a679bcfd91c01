import itertools
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxtui.dialogue.timestamps import Outcome, Turn
from voxtui.settings.schema import TARGETS
from voxtui.storage.derived_latencies import (
    FIRST_SOUND,
    HEADLINES,
    SPEED,
    TOTAL,
    TTFT,
    PlaybackLead,
    SessionTimes,
    Spread,
    Verdict,
    chart_top,
    downsample_max,
    percentile,
    spread,
    stages,
    verdict,
)

MARKS = {
    "speech_ended": -0.15,
    "released": 0.0,
    "captured": 0.02,
    "transcribed": 0.06,
    "prefilled": 0.09,
    "first_token": 0.11,
    "first_sentence": 0.18,
    "first_audio": 0.26,
    "first_sound": 0.3,
    "last_token": 0.51,
    "last_sound": 2.4,
}


def turn(number: int = 1, **timestamps: float) -> Turn:
    return Turn(number, "scripted", Outcome.ANSWERED, timestamps or MARKS, tokens=11)


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([], 50, None),
        ([7.0], 50, 7.0),
        ([7.0], 95, 7.0),
        ([4.0, 1.0, 3.0, 2.0], 50, 2.0),
        ([float(n) for n in range(1, 21)], 50, 10.0),
        ([float(n) for n in range(1, 21)], 95, 19.0),
        ([float(n) for n in range(1, 21)], 100, 20.0),
        ([float(n) for n in range(1, 21)], 0, 1.0),
    ],
)
def test_a_percentile_is_the_value_of_the_nearest_rank(values, percent, expected):
    assert percentile(values, percent) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 100))
def test_a_percentile_is_one_of_the_values_and_enough_of_them_do_not_exceed_it(values, percent):
    found = percentile(values, percent)
    assert found in values
    share = sum(value <= found for value in values) / len(values)
    assert share >= percent / 100 - 1e-9


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_p50_is_the_low_median(values):
    assert percentile(values, 50) == statistics.median_low(values)


def test_a_number_on_its_target_is_within_it_and_a_missing_one_has_no_verdict():
    assert verdict(100.0, 100) is Verdict.WITHIN
    assert verdict(100.1, 100) is Verdict.OVER
    assert verdict(None, 100) is None
    assert verdict(50, None) is None


def test_a_verdict_can_be_read_without_colour():
    assert (Verdict.WITHIN.sign, Verdict.OVER.sign) == ("✓", "✗")
    assert (Verdict.WITHIN, Verdict.OVER) == ("ok", "over")


def test_headlines_have_their_own_targets_and_speed_has_none():
    targets = TARGETS["voxtral"]
    assert [headline.target(targets) for headline in HEADLINES] == [100, 300, 1000, None]
    of_turn = [round(value) for headline in HEADLINES if (value := headline.of(turn()))]
    assert of_turn == [110, 300, 510, 25]


def test_the_window_keeps_the_last_turns():
    session = SessionTimes()
    for n in range(31):  # the first one is cold
        session.add(turn(n, first_token=n / 1000, released=0.0))
    assert (len(session.warm), len(session.all)) == (20, 31)
    assert percentile(TTFT.values(session.warm), 50) == pytest.approx(20)
    assert percentile(TTFT.values(session.warm), 95) == pytest.approx(29)


def test_a_turn_without_a_first_token_or_with_the_wait_for_a_key_does_not_count():
    session = SessionTimes()
    session.add(turn(1, released=0.0, captured=0.1))
    session.add(turn(2, released=0.0, confirmed=9.0, first_token=9.1))
    assert not session.all
    assert percentile(TTFT.values(session.all), 50) is None


def test_a_number_that_a_turn_did_not_reach_is_left_out():
    turns = [turn(1, released=0.0, first_token=0.1), turn(2)]
    assert FIRST_SOUND.values(turns) == [pytest.approx(300)]
    assert TOTAL.values(turns) == [pytest.approx(510)]
    assert SPEED.values(turns) == [pytest.approx(25)]


def test_a_headline_also_counts_from_the_end_of_speech():
    assert TTFT.from_speech_end(turn()) == pytest.approx(260)
    assert SPEED.from_speech_end(turn()) is None
    assert TTFT.from_speech_end(turn(1, released=0.0, first_token=0.1)) is None


def test_a_spread_ignores_missing_values():
    assert spread([None, None]) is None
    found = spread([None, *(float(n) for n in range(100, 0, -1))])
    assert found == Spread(n=100, p50=50, p95=95, p99=99, min=1, max=100)


def test_the_first_turn_after_models_were_loaded_is_cold():
    session = SessionTimes()
    session.models_loaded()
    for n in range(1, 4):
        session.add(turn(n, released=0.0, first_token=n / 1000))
    session.models_loaded()
    for n in range(4, 6):
        session.add(turn(n, released=0.0, first_token=n / 1000))
    assert [round(value) for value in TTFT.values(session.cold)] == [1, 4]
    assert [round(value) for value in TTFT.values(session.warm)] == [2, 3, 5]
    assert len(session.all) == 5


def test_a_turn_without_a_first_token_is_not_the_cold_one():
    session = SessionTimes()
    session.add(turn(1, released=0.0, captured=0.1))
    session.add(turn(2))
    assert len(session.cold) == 1
    assert len(session.all) == 1


def test_a_typed_turn_is_judged_by_targets_of_its_own():
    targets, typed = TARGETS["embedded"], replace(turn(first_token=0.5, released=0.0), typed=True)
    assert TTFT.verdict(typed, targets) is Verdict.WITHIN
    assert TTFT.goal(typed, targets) == targets.typed_ttft_ms
    assert TTFT.verdict(replace(typed, typed=False), targets) is Verdict.OVER


def test_an_outlier_does_not_set_the_end_of_a_scale():
    assert chart_top([400.0] * 19 + [37_000.0]) == 1200
    assert chart_top([400.0, 37_000.0]) == 1200
    assert chart_top([400.0, 900.0, 500.0]) == 900
    assert chart_top([400.0], at_least=625.0) == 625
    assert chart_top([]) == 0


@given(st.lists(st.floats(0, 1e6), max_size=200), st.integers(1, 40))
def test_downsampling_keeps_the_largest_and_the_order(values, width):
    found = downsample_max(values, width)
    assert len(found) == min(len(values), width)
    assert max(found, default=0) == max(values, default=0)
    rest = iter(values)
    assert all(value in rest for value in found)  # in this order


def test_stages_follow_each_other_from_the_release_to_the_first_sound():
    path = stages(MARKS)[:-2]
    names = ["listen", "recognise", "prefill", "token", "clause", "voice", "device"]
    assert [stage.name for stage in path] == names
    assert path[0].start == 0
    assert all(a.end == b.start for a, b in itertools.pairwise(path))
    assert path[-1].end == MARKS["first_sound"]


def test_writing_and_speaking_overlap_the_other_stages():
    beside = [(stage.name, stage.start, stage.end) for stage in stages(MARKS)[-2:]]
    assert beside == [("writing", 0.11, 0.51), ("speaking", 0.3, 2.4)]


def test_work_hidden_before_the_release_lies_left_of_zero():
    ahead = stages(MARKS, speculative_s=0.4)[0]
    assert (ahead.start, ahead.end) == (-0.4, 0.0)
    assert all(stage.start >= 0 for stage in stages(MARKS))


def test_a_stage_that_was_over_before_the_release_takes_no_time_after_it():
    path = stages({"released": 0.0, "captured": 0.05, "transcribed": -0.3, "first_token": 0.06})
    assert [(stage.name, round(stage.seconds, 3)) for stage in path] == [
        ("listen", 0.05),
        ("recognise", 0.0),
        ("token", 0.01),
    ]


def test_an_unfinished_turn_has_the_stages_it_has_reached():
    sent = {"released": 0.0, "captured": 0.05, "sent": 0.06, "first_token": 0.2}
    assert [stage.name for stage in stages(sent)] == ["listen", "send", "token"]
    assert stages({}) == []
    assert [stage.name for stage in stages({"released": 0.0, "captured": 0.1})] == ["listen"]


def test_the_lead_is_the_speech_that_is_made_and_not_played_yet():
    lead = PlaybackLead()
    assert lead.update(made_s=0.8, playing_s=0.0) == pytest.approx(0.8)
    assert lead.update(made_s=2.0, playing_s=0.5) == pytest.approx(1.5)
    assert lead.update(made_s=2.0, playing_s=2.3) == 0.0
    assert lead.underrun_s == 0.0


def test_a_silence_within_an_answer_counts_as_underrun():
    lead = PlaybackLead()
    lead.update(made_s=1.0, playing_s=0.2)
    assert lead.update(made_s=2.0, playing_s=1.4) == pytest.approx(1.0)
    assert lead.underrun_s == pytest.approx(0.4)
    assert lead.update(made_s=2.0, playing_s=1.9) == pytest.approx(0.5)


def test_turns_of_another_path_begin_their_own_percentiles():
    session = SessionTimes()
    for n, path in enumerate(["", "", "", "captured", "captured"], 1):
        made = turn(n, released=0.0, first_token=n / 1000)
        session.add(replace(made, path=path))
    assert [round(value) for value in TTFT.values(session.warm)] == [4, 5]
    assert len(session.all) == 5


def test_a_prompt_that_is_read_beside_the_voice_is_no_stage_of_its_own():
    marks = {"transcribed": 0.06, "first_token": 0.07, "prefilled": 0.5, "first_audio": 0.1}
    assert [(stage.name, stage.end) for stage in stages(marks)] == [
        ("recognise", 0.06),
        ("token", 0.07),
        ("voice", 0.1),
    ]
