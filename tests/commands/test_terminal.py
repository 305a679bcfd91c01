"""What a terminal is asked outside of the screen, and what is made of its answers."""

import sys

import pytest

from tests.ui.pseudo_terminal import PseudoTerminal
from voxtui.commands import terminal
from voxtui.commands.terminal import Answers, ask_terminal, colours, repeat_rate, understand


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (b"\x1b[?2u\x1b[?1006;2$y\x1b[0n", Answers(releases=True, mouse=True)),
        (b"\x1b[?1u\x1b[?1006;1$y\x1b[0n", Answers(releases=False, mouse=True)),
        (b"\x1b[?1006;0$y\x1b[0n", Answers(releases=False, mouse=False)),
        (b"\x1b[0n", Answers(releases=False, mouse=None)),
    ],
)
def test_answers_are_understood(said, meant):
    assert understand(said) == meant


def test_without_a_terminal_nothing_is_asked(capsys):
    assert ask_terminal() is None
    assert capsys.readouterr().out == ""


ASK = "import sys; from voxtui.commands.terminal import ask_terminal; print('says', ask_terminal())"


@pytest.mark.parametrize(
    ("releases", "said"), [(True, "releases=True"), (False, "releases=False"), (None, "None")]
)
def test_a_terminal_is_asked_and_left_as_it_was(releases, said):
    with PseudoTerminal([sys.executable, "-c", ASK], releases=releases) as there:
        assert there.ends() == 0
        there.until(lambda: said.encode() in there.output)
        there.until(there.restored)
        assert b"^[" not in there.output  # no answer was echoed


def test_the_colours_are_those_of_the_terminal(monkeypatch):
    monkeypatch.setenv("COLORTERM", "truecolor")
    assert colours() == 1 << 24
    monkeypatch.delenv("COLORTERM")
    monkeypatch.setattr(terminal, "_capability_number", lambda name: 256)
    assert colours() == 256


def test_the_repeat_rate_is_that_of_a_display_of_this_machine(monkeypatch, tmp_path):
    xset = tmp_path / "xset"
    xset.write_text("#!/bin/sh\necho '  auto repeat delay:  660    repeat rate:  25'\n")
    xset.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    assert repeat_rate() == (0.66, 25)
    monkeypatch.setenv("SSH_CONNECTION", "somewhere else")
    assert repeat_rate() is None
