"""The metrics file: what it keeps, how it stays small, and that it never hurts a turn."""

import json
import os
import stat
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime

import numpy as np
import pytest
from click.testing import CliRunner
from filelock import FileLock

import voxtui.cli
from tests.fakes import SECONDS, ScriptedBrain, engine_on_fakes, frames
from voxtui.dialogue.events import Loaded, StateChanged, TurnFinished, TurnStarted
from voxtui.dialogue.marks import Mark, Marks, Outcome, Turn
from voxtui.errors import InputError
from voxtui.records import metrics_log as metricsfile
from voxtui.records.metrics_log import MetricsLog, metrics_file, metrics_log, read

SECRET = "the password is swordfish"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "metrics.jsonl"


def marks(**at):
    found = Marks()
    for name, when in {"released": 100.0, "first_token": 100.1, "first_shown": 100.2, **at}.items():
        found.mark(Mark(name), when)
    return found


def turn(number=1, **fields):
    times = {"speech_ended": -0.2, "released": 0.0, "first_token": 0.1, "last_token": 0.9}
    return Turn(number, "scripted", Outcome.ANSWERED, **{"marks": times, "tokens": 9, **fields})


def note(path, *turns, source="microphone", marks=None):
    """A session of `turns`."""
    log = MetricsLog(path)
    noted = log.tee(lambda event: None)
    for each in turns:
        if marks is not None:
            noted(TurnStarted(each.number, source, marks))
        noted(TurnFinished(each))
    log.close()


def test_a_turn_is_kept_with_its_times(path):
    note(path, turn(3), source="typed", marks=marks())
    (line,) = read(path).lines
    assert (line.number, line.brain, line.source, line.tokens) == (3, "scripted", "typed", 9)
    assert line.turn.ttft_ms == pytest.approx(100)
    assert (datetime.now(UTC) - line.at).total_seconds() < 60


def test_no_word_no_name_and_no_error_is_kept(path):
    said = {"heard": SECRET, "reply": SECRET, "clip": f"{SECRET}.wav", "error": SECRET}
    note(path, turn(**said), source=f"{SECRET}.wav", marks=marks())
    assert SECRET not in path.read_text()
    assert read(path).lines[0].source == "clip"


def test_the_engine_and_a_real_turn_leave_no_word_in_it(path):
    log, done, loaded = MetricsLog(path), threading.Event(), threading.Event()

    def emit(event):
        match event:
            case Loaded():
                loaded.set()
            case TurnFinished():
                done.set()

    engine = engine_on_fakes(log.tee(emit), brain=ScriptedBrain([SECRET], heard=SECRET))
    engine.start()
    assert loaded.wait(SECONDS)
    now = time.monotonic() - 1  # of a turn that took days no line is believed
    engine.talk(now, source=SECRET)
    for frame in frames("..xxxxxxxxxxxx....", now, source=SECRET):
        engine.push_frame(frame)
    engine.release(now + 0.5)
    assert done.wait(SECONDS)
    engine.close()
    log.close()
    assert [line.outcome for line in read(path).lines] == [Outcome.ANSWERED]
    assert not any(word in path.read_text() for word in SECRET.split())


def test_a_time_that_came_out_of_an_array_is_a_time(path):
    note(path, turn(), marks=marks(first_sound=np.float64(100.5)))
    assert read(path).lines[0].turn.first_sound_ms == pytest.approx(500)


def test_only_its_owner_may_read_it(path):
    note(path, turn())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_turned_off_it_keeps_nothing_and_costs_nothing():
    def emit(event): ...

    assert MetricsLog(None).tee(emit) is emit
    with metrics_log(enabled=False) as log:
        assert log.tee(emit) is emit


def test_a_turn_not_in_real_time_is_not_kept(path):
    note(path, turn(paced=False), turn(2))
    assert [line.number for line in read(path).lines] == [2]


