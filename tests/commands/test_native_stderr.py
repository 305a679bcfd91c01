"""Fd 2 during the screen: native libraries write to a log, Python to the terminal."""

import ctypes
import os
import stat
import subprocess
import sys

import pytest

from voxtui.terminal.native_stderr import lenient_writer, native_stderr_in

SCRIPT = """
import ctypes, os, pathlib, sys
from voxtui.terminal.native_stderr import native_stderr_in
with native_stderr_in(pathlib.Path(sys.argv[1])):
    os.write(2, b"native one\\n")
    ctypes.CDLL(None).perror(b"native two")
    print("python", file=sys.stderr)
    print("driver", file=sys.__stderr__)
os.write(2, b"after\\n")
print("python after", file=sys.stderr)
"""


def test_native_writes_go_to_the_log_and_pythons_to_the_terminal(tmp_path):
    log = tmp_path / "state" / "native.log"
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, log], capture_output=True, text=True, check=True
    )
    assert ran.stderr.splitlines() == ["python", "driver", "after", "python after"]
    one, two = log.read_text().splitlines()
    assert one == "native one"
    assert two.startswith("native two")


def test_the_terminal_is_restored_when_the_screen_fails(tmp_path, capfd):
    before = sys.stderr, sys.__stderr__
    log = tmp_path / "native.log"
    with pytest.raises(ZeroDivisionError), native_stderr_in(log):
        os.write(2, b"into the log\n")
        raise ZeroDivisionError
    os.write(2, b"to the terminal\n")
    ctypes.CDLL(None).fflush(None)
    assert (sys.stderr, sys.__stderr__) == before
    assert capfd.readouterr().err == "to the terminal\n"
    assert log.read_text() == "into the log\n"


def test_the_log_starts_empty_and_only_its_owner_may_read_it(tmp_path):
    log = tmp_path / "native.log"
    log.write_text("of the session before\n")
    log.chmod(0o644)
    with native_stderr_in(log):
        pass
    assert log.read_text() == ""
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.parametrize("what", ["fifo", "link", "directory", "below a file"])
def test_without_a_log_of_our_own_native_writes_are_dropped(tmp_path, capfd, what):
    log, victim = tmp_path / "native.log", tmp_path / "victim"
    victim.write_text("mine")
    match what:
        case "fifo":
            os.mkfifo(log)
        case "link":
            log.symlink_to(victim)
        case "directory":
            log.mkdir()
        case _:
            log = victim / "native.log"
    with native_stderr_in(log):
        os.write(2, b"native")
    assert victim.read_text() == "mine"
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux")
def test_a_full_disk_behind_stderr_raises_nothing():
    with open("/dev/full", "wb") as full, lenient_writer(os.dup(full.fileno())) as writer:
        writer.write("a sentence\n")
