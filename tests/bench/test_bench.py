"""`voxtui bench`: the real engine on small fakes, and what is made of its numbers."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner

import voxtui.cli
from tests.commands.test_ask import Ran
from tests.fakes import OUT_OF_MEMORY, BeepVoice, LoudIsSpeech, ScriptedBrain
from tests.patterns import sound
from voxtui.audio.clips import Clip
from voxtui.bench.compare import OldReport, compare, difference
from voxtui.bench.measure import Measured
from voxtui.bench.report import check, stage_spreads, steadiness
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.timestamps import Outcome, Turn
from voxtui.errors import InputError
from voxtui.settings.schema import TARGETS
from voxtui.storage.derived_latencies import FIRST_SOUND, TTFT
from voxtui.wiring import target_clips

CLIPS = {"one.wav": "..xxxxxxxx.", "two.wav": ".xxxxxxxxx."}


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """Run `voxtui bench` in this process on two short clips, unless told others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, pattern in CLIPS.items():
        soundfile.write(name, sound(pattern), 16_000)

    def run(*arguments, brain=None, voice=None, files=tuple(CLIPS)):
        brain = brain or ScriptedBrain()

        def build(config, emit, devices):
            return Engine(
                Models(LoudIsSpeech(), brain, voice or BeepVoice()), config, emit, devices
            )

        monkeypatch.setattr("voxtui.bench.bench_command.build_engine", build)
        ran = CliRunner().invoke(voxtui.cli.cli, ["bench", *files, *arguments])
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        return Ran(ran.exit_code, ran.stdout, ran.stderr)

    return run


def lines_of(ran, word):
    return [line for line in ran.stdout.splitlines() if line.strip().startswith(word)]


@pytest.mark.slow
def test_every_clip_is_a_turn_of_every_run_and_warm_up_is_reported_apart(bench):
    brain = ScriptedBrain()
    ran = bench("--runs", "2", "--warm-up", "1", "--json", brain=brain)
    printed = json.loads(ran.stdout)
    assert ran.exit_code == 0
    assert [(t["run"], t["clip"]) for t in printed["turns"]] == [
        (1, "one.wav"), (1, "two.wav"), (2, "one.wav"), (2, "two.wav"),
    ]  # fmt: skip
    assert [turn["clip"] for turn in printed["warm_up"]] == ["one.wav"]
    assert [len(past) for past in brain.pasts] == [0] * 5
    assert all(turn["paced"] for turn in printed["turns"])
    assert printed["headlines"]["ttft"]["released"]["n"] == 4
    assert "Warm-up, not counted above" in ran.stderr


def test_the_report_has_every_headline_from_both_origins_and_every_stage(bench):
    ran = bench("--runs", "1")
    for name in ("TTFT", "First sound", "Total"):
        assert len(lines_of(ran, name)) == 2
    assert len(lines_of(ran, "Processing")) == 1
    assert "≤ 300" in lines_of(ran, "TTFT")[0]
    for stage in ("listen", "token", "clause", "voice", "device", "writing"):
        assert lines_of(ran, stage), ran.stdout
    assert "2 clips, 1 run: 2 answered" in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 100


def test_without_a_device_first_sound_is_marked_when_the_speaker_gets_it(bench):
    printed = json.loads(bench("--runs", "1", "--json").stdout)
    assert printed["speaker"] == "no device"
    for turn in printed["turns"]:
        assert turn["marks"]["first_audio"] <= turn["marks"]["first_sound"]


@pytest.mark.slow
def test_two_files_with_the_same_name_are_two_clips(bench):
    (Path("other")).mkdir()
    soundfile.write("other/one.wav", sound("..xxxxxxxx."), 16_000)
    files = ("one.wav", "other/one.wav")
    printed = json.loads(bench("--runs", "1", "--json", files=files).stdout)
    assert [clip["name"] for clip in printed["clips"]] == ["one.wav", "one.wav (2)"]