def test_the_first_painted_word_of_a_short_answer_is_waited_for(path):
    late = marks()
    late._times.pop(Mark.FIRST_SHOWN)
    log = MetricsLog(path)
    noted = log.tee(lambda event: None)
    noted(TurnStarted(1, "microphone", late))
    noted(TurnFinished(turn()))
    late.mark(Mark.FIRST_SHOWN, 100.3)
    log.close()
    assert read(path).lines[0].marks["first_shown"] == pytest.approx(0.3)


def test_events_go_on_at_once_whatever_happens_to_the_file(tmp_path):
    (tmp_path / "file").write_text("")
    seen = []
    log = MetricsLog(tmp_path / "file" / "metrics.jsonl")
    noted = log.tee(seen.append)
    noted(TurnFinished(turn()))
    noted(StateChanged)
    log.close()
    assert len(seen) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to_costs_only_the_file(tmp_path):
    tmp_path.chmod(0o500)
    note(tmp_path / "metrics.jsonl", turn())
    assert read(tmp_path / "metrics.jsonl").lines == []


def test_a_directory_in_its_place_costs_only_the_file_and_is_not_taken_for_no_turns(path):
    path.mkdir(parents=True)
    note(path, turn())
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read(path)


DAMAGE = [
    b"",
    b"\n",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"\xff\xfe\x00",
    b'{"at": "yesterday"}',
    b'{"marks": {"released": "soon"}}',
]


@pytest.mark.parametrize("damage", DAMAGE, ids=repr)
def test_a_damaged_line_costs_that_line_only(path, damage):
    note(path, turn(1))
    with path.open("ab") as file:
        file.write(damage)
    note(path, turn(2))
    past = read(path)
    assert [line.number for line in past.lines] == [1, 2]
    assert past.damaged == bool(damage.strip())


def test_a_line_with_a_number_that_is_none_or_a_time_without_its_zone_is_damaged(path):
    note(path, turn())
    good = json.loads(path.read_text())
    for bad in ({"at": "2026-01-01T00:00:00"}, {"outcome": "odd"}, {"marks": {"released": 1e999}}):
        with path.open("a") as file:
            file.write(json.dumps(good | bad) + "\n")
    assert (len(read(path).lines), read(path).damaged) == (1, 3)


@pytest.mark.parametrize(
    "bad", [{"tokens": -1}, {"tokens": 10**30}, {"network_ms": 1e308}, {"brain": "\x1b[31m\n"}]
)
def test_a_line_that_no_turn_can_have_written_is_damaged(path, bad):
    note(path, turn())
    with path.open("a") as file:
        file.write(json.dumps(json.loads(path.read_text()) | bad) + "\n")
    assert (len(read(path).lines), read(path).damaged) == (1, 1)


def test_a_line_from_the_end_of_time_or_of_a_turn_without_end_is_damaged(path, monkeypatch):
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    note(path, turn())
    good = json.loads(path.read_text())
    for bad in ({"at": "9999-12-31T23:59:59Z"}, {"marks": {"first_token": 1e306}}):
        with path.open("a") as file:
            file.write(json.dumps(good | bad) + "\n")
    found = read(path)
    monkeypatch.undo()
    time.tzset()
    assert (len(found.lines), found.damaged) == (1, 2)


def test_what_a_newer_version_adds_does_no_harm(path):
    note(path, turn())
    good = json.loads(path.read_text())
    path.write_text(json.dumps(good | {"later": {"a": 1}}))
    assert len(read(path).lines) == 1


def test_it_stays_bounded_and_forgets_the_oldest_turns(path, monkeypatch):
    monkeypatch.setattr(metricsfile, "KEPT_BYTES", 2000)
    note(path, *map(turn, range(1, 41)))
    numbers = [line.number for line in read(path).lines]
    assert numbers == [*range(41 - len(numbers), 41)]
    assert 4 < len(numbers) < 40
    assert sum(file.stat().st_size for file in path.parent.iterdir()) <= 4000


WRITE = """
import sys
from pathlib import Path
from tests.records.test_metrics_log import note, turn
note(Path(sys.argv[1]), *[turn(n) for n in range(1, 51)])
"""


