"""The latency panel: the numbers of a turn, of the session, and their charts."""

import re
from collections import Counter

import pytest
from textual.geometry import Size

from tests.ui.conftest import MARKS
from tests.ui.conftest import screen as any_screen
from tests.ui.states import Clock
from voxtui.dialogue.events import ReplyText, State, StateChanged
from voxtui.dialogue.timestamps import Milestone, Outcome
from voxtui.settings.schema import Config, TargetsConfig, UiConfig
from voxtui.ui.bars import LEFT_EIGHTHS
from voxtui.ui.panel.latency_strip import BAR_CELLS, BAR_SECONDS, STAGES
from voxtui.ui.panel.panel import size_for

LAB = UiConfig(panel="lab")


def screen(size=(80, 24), targets=None):
    """Show the panel with all of its numbers."""
    return any_screen(size, config=Config(ui=LAB, targets=targets or TargetsConfig()))


async def warm(s):
    """Finish the first turn, which is cold and in no percentile."""
    s.engine.begin()
    s.engine.finish(timestamps={**MARKS, "first_token": 5.0}, reply="x")
    s.engine.begin()


def cells(s, headline):
    return s.line(f"{headline:<12}").split(headline)[1].split()


@pytest.mark.slow
async def test_the_headlines_of_a_turn_stand_beside_their_targets_with_a_verdict():
    async with screen() as s:
        await warm(s)
        s.engine.finish(timestamps=MARKS, tokens=24, reply="x")
        await s.settle()
        assert cells(s, "TTFT") == ["✓", "84", "≤100", "84", "84", "84"]
        assert cells(s, "First sound") == ["✗", "512", "≤300", "512", "512", "512"]
        assert cells(s, "Total") == ["✗", "1234", "≤1000", "1234", "1234", "1234"]
        assert cells(s, "Tokens/s") == ["20", "20"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_first_turn_after_loading_is_cold_and_apart(size):
    slow = {**MARKS, "first_token": 0.9, "first_sound": 1.9, "last_token": 2.9}
    async with screen(size=size) as s:
        s.engine.begin()
        s.engine.finish(timestamps=slow, reply="x")
        await s.settle()
        assert cells(s, "TTFT")[:6] == ["✗", "900", "≤100", "–", "–", "–"]
        for value in ("900", "1900", "2900"):
            assert value in s.line("cold")
        s.engine.begin()
        s.engine.finish(timestamps=MARKS, reply="x")
        await s.settle()
        assert cells(s, "TTFT")[:6] == ["✓", "84", "≤100", "84", "84", "84"]
        assert "900" in s.line("cold")


@pytest.mark.slow
async def test_the_session_is_one_line_from_its_first_turn_to_its_last():
    async with screen() as s:
        for n in range(100):
            s.engine.begin()
            s.engine.finish(timestamps={**MARKS, "first_sound": 9.0 if n == 41 else 1.0}, reply="x")
        await s.settle()
        trend = s.line("session").split()[-1]
        assert len(trend) == 29
        assert trend.count("↑") == 1


@pytest.mark.slow
async def test_the_felt_latency_counts_from_the_last_word():
    async with screen(size=(120, 40)) as s:
        s.engine.begin()
        s.engine.finish(timestamps={**MARKS, "speech_ended": -0.2, "first_shown": 0.091}, reply="x")
        await s.settle()
        assert s.line("since the last word").split("word")[1].split() == ["284", "712", "1434"]
        assert "first word painted at 91 ms" in s.text


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_measured_device_offset_is_shown_below_the_first_sound(size):
    async with screen(size=size) as s:
        s.engine.begin()
        s.engine.finish(timestamps=MARKS, reply="x")
        await s.settle()
        assert "heard at" not in s.text
        s.app.panel.devices_add(38.0)
        await s.settle()
        assert "heard at 550 ms: the devices add 38" in s.text


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_memory_of_the_gpu_is_shown_if_the_brain_reports_it(size):
    async with screen(size=size) as s:
        s.engine.begin()
        s.engine.finish(timestamps=MARKS, reply="x")
        await s.settle()
        assert "GPU" not in s.text
        s.engine.begin()
        s.engine.finish(timestamps=MARKS, reply="x", gpu_bytes=9_870_000_000)
        await s.settle()
        assert "GPU 9.9 GB" in s.text


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_time_of_the_network_is_shown_for_a_remote_brain(size):
    async with screen(size=size) as s:
        s.engine.begin()
        s.engine.finish(timestamps=MARKS, reply="x", network_s=0.0314)
        await s.settle()
        assert "network 31 ms" in s.text


@pytest.mark.slow
async def test_marks_are_shown_as_they_are_reached(monkeypatch):
    monkeypatch.setattr("voxtui.ui.conversation.turn_views.PANEL_WAITS_SECONDS", 1000.0)
    async with screen() as s:
        timestamps = s.engine.begin(at=100.0)
        s.engine.report(StateChanged(State.THINKING))
        await s.settle()
        timestamps.record(Milestone.FIRST_TOKEN, 100.084)
        s.app.tick()
        await s.settle()
        assert "✓" not in s.line("TTFT ")  # the first words are painted first
        s.engine.report(ReplyText(1, "It is"))
        await s.settle()
        s.app.tick()
        await s.settle()
        assert "✓   84" in s.line("TTFT ")
        assert "–" in s.line("First sound ")
        timestamps.record(Milestone.FIRST_SOUND, 100.512)
        s.app.tick()
        await s.settle()
        assert "✗  512" in s.line("First sound ")


@pytest.mark.slow
async def test_the_panel_shows_a_slow_answer_before_it_begins(monkeypatch):
    monkeypatch.setattr("voxtui.ui.conversation.turn_views.PANEL_WAITS_SECONDS", 0.0)
    async with screen(size=(120, 40)) as s:
        timestamps = s.engine.begin(at=100.0)
        s.engine.report(StateChanged(State.THINKING))
        timestamps.record(Milestone.TRANSCRIBED, 100.05)
        await s.settle()
        s.app.tick()
        await s.settle()
        assert "50 ms" in s.line("recognise ")


@pytest.mark.slow
async def test_the_percentiles_are_over_the_last_twenty_turns():
    async with screen() as s:
        for n in range(1, 31):
            s.engine.begin()
            s.engine.finish(timestamps={"released": 0.0, "first_token": n / 1000}, reply="x")
        await s.settle()
        assert cells(s, "TTFT")[-3:] == ["20", "29", "30"]


@pytest.mark.slow
async def test_the_waterfall_has_hidden_work_left_of_zero():
    async with screen() as s:
        s.engine.begin()
        s.engine.finish(timestamps=MARKS, speculative_s=0.45, reply="x")
        await s.settle()
        hidden, recognise = s.line("hidden"), s.line("recognise")
        assert "450 ms" in hidden
        assert "38 ms" in recognise
        zero = s.line("1500 ms").index(" 0 ") + 1
        assert hidden.rindex("█") < zero
        assert recognise.index("▏") == zero


async def test_a_long_answer_does_not_squeeze_the_axis():
    async with screen() as s:
        s.engine.begin()
        s.engine.finish(timestamps={**MARKS, "last_sound": 30.0}, reply="x")
        await s.settle()
        assert "29.5 s" in s.line("speaking")
        assert "1500 ms" in s.text


@pytest.mark.slow
@pytest.mark.parametrize("width", [78, 80, 83])
async def test_no_headline_is_cut_off_at_80_columns(width):
    slow = {"released": 0.0, "first_token": 12.0, "first_sound": 99.5, "last_token": 120.0}
    async with screen(size=(width, 24)) as s:
        await warm(s)
        s.engine.finish(timestamps=slow, tokens=9999, reply="x")
        await s.settle()
        for name, value in (("TTFT", "12s"), ("First sound", "100s"), ("Total", "120s")):
            assert cells(s, name).count(value) == 4


@pytest.mark.slow
async def test_tokens_that_came_at_once_are_shown_as_thousands_per_second():
    async with screen() as s:
        for _ in range(2):
            s.engine.begin("typed")
            s.engine.finish(
                timestamps={"released": 0.0, "first_token": 1.0, "last_token": 1.0005}, tokens=29
            )
        await s.settle()
        assert s.line("Tokens/s").split()[-2:] == ["56k", "56k"]


@pytest.mark.slow
async def test_a_dropped_turn_leaves_the_numbers_of_the_answer_before():
    async with screen(size=(120, 40)) as s:
        s.engine.begin()
        s.engine.finish(timestamps=MARKS, reply="Paris.")
        await s.settle()
        before = s.app.panel.turn
        s.engine.begin()
        s.engine.finish(Outcome.CANCELLED, timestamps={"released": 0.0, "captured": 0.01})
        await s.settle()
        assert s.app.panel.turn == before and "84" in s.text


@pytest.mark.slow
async def test_while_it_speaks_the_panel_says_how_far_the_voice_is_ahead(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("voxtui.ui.conversation.turn_views.time", clock)
    async with screen() as s:
        timestamps = s.engine.begin(at=clock.now)
        timestamps.record(Milestone.FIRST_AUDIO, clock.now + 0.2)
        timestamps.record(Milestone.FIRST_SOUND, clock.now + 0.3)
        timestamps.speech_s = 2.0
        await s.settle()
        for now, ahead in ((0.3, "2.0 s ahead"), (1.0, "1.3 s ahead"), (9.0, "0.0 s ahead")):
            clock.now = 1000.0 + now
            s.app.tick()
            await s.settle()
            assert f"voice: {ahead} " in s.text
        timestamps.speech_s = 3.0
        s.app.tick()
        await s.settle()
        assert "voice: 1.0 s ahead, 6.7 s too late" in s.text
        s.engine.finish(
            timestamps={**timestamps.since_release(), "first_token": 0.1, "last_sound": 9.9}
        )
        await s.settle()
        assert "ahead" not in s.text


@pytest.mark.slow
async def test_a_typed_turn_is_judged_by_its_own_targets():
    targets = TargetsConfig(typed_ttft_ms=50, typed_first_sound_ms=600)
    async with screen((120, 40), targets) as s:
        timestamps = s.engine.begin("typed")
        await s.settle()
        timestamps.record(Milestone.FIRST_TOKEN, 100.084)
        s.app.tick()
        await s.settle()
        assert cells(s, "TTFT")[:3] == ["✗", "84", "≤50"]  # while it runs, too
        s.engine.finish(timestamps=MARKS, reply="x", typed=True)
        await s.settle()
        assert cells(s, "First sound")[:3] == ["✓", "512", "≤600"]
        assert "so longer targets" in s.text


@pytest.mark.slow
async def test_one_slow_turn_flattens_no_chart():
    async with screen(size=(120, 40)) as s:
        for first_sound in (0.2, 0.25, 37.0, 0.22):
            s.engine.begin()
            s.engine.finish(timestamps={**MARKS, "first_sound": first_sound}, reply="x")
        await s.settle()
        top = s.line(" 660 ")  # three times the median
        assert top.count("↑") == 1
        assert s.line("First sound ✓").rstrip().endswith("↑▃")


@pytest.mark.slow
async def test_a_time_of_many_seconds_has_one_unit():
    slow = {name: at * 30 for name, at in MARKS.items()} | {"first_shown": 35.0}
    async with screen(size=(120, 40)) as s:
        s.engine.begin()
        s.engine.finish(timestamps=slow, reply="x")
        await s.settle()
        assert "first word painted at 35.0 s" in s.text
        assert "s ms" not in s.text


@pytest.mark.slow
@pytest.mark.parametrize("outcome", [Outcome.NO_SPEECH, Outcome.CANCELLED])
async def test_a_turn_without_an_answer_shows_no_number_that_it_does_not_have(outcome):
    async with screen(size=(120, 40)) as s:
        s.engine.begin()
        s.engine.finish(outcome, timestamps={"released": 0.0, "captured": 0.01})
        await s.settle()
        assert "– ms" not in s.text and "0 warm" not in s.text
        s.engine.begin()
        s.engine.finish(timestamps=MARKS, reply="x")
        s.engine.begin()
        s.engine.finish(outcome, timestamps={"released": 0.0, "captured": 0.01})
        await s.settle()
        assert "– ms" not in s.text and "0 warm" not in s.text
        assert cells(s, "TTFT")[1] == "84"


# The three sizes.


async def answered(s, **fields):
    s.engine.begin()
    s.engine.finish(timestamps=MARKS, tokens=24, reply="x", **fields)
    await s.settle()


@pytest.mark.parametrize(
    ("size", "wanted", "shown"),
    [
        ((80, 24), "auto", "line"),
        ((200, 60), "auto", "line"),
        ((200, 60), "line", "line"),
        ((72, 16), "glance", "glance"),
        ((71, 40), "glance", "line"),
        ((80, 24), "lab", "lab"),
        ((60, 16), "lab", "line"),
    ],
)
def test_the_size_of_the_panel_depends_on_the_setting_and_the_terminal(size, wanted, shown):
    assert size_for(wanted, Size(*size)) == shown


async def test_as_a_line_it_is_the_first_sound_and_the_stages_without_a_verdict():
    async with any_screen((80, 24)) as s:
        assert "♪" not in s.text and "–" not in s.text  # nothing before the first turn
        await answered(s)
        assert s.app.transcript.region.width == 80
        line = s.line("hearing")
        assert line.split()[:2] == ["♪", "512"]
        assert all(name in line for name in ("hearing", "thinking", "voice"))
        assert all(bars(s).values())
        assert not {"✓", "✗", "≤"} & set(s.text)
        await s.pilot.resize_terminal(40, 16)
        await s.settle()
        assert s.lines[-5].split() == ["♪", "512", "ms", "first", "sound"]


def bars(s) -> dict[str, int]:
    """Return the length of each stage in the line's bar, in eighths of a cell."""
    content, found = s.app.panel.strip.content, Counter[str]()
    for span in content.spans:
        ink, on, ground = str(span.style).partition("on ")
        for cell in content.plain[span.start : span.end] if on else "":
            filled = LEFT_EIGHTHS.index(cell)
            found[ink.strip()] += filled
            found[ground] += 8 - filled
    assert sum(found.values()) == 8 * BAR_CELLS
    return {name: found[style] for name, style in STAGES.items()}


@pytest.mark.parametrize("speed", [1, 4])
async def test_the_bars_are_as_long_as_their_stages_even_if_they_are_short(speed):
    marks = {"released": 0.0, "captured": 0.1, "first_token": 0.4, "first_sound": 0.8}
    async with any_screen((80, 24)) as s:
        s.engine.begin()
        s.engine.finish(timestamps={n: at / speed for n, at in marks.items()}, reply="x")
        await s.settle()
        for name, part in (("hearing", 0.1), ("thinking", 0.3), ("voice", 0.4)):
            assert abs(bars(s)[name] - part / speed / BAR_SECONDS * BAR_CELLS * 8) <= 1


@pytest.mark.parametrize(
    ("mark", "line"),
    [
        ("first_sound", "hearing 40 thinking 560 voice 100"),
        ("first_audio", "hearing 40 ms thinking 160 ms"),  # no sound: up to the first word
    ],
)
async def test_the_model_and_not_the_voice_takes_the_time_of_writing(mark: str, line: str):
    marks = {"released": 0.0, "captured": 0.04, "first_token": 0.2, "first_sentence": 0.6}
    async with any_screen((80, 24)) as s:
        s.engine.begin()
        s.engine.finish(timestamps={**marks, mark: 0.7}, reply="x")
        await s.settle()
        assert " ".join(s.line("hearing").split()).endswith(line)


async def test_the_line_has_no_stages_if_a_sentence_bridged_a_slow_tool():
    marks = {"released": 0.0, "captured": 0.1, "called": 0.4, "first_sound": 0.9}
    async with any_screen((80, 24)) as s:
        s.engine.begin()
        s.engine.finish(timestamps={**marks, "tool_ended": 4.0, "first_token": 5.0}, reply="x")
        await s.settle()
        assert s.line("first sound").split() == ["♪", "900", "ms", "first", "sound"]


async def test_a_new_conversation_shows_no_times_of_the_one_before():
    async with any_screen((80, 24)) as s:
        await answered(s)
        assert "first sound" in s.text
        await s.press("ctrl+n")
        assert "first sound" not in s.text


async def test_no_stage_is_too_short_to_be_seen():
    marks = {"released": 0.0, "captured": 0.011, "first_token": 0.022, "first_sound": 0.033}
    async with any_screen((80, 24)) as s:
        s.engine.begin()
        s.engine.finish(timestamps=marks, reply="x")
        await s.settle()
        assert all(bars(s).values())


async def test_no_value_of_a_slow_turn_is_cut_at_80_columns():
    async with any_screen((80, 24)) as s:
        for tenths in range(40):
            marks = {"released": 0.0, "captured": 5.43, "first_token": 8.85 + tenths / 10}
            s.engine.begin()
            s.engine.finish(timestamps={**marks, "first_sound": 11.05 + tenths / 10}, reply="x")
            await s.settle()
            assert s.line("hearing").rstrip().endswith("2.20 s")


async def test_a_turn_twice_as_slow_has_bars_twice_as_long():
    lengths = []
    async with any_screen((80, 24)) as s:
        for second in (0.2, 0.4):
            marks = {"released": 0.0, "captured": second / 4, "first_sound": second}
            s.engine.begin()
            s.engine.finish(timestamps={**marks, "first_token": second / 2}, reply="x")
            await s.settle()
            lengths.append(sum(bars(s).values()))
    assert abs(lengths[1] - 2 * lengths[0]) <= 1


async def test_the_line_is_live_while_the_turn_runs():
    async with any_screen((80, 24)) as s:
        timestamps = s.engine.begin(at=100.0)
        await s.settle()
        timestamps.record(Milestone.FIRST_TOKEN, 100.084)
        s.app.tick()
        await s.settle()
        assert s.line("84 ms").split() == ["84", "ms", "first", "word"]
        timestamps.record(Milestone.FIRST_SOUND, 100.2)
        s.app.tick()
        await s.settle()
        assert "♪ 200 ms" in s.line("thinking")


@pytest.mark.slow
async def test_a_summary_has_at_most_fourteen_numbers_and_no_technical_name():
    async with any_screen((120, 40), config=Config(ui=UiConfig(panel="glance"))) as s:
        await answered(s)
        column = [line[76:] for line in s.lines[1:35]]
        numbers = re.findall(r"(?<![\d.])\d[\d.]*", "\n".join(column))
        assert 6 <= len(numbers) <= 14
        for word in ("first word", "full answer", "first sound", "hearing", "thinking", "voice"):
            assert word in "\n".join(column)
        for word in ("TTFT", "p50", "prefill", "clause", "cold"):
            assert word not in s.text


@pytest.mark.slow
async def test_ctrl_l_shows_each_size_that_fits_and_keeps_it_for_save_settings():
    async with any_screen((120, 40)) as s:
        await answered(s)
        for size, seen in (("glance", "✗ ≤ 300 ms"), ("lab", "TTFT"), ("line", "♪ 512 ms")):
            await s.pilot.press("ctrl+l")
            await s.settle()
            assert seen in s.text
            assert s.app.panel.chosen == s.app.session.chosen["ui.panel"] == size
        await s.pilot.resize_terminal(60, 15)
        await s.settle()
        assert s.app.panel.chosen == "line"
        await s.pilot.press("ctrl+l")
        assert "room for the line only" in s.toasts[-1]
