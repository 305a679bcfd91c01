"""The metrics files: their content, their size, and that they never delay a turn."""

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
from filelock import FileLock

from tests.fakes import SECONDS, ScriptedBrain, engine_on_fakes, frames
from voxtui.dialogue.engine_commands import Release, Talk
from voxtui.dialogue.events import Loaded, StateChanged, TurnFinished, TurnStarted
from voxtui.dialogue.timestamps import Milestone, Outcome, Timestamps, Turn
from voxtui.errors import InputError
from voxtui.storage import metrics_files as log_module
from voxtui.storage.metrics_files import MetricsWriter, metrics_writer, read

SECRET = "the password is swordfish"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state" / "metrics"


def timestamps(**at):
    made = Timestamps()
    for name, when in {"released": 100.0, "first_token": 100.1, "first_shown": 100.2, **at}.items():
        made.record(Milestone(name), when)
    return made


def turn(number=1, **fields):
    times = {"speech_ended": -0.2, "released": 0.0, "first_token": 0.1, "last_token": 0.9}
    return Turn(
        number, "scripted", Outcome.ANSWERED, **{"timestamps": times, "tokens": 9, **fields}
    )


def keep(folder, *turns, source="microphone", timestamps=None):
    """Run a session of `turns`."""
    log = MetricsWriter(folder)
    emit = log.tee(lambda event: None)
    for each in turns:
        if timestamps is not None:
            emit(TurnStarted(each.number, source, timestamps))
        emit(TurnFinished(each))
    log.close()


def today(folder):
    (file,) = folder.iterdir()
    return file


def numbers(folder):
    return [line.number for line in read(folder).lines]


def test_a_turn_is_kept_with_its_times(folder):
    keep(folder, turn(3), source="typed", timestamps=timestamps())
    (line,) = read(folder).lines
    assert (line.number, line.brain, line.source, line.tokens) == (3, "scripted", "typed", 9)
    assert line.turn.ttft_ms == pytest.approx(100)
    assert (datetime.now(UTC) - line.at).total_seconds() < 60


def test_no_word_no_name_and_no_error_is_kept(folder):
    words = {"heard": SECRET, "reply": SECRET, "clip": f"{SECRET}.wav", "error": SECRET}
    keep(folder, turn(**words), source=f"{SECRET}.wav", timestamps=timestamps())
    assert SECRET not in today(folder).read_text()
    assert read(folder).lines[0].source == "clip"


def test_a_turn_of_the_engine_leaves_no_word(folder):
    log, done, loaded = MetricsWriter(folder), threading.Event(), threading.Event()

    def emit(event):
        match event:
            case Loaded():
                loaded.set()
            case TurnFinished():
                done.set()

    engine = engine_on_fakes(log.tee(emit), brain=ScriptedBrain([SECRET], heard=SECRET))
    engine.start()
    assert loaded.wait(SECONDS)
    now = time.monotonic() - 1
    engine.post(Talk(now, source=SECRET))
    for frame in frames("..xxxxxxxxxxxx....", now, source=SECRET):
        engine.push(frame)
    engine.post(Release(now + 0.5))
    assert done.wait(SECONDS)
    engine.close()
    log.close()
    assert [line.outcome for line in read(folder).lines] == [Outcome.ANSWERED]
    assert not any(word in today(folder).read_text() for word in SECRET.split())


def test_a_time_from_an_array_is_kept_as_a_number(folder):
    keep(folder, turn(), timestamps=timestamps(first_sound=np.float64(100.5)))
    assert read(folder).lines[0].turn.first_sound_ms == pytest.approx(500)


def test_only_the_owner_may_read_a_file(folder):
    keep(folder, turn())
    assert stat.S_IMODE(today(folder).stat().st_mode) == 0o600


def test_turned_off_the_log_passes_events_on_unchanged():
    def emit(event): ...

    with metrics_writer(enabled=False) as log:
        assert log.tee(emit) is emit


def test_a_turn_that_is_not_in_real_time_is_not_kept(folder):
    keep(folder, turn(paced=False), turn(2))
    assert numbers(folder) == [2]


def test_the_first_word_may_be_painted_after_the_end_of_the_turn(folder):
    late = Timestamps()
    late.record(Milestone.RELEASED, 100.0)
    log = MetricsWriter(folder)
    emit = log.tee(lambda event: None)
    emit(TurnStarted(1, "microphone", late))
    emit(TurnFinished(turn()))
    late.record(Milestone.FIRST_SHOWN, 100.3)
    log.close()
    assert read(folder).lines[0].timestamps["first_shown"] == pytest.approx(0.3)


def test_events_pass_at_once_if_no_file_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    seen = []
    log = MetricsWriter(tmp_path / "file" / "metrics")
    emit = log.tee(seen.append)
    emit(TurnFinished(turn()))
    emit(StateChanged)
    log.close()
    assert len(seen) == 2