def test_while_another_session_writes_nothing_is_written_beside_it(path, monkeypatch):
    monkeypatch.setattr(metricsfile, "LOCK_SECONDS", 0.01)
    note(path, turn(1))
    with FileLock(path.with_suffix(".lock")):
        note(path, turn(2))
    note(path, turn(3))
    assert [line.number for line in read(path).lines] == [1, 3]


def test_sessions_that_write_at_once_lose_nothing(path):
    command = [sys.executable, "-c", WRITE, path]
    writing = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(60) for process in writing] == [0, 0, 0]
    past = read(path)
    assert (len(past.lines), past.damaged) == (150, 0)
    assert len({line.session for line in past.lines}) == 3


# voxtui stats


@pytest.fixture
def stats(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        ran = CliRunner().invoke(voxtui.cli.cli, ["stats", *arguments], catch_exceptions=False)
        assert ran.exit_code == 0
        return ran

    return run


def keep(day, *, brain="scripted", ttft=0.1, session="one"):
    """A turn of that day, in the file."""
    line = {
        "at": f"2026-11-{day:02}T12:00:00Z", "session": session, "source": "microphone",
        "number": 1, "brain": brain, "outcome": "answered", "tokens": 11, "hidden_ms": 5.0,
        "marks": {"speech_ended": -0.2, "released": 0.0, "first_token": ttft, "last_token": 1.1},
    }  # fmt: skip
    metrics_file().parent.mkdir(parents=True, exist_ok=True)
    with metrics_file().open("a") as file:
        file.write(json.dumps(line) + "\n")


def test_stats_without_turns_say_so(stats):
    assert stats().stderr == f"{metrics_file()}: no turns yet.\n"
    off = stats("--set", "metrics.enabled=false")
    assert off.stderr.endswith("None are kept: metrics.enabled is false.\n")
    assert json.loads(stats("--json").stdout)["groups"] == []


def test_stats_are_by_brain_and_day_from_both_origins_with_verdicts(stats):
    for n in range(1, 21):
        keep(20, ttft=n / 1000)
    keep(21, ttft=0.15, session="two")
    keep(21, ttft=0.01, brain="other")
    said = json.loads(stats("--json").stdout)
    assert (said["turns"], said["sessions"], said["damaged"]) == (22, 2, 0)
    assert [(g["brain"], g["day"], g["turns"]) for g in said["groups"]] == [
        ("scripted", None, 21),
        ("scripted", "2026-11-20", 20),
        ("scripted", "2026-11-21", 1),
        ("other", None, 1),
        ("other", "2026-11-21", 1),
    ]
    first_day = said["groups"][1]["headlines"]
    assert first_day["ttft"]["released"] == {
        "n": 20, "p50": 10.0, "p95": 19.0, "p99": 20.0, "min": 1.0, "max": 20.0,
    }  # fmt: skip
    assert first_day["ttft"]["speech_ended"]["p50"] == 210.0
    assert (first_day["ttft"]["verdict"], first_day["total"]["verdict"]) == ("ok", "over")
    assert first_day["first_sound"]["verdict"] is None
    assert said["groups"][0]["headlines"]["ttft"]["within"] == pytest.approx(20 / 21, abs=1e-3)
    assert said["groups"][2]["headlines"]["ttft"]["verdict"] == "over"


def test_stats_can_be_read_by_a_person_in_an_ordinary_terminal(stats):
    keep(20)
    keep(21, ttft=0.2)
    said = stats().stdout.splitlines()
    assert said[0] == f"{metrics_file()}: turns: 2, sessions: 1"
    assert "scripted: 2 answered" in said
    assert [line for line in said if line.startswith("2026-11-21")] == [
        "2026-11-21     1 ✗   200   200   200       –     –     – ✗  1100  1100  1100"
    ]
    assert any(line.startswith("  TTFT ") and "✗ ≤ 100" in line for line in said)
    assert max(map(len, said[1:])) <= 80


def test_stats_name_the_damage_they_leave_out(stats):
    keep(20)
    with metrics_file().open("a") as file:
        file.write("{{{\n")
    assert "Damaged lines, left out: 1" in stats().stdout
