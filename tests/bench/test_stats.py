"""`voxtui stats`: the tables and the JSON of past turns."""

import json

import pytest
from click.testing import CliRunner

import voxtui.cli
from voxtui.storage.metrics_files import metrics_folder


@pytest.fixture
def stats(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        targets = ("--set", "targets.ttft_ms=100", "--set", "targets.total_ms=1000")
        command = ["stats", *targets, *arguments]
        ran = CliRunner().invoke(voxtui.cli.cli, command, catch_exceptions=False)
        assert ran.exit_code == 0
        return ran

    return run


def keep(day, *, brain="scripted", ttft=0.1, session="one", source="microphone", **more):
    """Return a turn of that day as a line of the file."""
    line = {
        "at": f"2026-11-{day:02}T12:00:00Z", "session": session, "source": source,
        "number": 1, "brain": brain, "outcome": "answered", "tokens": 11, "hidden_ms": 5.0,
        "marks": {"speech_ended": -0.2, "released": 0.0, "first_token": ttft, "last_token": 1.1},
        **more,
    }  # fmt: skip
    append(json.dumps(line))


def append(line):
    metrics_folder().mkdir(parents=True, exist_ok=True)
    with (metrics_folder() / "2026-11-21.jsonl").open("a") as file:
        file.write(f"{line}\n")


def test_stats_report_that_there_are_no_turns(stats):
    assert stats().stderr == f"{metrics_folder()}: no turns yet.\n"
    off = stats("--set", "metrics.enabled=false")
    assert off.stderr.endswith("None are stored: metrics.enabled is false.\n")
    assert json.loads(stats("--json").stdout)["groups"] == []


def test_stats_are_by_brain_and_day_from_both_origins_with_verdicts(stats):
    for n in range(1, 21):
        keep(20, ttft=n / 1000)
    keep(21, ttft=0.15, session="two")
    keep(21, ttft=0.01, brain="other")
    printed = json.loads(stats("--json").stdout)
    assert (printed["turns"], printed["sessions"], printed["damaged"]) == (22, 2, 0)
    assert [(g["brain"], g["day"], g["turns"]) for g in printed["groups"]] == [
        ("scripted", None, 21),
        ("scripted", "2026-11-20", 20),
        ("scripted", "2026-11-21", 1),
        ("other", None, 1),
        ("other", "2026-11-21", 1),
    ]
    first_day = printed["groups"][1]["headlines"]
    assert first_day["ttft"]["released"] == {
        "n": 20, "p50": 10.0, "p95": 19.0, "p99": 20.0, "min": 1.0, "max": 20.0,
    }  # fmt: skip
    assert first_day["ttft"]["speech_ended"]["p50"] == 210.0
    assert (first_day["ttft"]["verdict"], first_day["total"]["verdict"]) == ("ok", "over")
    assert first_day["first_sound"]["verdict"] is None
    assert printed["groups"][0]["headlines"]["ttft"]["within"] == pytest.approx(20 / 21, abs=1e-3)
    assert printed["groups"][2]["headlines"]["ttft"]["verdict"] == "over"


def test_stats_fit_80_columns(stats):
    keep(20)
    keep(21, ttft=0.2)
    printed = stats().stdout.splitlines()
    assert printed[0] == f"{metrics_folder()}: turns: 2, sessions: 1"
    assert "scripted: 2 answered" in printed
    assert [line for line in printed if line.startswith("2026-11-21")] == [
        "2026-11-21     1 ✗   200   200   200       –     –     – ✗  1100  1100  1100"
    ]
    assert any(line.startswith("  TTFT ") and "✗ ≤ 100" in line for line in printed)
    assert max(map(len, printed[1:])) <= 80


def test_stats_count_damaged_lines(stats):
    keep(20)
    append("{{{")
    assert "Damaged lines, left out: 1" in stats().stdout


def test_stats_judge_each_brain_by_its_own_targets(stats):
    keep(20, brain="voxtral")
    keep(20, brain="embedded")
    groups = json.loads(stats("--json").stdout)["groups"]
    goals = {group["brain"]: group["headlines"]["first_sound"]["target"] for group in groups}
    assert goals == {"voxtral": 300, "embedded": 500}


def test_stats_judge_typed_turns_apart(stats):
    keep(20, brain="embedded")
    keep(20, brain="embedded", source="typed", ttft=0.6)
    groups = json.loads(stats("--json").stdout)["groups"]
    of_all_days = [group for group in groups if group["day"] is None]
    assert [(group["typed"], group["turns"]) for group in of_all_days] == [(False, 1), (True, 1)]
    assert of_all_days[1]["headlines"]["ttft"]["verdict"] == "ok"
    assert "embedded, typed: 1 answered" in stats().stdout


def test_the_wait_for_a_key_is_no_latency(stats):
    marks = {"speech_ended": -0.2, "released": 0.0, "confirmed": 9.0}
    keep(20, marks=marks | {"first_token": 9.1, "last_token": 9.2})
    keep(20)
    groups = json.loads(stats("--json").stdout)["groups"]
    assert [group["turns"] for group in groups] == [2, 2]
    assert [group["headlines"]["ttft"]["released"]["max"] for group in groups] == [100, 100]
    assert "2026-11-20     2 ✓   100" in stats().stdout


def test_stats_have_no_speed_of_drafted_tokens(stats):
    keep(20, tokens=40, drafted=40)
    keep(20, tokens=40)  # of a version that did not count them
    groups = json.loads(stats("--json").stdout)["groups"]
    assert groups[0]["headlines"]["tokens_per_s"]["released"] is None
    keep(20, tokens=40, drafted=20)
    groups = json.loads(stats("--json").stdout)["groups"]
    assert groups[0]["headlines"]["tokens_per_s"]["released"]["p50"] == 20