@pytest.mark.parametrize("target", ["fifo", "link"])
def test_a_turn_is_not_written_to_a_fifo_or_through_a_link(folder, tmp_path, target):
    folder.mkdir(parents=True)
    file = folder / f"{datetime.now(UTC):%Y-%m-%d}.jsonl"
    victim = tmp_path / "victim"
    victim.write_text("mine")
    os.mkfifo(file) if target == "fifo" else file.symlink_to(victim)
    keep(folder, turn())
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("what", ["directory", "fifo", "device"])
def test_a_file_that_is_not_regular_is_refused_by_name(folder, what):
    folder.mkdir(parents=True)
    file = folder / "2026-01-01.jsonl"
    match what:
        case "directory":
            file.mkdir()
        case "fifo":
            os.mkfifo(file)
        case _:
            file.symlink_to("/dev/zero")
    with pytest.raises(
        InputError, match=r"01\.jsonl: cannot be read: I(t is not a regular file|s a directory)"
    ):
        read(folder)


DAMAGE = [
    b"{",
    b"null",
    b'"text"',
    b"\xff\xfe\x00",
    b'{"at": "yesterday"}',
    b'{"timestamps": {"released": "soon"}}',
]


@pytest.mark.parametrize("damage", DAMAGE, ids=repr)
def test_only_the_damaged_line_is_left_out(folder, damage):
    keep(folder, turn(1))
    with today(folder).open("ab") as file:
        file.write(damage + b"\n\n")
    keep(folder, turn(2))
    assert numbers(folder) == [1, 2]
    assert read(folder).damaged == 1


def test_a_line_that_a_full_disk_cut_off_damages_no_later_turn(folder):
    keep(folder, turn(1))
    with today(folder).open("ab") as file:
        file.write(b'{"at": "2026-')
    keep(folder, turn(2))
    assert numbers(folder) == [1, 2]
    assert read(folder).damaged == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"at": "2026-01-01T00:00:00"},
        {"outcome": "odd"},
        {"timestamps": {"released": 1e999}},
        {"tokens": -1},
        {"brain": "\x1b[31m"},
    ],
    ids=repr,
)
def test_a_line_with_an_impossible_value_is_damaged(folder, bad):
    keep(folder, turn())
    file = today(folder)
    file.write_text(json.dumps(json.loads(file.read_text()) | bad))
    assert (len(read(folder).lines), read(folder).damaged) == (0, 1)


def test_a_key_of_a_newer_version_is_ignored(folder):
    keep(folder, turn())
    file = today(folder)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"later": {"a": 1}}))
    assert len(read(folder).lines) == 1


def test_the_oldest_days_are_deleted_and_the_size_stays_bounded(folder, monkeypatch):
    monkeypatch.setattr(log_module, "DAY_BYTES", 1000)
    monkeypatch.setattr(log_module, "KEPT_BYTES", 3000)
    folder.mkdir(parents=True)
    for day in (1, 2, 3):
        (folder / f"2026-01-0{day}.jsonl").write_text("x" * 900)
    keep(folder, *map(turn, range(1, 41)))
    files = sorted(folder.parent.rglob("*.jsonl"))
    assert [file.name for file in files[:2]] == ["2026-01-02.jsonl", "2026-01-03.jsonl"]
    assert len(files) == 3
    assert 0 < files[2].stat().st_size <= 1000
    assert sum(file.stat().st_size for file in files) <= 3000


def test_quitting_waits_for_no_other_session(folder):
    """The version before held this lock while it wrote."""
    folder.parent.mkdir(parents=True)
    with FileLock(folder.with_suffix(".lock")):
        keep(folder, turn(1))
    assert numbers(folder) == [1]


def test_quitting_does_not_wait_for_a_disk_that_hangs(folder, monkeypatch):
    hanging, entered = threading.Event(), threading.Event()
    written = []

    def write(file, line):
        entered.set()
        hanging.wait(SECONDS)
        written.append(line)
        return len(line)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(log_module, "CLOSE_SECONDS", 0.01)
    keep(folder, turn())
    assert entered.wait(SECONDS)
    assert not written
    hanging.set()


WRITE = """
import sys
from pathlib import Path
from tests.storage.test_metrics_files import keep, turn
keep(Path(sys.argv[1]), *[turn(n) for n in range(1, 51)])
"""


@pytest.mark.slow
def test_sessions_that_write_at_once_lose_nothing(folder):
    command = [sys.executable, "-c", WRITE, folder]
    writing = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(SECONDS) for process in writing] == [0, 0, 0]
    past = read(folder)
    assert (len(past.lines), past.damaged) == (150, 0)
    assert len({line.session for line in past.lines}) == 3
