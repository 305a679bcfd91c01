"""The start and the end of the program: signals during imports, and failures outside a command."""

import errno
import importlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import click
import pytest

import voxtui.cli
from tests.fakes import SECONDS
from voxtui.__main__ import interrupt

VOXTUI = [sys.executable, "-m", "voxtui"]


@pytest.fixture
def interruptible(monkeypatch):
    """Install the program's signal handler, as its `main` does."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)}
    for number in before:
        signal.signal(number, interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("interruptible")
def test_a_signal_during_an_import_takes_effect_after_it(tmp_path, monkeypatch):
    (tmp_path / "half_imported.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nwhole = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module("half_imported")
        threading.Event().wait(SECONDS)
    assert sys.modules.pop("half_imported").whole


@pytest.mark.usefixtures("interruptible")
def test_a_signal_outside_an_import_takes_effect_at_once():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


def test_an_interrupt_while_the_command_line_is_imported_exits_with_130():
    code = "import voxtui.__main__ as m, sys; sys.modules['voxtui.cli'] = Cut(); m.main()"
    cut = "class Cut:\n    def __getattr__(self, name): raise KeyboardInterrupt\n"
    ran = subprocess.run([sys.executable, "-c", cut + code], capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (130, b"")


def test_a_signal_after_the_end_of_the_command_line_prints_no_traceback():
    code = (
        "import os, signal, sys, types, voxtui.__main__ as m\n"
        "sys.modules['voxtui.cli'] = types.SimpleNamespace(main=lambda: None)\n"
        "m.main()\n"
        "os.kill(os.getpid(), signal.SIGTERM)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (-signal.SIGTERM, b"")


@pytest.fixture
def main(monkeypatch, capfd):
    """Run the command line on `arguments` in this process: (exit code, stdout, stderr)."""

    def leave(code):
        raise SystemExit(code)

    def run(*arguments, fails=None):
        monkeypatch.setattr(sys, "argv", ["voxtui", *arguments])
        monkeypatch.setattr(sys, "stderr", sys.stderr)  # main replaces it
        monkeypatch.setattr(os, "_exit", leave)
        if fails:

            def fail(**_):
                raise fails

            monkeypatch.setattr(voxtui.cli.cli, "main", fail)
        with pytest.raises(SystemExit) as ended:
            voxtui.cli.main()
        return ended.value.code, *capfd.readouterr()

    return run


@pytest.mark.parametrize(
    ("error", "printed"),
    [
        (
            RuntimeError("can't start new thread"),
            "voxtui: The system refused a new thread. A memory or process limit is too low. "
            "`ulimit -v` and `ulimit -u` show the limits.\n",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "voxtui: The output was not written: No space left on device. "
            "Free some space and try again.\n",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "a\nb\x1b[31m.wav"),
            "voxtui: a b[31m.wav: Permission denied.\n",
        ),
        (MemoryError(), "voxtui: Out of memory. `voxtui doctor` shows how much is free.\n"),
        (click.UsageError("No such command."), "Error: No such command.\n"),
    ],
    ids=["threads", "disk", "file", "memory", "usage"],
)
def test_a_failure_is_one_sentence_and_exit_code_2(main, error, printed):
    assert main(fails=error) == (2, "", printed)


def test_an_interrupt_exits_with_130(main):
    assert main(fails=click.Abort()) == (130, "", "")


def test_a_bug_keeps_its_traceback(main):
    with pytest.raises(ZeroDivisionError):
        main(fails=ZeroDivisionError())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_a_full_disk_behind_stderr_does_not_change_the_exit_code(tmp_path):
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    codes = []
    with Path("/dev/full").open("w") as full:
        for arguments in (["stats"], ["nonsense"]):
            ran = subprocess.run(
                [*VOXTUI, *arguments], env=environment, stderr=full, stdout=subprocess.PIPE,
                check=False,
            )  # fmt: skip
            codes.append(ran.returncode)
    assert codes == [0, 2]


def test_a_closed_standard_stream_is_replaced(monkeypatch):
    """Otherwise the next file gets the number of the stream, and is printed into."""
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    voxtui.cli.open_closed_streams()
    assert not sys.stdin.isatty()
    for stream in (sys.stdout, sys.stderr):
        assert stream.writable()
        stream.flush()
