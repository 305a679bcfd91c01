"""The screen in a terminal: requests, keys, signals, and the terminal after the end."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.deadline import SECONDS
from tests.ui.pseudo_terminal import (
    ALTERNATE_SCREEN,
    ENVIRONMENT,
    FOCUS,
    MOUSE,
    MOUSE_IN_PIXELS,
    PASTE,
    REPOSITORY,
    AppInTerminal,
    PseudoTerminal,
    until,
)

DOWN, REPEAT, UP = "\x1b[32;1:1;32u", "\x1b[32;1:2;32u", "\x1b[32;1:3u"
QUIT = "\x1b[113;5u"

OPENS_A_SCREEN = """
import asyncio
from voxtui.ui.driver.termination import exit_on_signals

async def screen():
    exit_on_signals(lambda: print("left", end="", flush=True))
    await asyncio.sleep(0)

asyncio.run(screen())
"""


@pytest.fixture
def log(tmp_path):
    return tmp_path / "calls"


def test_a_held_key_talks_from_the_time_of_its_first_byte_to_that_of_its_release(log):
    with AppInTerminal(log) as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        assert terminal.flags == [0, 27]
        down = terminal.send(DOWN)
        terminal.until(lambda: "talk" in terminal.told)
        terminal.send(*[REPEAT] * 20)
        up = terminal.send("\x1b[32;1", ":3u")
        terminal.until(lambda: "release" in terminal.told)
        ((talk, _),), ((release, _),) = terminal.calls_of("talk"), terminal.calls_of("release")
        assert abs(talk - down) < 0.5
        assert abs(release - up) < 0.5
        terminal.until(lambda: b"Paris" in terminal.output)
        terminal.send(QUIT)
        assert terminal.ends() == 0
        terminal.until(terminal.restored)


@pytest.mark.slow
@pytest.mark.parametrize("releases", [False, None])
def test_without_key_releases_the_key_toggles_and_types_nothing(log, releases):
    with AppInTerminal(log, releases=releases) as terminal:
        if releases is False:
            terminal.until(lambda: "no releases" in terminal.told)
        for _ in range(30):
            terminal.send(" ")
        terminal.until(lambda: "release" in terminal.told)
        assert terminal.told.count("talk") == 1
        assert not {"new_conversation", "say", "cancel"} & set(terminal.told)
        terminal.send("\x11")
        assert terminal.ends() == 0
        terminal.until(terminal.restored)


@pytest.mark.slow
def test_keys_that_arrive_in_one_write_are_obeyed_in_their_order(log):
    with AppInTerminal(log) as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        terminal.send(f"\x0e{DOWN}")
        terminal.until(lambda: "talk" in terminal.told)
        terminal.send(f"{UP}none of it is a command\r")
        terminal.until(lambda: "say" in terminal.told)
        told = [call for call in terminal.told if call not in ("ready", "releases")]
        assert told == ["new_conversation", "talk", "release", "say"]
        assert terminal.calls_of("say")[0][0] == "none of it is a command"


def test_ctrl_z_suspends_it_and_its_parent_and_ends_the_utterance(log):
    with AppInTerminal(log, by_make=True) as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        terminal.send(DOWN)
        terminal.until(lambda: "talk" in terminal.told)
        terminal.send("\x1b[122;5u")
        terminal.until_suspended()
        terminal.until(lambda: b"it stopped" in terminal.output)
        terminal.send("\n")
        terminal.until(lambda: terminal.told.count("releases") == 2)
        assert terminal.told.count("release") == 1
        terminal.send(DOWN, UP)
        terminal.until(lambda: terminal.told.count("release") == 2)


@pytest.mark.slow
def test_ctrl_z_does_nothing_without_a_shell_that_could_resume_it(log):
    with AppInTerminal(log) as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        terminal.send("\x1b[122;5u")
        terminal.until(lambda: b"Not suspended" in terminal.output)
        terminal.send(DOWN, UP)
        terminal.until(lambda: "release" in terminal.told)


def test_sigterm_restores_the_terminal(log):
    with AppInTerminal(log) as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        for mode in (ALTERNATE_SCREEN, *MOUSE, PASTE, FOCUS):
            assert terminal.modes[mode]
        assert not terminal.restored()
        terminal.send(DOWN)
        terminal.until(lambda: "talk" in terminal.told)
        assert terminal.ends(signal.SIGTERM) == 130
        terminal.until(terminal.restored)
        assert b"Traceback" not in terminal.output


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_the_same_code_while_its_loop_hangs(log, ending):
    with AppInTerminal(log, "--hang", in_shell=True) as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        terminal.send(DOWN)
        terminal.until(lambda: "talk" in terminal.told)
        assert terminal.ends(ending) == 130
        terminal.until(terminal.restored)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGTERM, QUIT])
def test_a_long_answer_that_comes_at_once_does_not_delay_the_end(log, ending):
    with AppInTerminal(log, "--pieces", "20000") as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        terminal.send(DOWN, UP)
        terminal.until(lambda: "release" in terminal.told)
        begun = time.monotonic()
        if isinstance(ending, signal.Signals):
            assert terminal.ends(ending) == 130
        else:
            terminal.send(ending)
            assert terminal.ends() == 0
        terminal.until(terminal.restored)
        assert time.monotonic() - begun < 10


@pytest.mark.slow
def test_a_bug_ends_it_with_a_traceback_on_a_restored_terminal(log):
    with AppInTerminal(log, "--die") as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        terminal.send(DOWN)
        assert terminal.ends() == 1
        terminal.until(terminal.restored)
        terminal.until(lambda: b"ZeroDivisionError" in terminal.output)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_the_terminal_is_restored_after_a_crash_without_cleanup(log, how):
    with AppInTerminal(log, in_shell=True) as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        assert not terminal.restored()
        assert terminal.ends(how) == 128 + how
        terminal.until(terminal.restored)


@pytest.mark.slow
def test_no_bytes_end_it(log):
    noise = "\x1b[99999999999;1:3u", "\x1b[;:u", "\x1b[32;1:9u", "\x1b[?u", "\x1b[<;;M", "\x1b[0n"
    with AppInTerminal(log) as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        terminal.send(*noise)
        terminal.send("\x1b[200~pasted [32;1:1;32u\x1b[201~")
        terminal.send(DOWN, UP)
        terminal.until(lambda: "release" in terminal.told)
        assert "new_conversation" not in terminal.told


@pytest.mark.slow
def test_bytes_that_are_not_text_are_replaced(log):
    with AppInTerminal(log) as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        terminal.send(b"\xff", b"\x1b[M \xe1!")
        terminal.send("un caf\xe9 ".encode("latin-1"), "caf\xe9\r")
        terminal.until(lambda: "say" in terminal.told)
        assert terminal.calls_of("say")[0][0] == "\ufffdun caf\ufffd caf\xe9"
        terminal.send(QUIT)
        assert terminal.ends() == 0


@pytest.mark.slow
def test_a_terminal_that_changes_its_size_is_followed_down_to_nothing(log):
    with AppInTerminal(log) as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        for size in ((20, 5), (1, 1), (200, 60), (80, 24)):
            terminal.resize(*size)
            os.kill(terminal.pid, signal.SIGWINCH)
        terminal.send(DOWN, UP)
        terminal.until(lambda: b"Paris" in terminal.output)


@pytest.mark.slow
def test_after_a_suspend_releases_are_requested_again_and_all_is_painted(log):
    with AppInTerminal(log) as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        os.kill(terminal.pid, signal.SIGTSTP)
        terminal.until_suspended()
        before = len(terminal.output)
        os.kill(terminal.pid, signal.SIGCONT)
        terminal.until(lambda: terminal.told.count("releases") == 2)
        assert terminal.flags == [0, 27]
        terminal.until(lambda: b"voxtui" in terminal.output[before:])


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, "\x11"])
def test_the_terminal_is_restored_after_an_end_while_a_model_loads(tmp_path, ending):
    command = [sys.executable, "-m", "voxtui", "--set", "brain.name=embedded"]
    with PseudoTerminal(command, environment={"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        terminal.until(lambda: b"chat model" in terminal.output)
        if isinstance(ending, str):
            terminal.send(ending)
            assert terminal.ends() == 0
        else:
            assert terminal.ends(ending) == 130
        terminal.until(terminal.restored)
        assert b"Traceback" not in terminal.output


@pytest.mark.slow
@pytest.mark.parametrize("started_by", ["a shell", "nohup"])
def test_closing_the_terminal_ends_it(log, started_by):
    before = signal.signal(
        signal.SIGHUP, signal.SIG_IGN if started_by == "nohup" else signal.SIG_DFL
    )
    terminal = AppInTerminal(log)
    signal.signal(signal.SIGHUP, before)
    with terminal:
        terminal.hang_up()
        assert terminal.ends() in (1, 130)


def test_a_terminal_that_was_closed_before_the_screen_opened_ends_it():
    """A program that nohup started ignores the signal until its screen opens."""
    here, there = os.openpty()
    command = [sys.executable, "-c", OPENS_A_SCREEN]
    with subprocess.Popen(command, stdin=there, stdout=subprocess.PIPE) as process:
        os.close(there)
        os.close(here)
        assert process.communicate(timeout=SECONDS)[0] == b"left"


@pytest.mark.slow
def test_the_terminal_is_restored_after_a_stray_sigcont(log):
    with AppInTerminal(log) as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        os.kill(terminal.pid, signal.SIGCONT)
        terminal.until(lambda: terminal.told.count("releases") == 2)
        assert terminal.flags == [0, 27]
        terminal.send(DOWN, UP)
        terminal.until(lambda: b"Paris" in terminal.output)
        terminal.send(QUIT)
        assert terminal.ends() == 0
        terminal.until(terminal.restored)


@pytest.mark.slow
def test_the_mouse_in_pixels_is_restored_at_the_end(log):
    with AppInTerminal(log) as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        terminal.send("\x1b[?2048;2$y")  # in-band resize is supported
        terminal.until(lambda: terminal.modes.get(MOUSE_IN_PIXELS))
        terminal.send(QUIT)
        assert terminal.ends() == 0
        terminal.until(terminal.restored)


def test_a_frame_that_a_kill_cut_off_is_ended():
    code = "print('\\x1b[?2026h', end='', flush=True); os.kill(os.getpid(), 9)"
    program = f"import os; from voxtui.ui.driver.restore import *\nwith terminal_restored(): {code}"
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", program]
    with PseudoTerminal(shell) as terminal:
        assert terminal.ends() == 128 + signal.SIGKILL
        terminal.until(lambda: terminal.modes.get(2026) is False)


def test_text_typed_without_bracketed_paste_is_taken_whole(log):
    text = "a few words " * 1600
    with AppInTerminal(log) as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        terminal.send(*(text[i : i + 1000] for i in range(0, len(text), 1000)), "\r")
        terminal.until(lambda: "say" in terminal.told)
        assert terminal.calls_of("say")[0][0] == text.strip()


@pytest.mark.slow
def test_after_a_paste_without_its_end_keys_are_obeyed_again(log):
    with AppInTerminal(log) as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        terminal.send("\x1b[200~", "a paste", QUIT)
        threading.Event().wait(3)  # longer than a paste may be silent
        terminal.send(QUIT)
        assert terminal.ends() == 0


# tmux does not pass key releases on, whatever the terminal around it.


@pytest.fixture
def tmux(tmp_path):
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")

    def run(*arguments):
        command = ["tmux", "-S", tmp_path / "tmux", "-f", "/dev/null", *arguments]
        said = subprocess.run(
            command, cwd=REPOSITORY, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE
        )
        return said.stdout.decode()

    yield run
    run("kill-server")


def test_in_tmux_the_key_toggles(tmux, log):
    app = f"{sys.executable} -m tests.ui.scripted_app {log}"
    tmux("new-session", "-d", "-x", "100", "-y", "24", app)

    def shown():
        return tmux("capture-pane", "-p")

    until(lambda: "Press Space" in shown(), shown)
    until(lambda: log.exists() and "ready" in log.read_text())
    until(lambda: "no releases" in log.read_text())
    tmux("send-keys", "Space")
    until(lambda: "● LISTENING" in shown(), shown)
    tmux("send-keys", "Space")
    until(lambda: "Paris." in shown(), shown)
    tmux("resize-window", "-x", "40", "-y", "8")
    until(lambda: "Paris" in shown() and "READY" in shown(), shown)
