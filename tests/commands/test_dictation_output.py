"""Dictated text on its way: replacements, the hook, and the programs that take it."""

import os
import pty

import pytest

from voxtui.commands.dictation.dictation_output import deliver, replace_words, run_hook
from voxtui.errors import ConfigError, InputError

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


EVERY = ("wl-copy", "xclip", "xsel", "tmux", "wtype", "xdotool", "ydotool")


@pytest.mark.parametrize(
    ("session", "target", "called"),
    [
        ("WAYLAND_DISPLAY", "clipboard", "wl-copy <Héllo.>\n"),
        ("DISPLAY", "clipboard", "xclip -selection clipboard -in <Héllo.>\n"),
        ("TMUX", "clipboard", "tmux load-buffer -w - <Héllo.>\n"),
        ("WAYLAND_DISPLAY", "type", "wtype - <Héllo.>\n"),
        ("DISPLAY", "type", "xdotool type --clearmodifiers --file - <Héllo.>\n"),
        ("TMUX", "tmux", "tmux load-buffer -b voxtui - <Héllo.>\n"
                         "tmux paste-buffer -p -d -b voxtui <>\n"),
    ],
)  # fmt: skip
def test_the_program_of_the_session_gets_the_text(programs, session, target, called):
    calls = programs(*EVERY, **{session: ":0"})
    deliver("Héllo.", target, None)
    assert calls.read_text() == called


def test_a_pane_is_named(programs):
    calls = programs("tmux")
    deliver("Hello.", "tmux", "%7")
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


def test_a_program_that_fails_is_an_error_with_its_reason(programs):
    programs("wtype", ending='echo "no virtual keyboard" >&2; exit 1', WAYLAND_DISPLAY=":0")
    with pytest.raises(InputError) as refused:
        deliver("Hello.", "type", None)
    assert str(refused.value) == "wtype failed with exit code 1: no virtual keyboard"


def test_a_clipboard_program_that_stays_does_not_hold_the_caller(programs, capfd):
    calls = programs("wl-copy", ending="/bin/sleep 60 &", WAYLAND_DISPLAY=":0")
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