@pytest.mark.slow
def test_a_broken_budget_exits_with_1(bench):
    kept = bench("--runs", "1", "--budget", "ttft=9000", "--budget", "first_sound=9000")
    assert (kept.exit_code, kept.stdout.splitlines()[-1]) == (0, "PASS")
    broken = bench("--runs", "1", "--budget", "ttft=9000", "--budget", "total=0.0001")
    assert (broken.exit_code, broken.stdout.splitlines()[-1]) == (1, "FAIL: 1 of 2")
    assert lines_of(broken, "PASS  budget ttft")
    assert lines_of(broken, "FAIL  budget total")


@pytest.mark.slow
def test_a_budget_that_no_turn_reached_is_broken(bench):
    silent = bench("--runs", "1", "--budget", "first_sound=9000", brain=ScriptedBrain([], [], []))
    assert silent.exit_code == 1
    assert "no turn reached it" in silent.stdout


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        ("speed=1", "the names are ttft, processing, first_sound, total."),
        ("ttft", "is not of the form ttft=MILLISECONDS."),
        ("ttft=soon", "is not of the form ttft=MILLISECONDS."),
        ("ttft=-1", "is not of the form ttft=MILLISECONDS."),
        ("ttft=nan", "is not of the form ttft=MILLISECONDS."),
    ],
)
def test_an_invalid_budget_is_refused(bench, printed, why):
    with pytest.raises(InputError) as caught:
        bench("--budget", printed)
    assert str(caught.value) == f"--budget {printed}: {why}"


def test_a_failed_turn_is_counted_and_exits_with_1(bench):
    brain = ScriptedBrain(["Fine."], [OUT_OF_MEMORY])
    ran = bench("--runs", "1", "--warm-up", "0", brain=brain)
    assert ran.exit_code == 1
    assert "1 answered, 1 failed" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "Failed: Out of memory."


def _older(clips, brain="scripted brain", **timestamps):
    """old.json with a turn of each of `clips`."""
    timestamps = {
        "released": 0.0,
        "captured": 0.03,
        "first_token": 0.04,
        "last_token": 0.9,
        **timestamps,
    }
    turn = {"brain": "scripted", "outcome": "answered", "tokens": 9, "marks": timestamps}
    Path("old.json").write_text(
        json.dumps(
            {
                "brain": brain,
                "speaker": "no device",
                "machine": {"date": "2026-01-02"},
                "turns": [turn | {"clip": clip} for clip in clips],
            }
        )
    )


@pytest.mark.slow
def test_compare_prints_the_changes(bench):
    _older([*CLIPS] * 3, first_sound=5.0)
    ran = bench("--runs", "3", "--warm-up", "0", "--compare", "old.json")
    (line,) = [line for line in lines_of(ran, "First sound") if "pairs" in line]
    assert line.endswith("faster (6 pairs)")
    assert "Compared with old.json of 2026-01-02" in ran.stdout


@pytest.mark.slow
def test_compare_reports_too_few_pairs_and_other_conditions(bench):
    _older(CLIPS, brain="another")
    printed = bench("--runs", "1", "--compare", "old.json").stdout
    assert "too few to tell (2 pairs)" in printed
    assert "Different brain: it was another, it is scripted brain." in printed


@pytest.mark.slow
def test_compare_reports_that_no_clip_is_in_both(bench):
    _older(["unknown.wav"])
    assert (
        "The reports have no clip in common."
        in bench("--runs", "1", "--compare", "old.json").stdout
    )


def test_an_old_report_gives_the_terminal_no_command():
    old = OldReport("a\x1b[2J\nb", "none", {"date": "\x9b2J"}, [])
    about = {"brain": "c", "speaker": "none", "machine": {"cpu": None}}
    lines = compare(old, Path("o\x1b]0;ld"), [], about)
    assert lines[:2] == [
        "Compared with o]0;ld of 2J, turn by turn:",
        "  Different brain: it was a[2J b, it is c.",
    ]


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"turns": []}'])
def test_compare_refuses_a_file_that_is_not_a_report_before_it_measures(bench, text):
    if text is not None:
        Path("old.json").write_text(text)
    with pytest.raises(InputError, match=r"^old.json: "):
        bench("--compare", "old.json", brain=ScriptedBrain([ZeroDivisionError()]))


