import ctypes
import os
import subprocess
import sys

import pytest

from voxtui.commands.stderr import native_stderr_in

SCRIPT = """
import ctypes, os, pathlib, sys
from voxtui.commands.stderr import native_stderr_in
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


def test_the_log_starts_empty(tmp_path):
    log = tmp_path / "native.log"
    log.write_text("of the session before\n")
    with native_stderr_in(log):
        pass
    assert log.read_text() == ""
