"""Dictated text on its way: replacements, the hook, and the programs that take it."""

import os
import pty
import socket
import subprocess
import sys
import time

import pytest

from voxtui.commands.dictation import dictation_output
from voxtui.commands.dictation.dictate_command import DictateOptions, finish
from voxtui.commands.dictation.dictation import Dictated
from voxtui.commands.dictation.dictation_output import (
    check_hook,
    check_target,
    deliver,
    replace_words,
    run_hook,
)
from voxtui.errors import ConfigError, InputError
from voxtui.settings.schema import Config, DictateConfig
from voxtui.terminal.clipboard import clipboard_text

SESSIONS = ("DISPLAY", "WAYLAND_DISPLAY", "TMUX")


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """Put programs on PATH that write their name, arguments and stdin to `calls`."""
    calls = tmp_path / "calls"
    calls.touch()
    for name in SESSIONS:
        monkeypatch.delenv(name, raising=False)

    def install(*names, ending="exit 0", **session):
        for name in names:
            lines = ("#!/bin/sh", f'echo {name} "$@" "<$(/bin/cat)>" >> {calls}', ending)
            (tmp_path / name).write_text("\n".join(lines))
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        for name, value in session.items():
            monkeypatch.setenv(name, value)
        return calls

    return install


@pytest.fixture
def displays(monkeypatch, tmp_path):
    """Offer a Wayland display `wayland-9` and an X server `:9119`, which take connections."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with socket.socket(socket.AF_UNIX) as wayland, socket.socket(socket.AF_UNIX) as x11:
        wayland.bind(str(tmp_path / "wayland-9"))
        x11.bind("\0/tmp/.X11-unix/X9119")
        wayland.listen()
        x11.listen()
        yield


EVERY = ("wl-copy", "xclip", "xsel", "tmux", "wtype", "xdotool", "ydotool")


@pytest.mark.parametrize(
    ("session", "target", "called"),
    [
        ({"WAYLAND_DISPLAY": "wayland-9"}, "clipboard", "wl-copy <Héllo.>\n"),
        ({"DISPLAY": ":9119.0"}, "clipboard", "xclip -selection clipboard -in <Héllo.>\n"),
        ({"DISPLAY": ":9118", "TMUX": "0"}, "clipboard", "tmux load-buffer -w - <Héllo.>\n"),
        ({"WAYLAND_DISPLAY": "wayland-9"}, "type", "wtype - <Héllo.>\n"),
        ({"DISPLAY": ":9119"}, "type", "xdotool type --clearmodifiers --file - <Héllo.>\n"),
    ],
)
@pytest.mark.usefixtures("displays")
def test_the_program_of_the_session_gets_the_text(programs, session, target, called):
    """A display that does not answer is none."""
    calls = programs(*EVERY, **session)
    check_target(target, None)
    calls.write_text("")
    deliver("Héllo.", target, None)
    assert calls.read_text() == called


@pytest.mark.parametrize(
    ("session", "called"),
    [
        ({"WAYLAND_DISPLAY": "wayland-9"}, "wl-paste --no-newline --type text <>\n"),
        ({"DISPLAY": ":9119"}, "xclip -selection clipboard -out <>\n"),
        ({"DISPLAY": ":9118", "TMUX": "0"}, "tmux save-buffer - <>\n"),
    ],
)
@pytest.mark.usefixtures("displays")
def test_the_clipboard_of_the_session_is_read(programs, session, called):
    """A display that does not answer is none."""
    calls = programs("wl-paste", "xclip", "tmux", ending="echo a text", **session)
    assert clipboard_text() == "a text\n"
    assert calls.read_text() == called


@pytest.mark.usefixtures("displays")
def test_a_clipboard_that_cannot_be_read_is_an_error(programs):
    programs("xclip", ending="exit 1", DISPLAY=":9118")
    with pytest.raises(InputError, match="no program for it was found, or its display does not"):
        clipboard_text()
    programs(DISPLAY=":9119")
    with pytest.raises(InputError, match="no text: xclip failed with exit code 1"):
        clipboard_text()


def test_a_pane_is_named(programs):
    calls = programs("tmux", ending="echo 0%7")
    deliver("Hello.", "tmux", "%7")
    assert "tmux load-buffer -b voxtui - <Hello.>" in calls.read_text()
    assert calls.read_text().splitlines()[-1] == "tmux paste-buffer -p -d -b voxtui -t %7 <>"


def test_xdotool_is_not_used_on_wayland(programs):
    """It would report success there and type nothing."""
    programs("xdotool", DISPLAY=":0", WAYLAND_DISPLAY="wayland-0")
    with pytest.raises(InputError, match="No program here can type"):
        deliver("Hello.", "type", None)


def test_ydotool_types_ascii_only(programs):
    calls = programs("ydotool")
    deliver("Hello.", "type", None)
    assert calls.read_text() == "ydotool type --file - <Hello.>\n"
    with pytest.raises(InputError, match="No program here can type"):
        deliver("Héllo.", "type", None)


def test_what_cannot_be_done_after_a_recording_is_refused_before(programs, monkeypatch):
    programs("wtype", "tmux", ending='echo "none" >&2; exit 1', WAYLAND_DISPLAY="wayland-7")
    for target, pane in (("type", None), ("tmux", "%9")):
        with pytest.raises(InputError, match="failed with exit code 1: none"):
            check_target(target, pane)
    programs("tmux", ending="echo 1%9")
    with pytest.raises(InputError, match="a pane whose program has ended"):
        check_target("tmux", "%9")
    programs("tmux", ending="echo 0")
    with pytest.raises(InputError, match="tmux: there is no pane %9"):
        check_target("tmux", "%9")
    for command in ("no-such-program -x", "'open", ""):
        with pytest.raises(InputError, match="The hook"):
            check_hook(command)
    check_hook("tmux -V")


def test_without_a_clipboard_and_a_terminal_nothing_is_recorded(tmp_path):
    code = "from voxtui.commands.dictation.dictation_output import check_target as check\n"
    command = [sys.executable, "-c", f"{code}check('clipboard', None)"]
    done = subprocess.run(
        command,
        env={"PATH": str(tmp_path)},
        start_new_session=True,
        capture_output=True,
        check=False,
    )
    assert b"There is no clipboard" in done.stderr


def test_a_pipe_that_nobody_reads_is_refused(monkeypatch):
    reader, writer = os.pipe()
    stdout = os.dup(1)
    os.dup2(writer, 1)
    try:
        check_target("stdout", None)
        os.close(reader)
        with pytest.raises(InputError, match="Nobody reads the text"):
            check_target("stdout", None)
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(writer)


@pytest.mark.usefixtures("displays")
def test_words_that_cannot_be_delivered_go_to_the_clipboard(programs, monkeypatch, capfd):
    calls = programs("wl-copy", WAYLAND_DISPLAY="wayland-9")
    full = lambda: open("/no/folder", "w")  # noqa: E731, SIM115
    monkeypatch.setattr(dictation_output, "TemporaryFile", full)
    words, config = Dictated("Hello.", ""), Config(dictate=DictateConfig(hook="cat"))
    with pytest.raises(InputError, match="The hook 'cat' failed: No such file or directory"):
        finish(words, config, DictateOptions())
    assert calls.read_text() == "wl-copy <Hello.>\n"
    assert capfd.readouterr() == ("", "The text is on the clipboard.\n")
    monkeypatch.setattr(sys, "stdout", open("/dev/full", "w"))  # noqa: SIM115
    with pytest.raises(InputError, match="stdout: cannot be written: No space left"):
        finish(words, Config(), DictateOptions())


def test_a_process_that_a_hook_leaves_behind_delays_nothing(tmp_path):
    script = tmp_path / "hook"
    script.write_text("#!/bin/sh\ncat\nsleep 20 &\n")
    script.chmod(0o755)
    began = time.monotonic()
    assert run_hook("Text.", str(script)) == "Text."
    assert time.monotonic() - began < 10


def test_a_program_that_fails_is_an_error_with_its_reason(programs):
    programs("wtype", ending='echo "no virtual keyboard" >&2; exit 1', WAYLAND_DISPLAY="wayland-7")
    with pytest.raises(InputError) as refused:
        deliver("Hello.", "type", None)
    assert str(refused.value) == "wtype failed with exit code 1: no virtual keyboard"


@pytest.mark.usefixtures("displays")
def test_a_clipboard_program_that_stays_does_not_hold_the_caller(programs, capfd):
    calls = programs("wl-copy", ending="/bin/sleep 60 &", WAYLAND_DISPLAY="wayland-9")
    deliver("Hello.", "clipboard", None)
    assert calls.read_text() == "wl-copy <Hello.>\n"
    assert capfd.readouterr() == ("", "")


def test_without_a_program_the_terminal_keeps_the_text(programs):
    """OSC 52, written to the controlling terminal: stdout may be a pipe."""
    programs()
    child, terminal = pty.fork()
    if child == 0:
        code = 1
        try:
            deliver("Hello.", "clipboard", None)
            code = 0
        finally:
            os._exit(code)
    written = os.read(terminal, 1024)
    assert os.waitpid(child, 0)[1] == 0
    os.close(terminal)
    assert written == b"\x1b]52;c;SGVsbG8u\x07"


@pytest.fixture
def replaced(tmp_path):
    def replace(text, table):
        (tmp_path / "words.toml").write_text(table)
        return replace_words(text, str(tmp_path / "words.toml"))

    return replace


def test_words_and_phrases_are_replaced(replaced):
    table = '"vox tui" = "voxtui"\nvox = "box"\n"C plus plus" = "C++"\n"new line" = "\\n"'
    assert replaced("Vox  TUI is a vox, not voxes.", table) == "voxtui is a box, not voxes."
    assert replaced("In c plus plus.", table) == "In C++."
    assert replaced("One new line two", table) == "One \n two"
    assert replaced("a b", 'a = "b"\nb = "a"') == "b a"
    assert replaced("Same.", "") == "Same."
    letters = '"\u03bcg" = "microgram"\n"\u017ft" = "street"'
    assert replaced("5 \u00b5g, 5 \u03bcg, 5 \u039cG, ST st", letters).count("microgram") == 3
    assert replaced("ST st \u017fT", letters) == "street street street"


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("a = ", "is not valid TOML"),
        ("a = 1", 'a: is not of the form "as heard" = "as written".'),
        ('[a]\nb = "c"', 'a: is not of the form "as heard" = "as written".'),
        ('"" = "a"', 'is not of the form "as heard" = "as written".'),
    ],
)
def test_a_file_of_replacements_that_is_wrong_is_an_error(replaced, table, sentence):
    with pytest.raises(ConfigError, match=sentence):
        replaced("text", table)


def test_a_hook_gets_the_text_and_its_output_replaces_it(tmp_path):
    assert run_hook("héllo $HOME;", "tr a-z A-Z") == "HéLLO $HOME;"
    script = tmp_path / "a script"
    script.write_text('#!/bin/sh\ncat; echo "[$1]"\n')
    script.chmod(0o755)
    assert run_hook("Text.", f"'{script}' '$HOME; *'") == "Text.[$HOME; *]"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("false", "The hook 'false' failed with exit code 1."),
        ("no-such-program", "The hook 'no-such-program' failed: No such file or directory."),
        ("'open", 'The hook "\'open" failed: No closing quotation.'),
    ],
)
def test_a_hook_that_fails_is_an_error(command, sentence):
    with pytest.raises(InputError) as refused:
        run_hook("text", command)
    assert str(refused.value) == sentence