# What is made of numbers.


def _turn(clip, ttft_ms, first_sound_ms=200.0):
    timestamps = {"released": 0.0, "captured": 0.0, "first_token": ttft_ms / 1000}
    timestamps |= {"first_sound": first_sound_ms / 1000, "last_token": 0.9}
    return Turn(1, "scripted", Outcome.ANSWERED, timestamps, clip, tokens=9)


def _noise(seed, shift=0.0, n=30):
    random = np.random.default_rng(seed)
    return [_turn("a.wav", 50 + shift + value) for value in random.normal(0, 5, n)]


def test_a_difference_is_certain_for_a_real_shift_and_rarely_by_chance():
    pairs = [(_noise(2 * n), _noise(2 * n + 1)) for n in range(40)]
    wrong = sum(difference(old, new, TTFT).certain for old, new in pairs)
    assert wrong <= 6  # one in twenty is chance
    same = difference(_noise(1), _noise(1), TTFT)
    assert (same.pairs, same.median, same.certain) == (30, 0, False)
    slower = difference(_noise(1), _noise(2, shift=10), TTFT)
    assert slower.certain
    assert 5 < slower.low < slower.median < slower.high < 15


def _measured(*runs):
    clips = [Clip("a.wav", np.zeros(16_000, np.float32))]
    return Measured("brain", "voice", "none", clips, [], runs)


def test_check_judges_each_target_by_p95_and_that_the_runs_agree():
    steady = _measured(*[[_turn("a.wav", 50), _turn("a.wav", 52)]] * 3)
    assert [j.passed for j in check(steady, TARGETS["voxtral"])] == [True] * 7
    late = _measured([_turn("a.wav", 50)] * 9 + [_turn("a.wav", 150)])
    failed = [j.name for j in check(late, TARGETS["voxtral"]) if not j.passed]
    assert failed == ["TTFT, a.wav, 1.0 s", "Processing, a.wav, 1.0 s"]
    apart = _measured([_turn("a.wav", 20, 100)], [_turn("a.wav", 20, 290)])
    failed = [str(j) for j in check(apart, TARGETS["voxtral"]) if not j.passed]
    assert failed == ["FAIL  First sound, stability                       "
                      "p50 of 2 runs within ± 49%"]  # fmt: skip


def test_runs_a_few_milliseconds_apart_are_steady():
    assert steadiness([[_turn("a", 1)], [_turn("a", 9)]], TTFT).steady
    assert not steadiness([[_turn("a", 100)], [_turn("a", 200)]], TTFT).steady
    assert steadiness([[_turn("a", 1)]], FIRST_SOUND) is None


def test_stages_are_grouped_by_name():
    turn = _turn("a.wav", 60)
    found = stage_spreads([turn, turn])
    assert list(found) == ["listen", "token", "device", "writing"]
    assert found["token"].p50 == pytest.approx(60)


def test_check_runs_over_a_short_wav_and_a_long_ogg():
    short, long = (soundfile.info(path) for path in target_clips())
    assert (short.format, long.format) == ("WAV", "OGG")
    assert short.duration < 3
    assert long.duration > 12


@pytest.mark.slow
def test_check_is_one_command_with_an_exit_code(bench, monkeypatch):
    clips = [Path(name) for name in CLIPS]
    monkeypatch.setattr("voxtui.bench.bench_command.target_clips", lambda: clips)
    ran = bench("--check", "--runs", "1", files=())
    assert ran.exit_code == 0, ran.stdout
    assert ran.stdout.splitlines()[-1] == "PASS"
    failing = bench("--check", "--runs", "1", "--set", "targets.total_ms=0.001", files=())
    assert (failing.exit_code, failing.stdout.splitlines()[-1]) == (1, "FAIL: 2 of 9")


def test_a_benchmark_that_moved_says_where_it_is():
    ran = CliRunner().invoke(voxtui.cli.cli, ["bench", "serve", "--scripted"])
    assert ran.exit_code == 2
    assert "python -m benchmarks.serve" in ran.output
