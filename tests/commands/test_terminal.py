"""Questions to the terminal outside of the screen."""

import sys

import pytest

from tests.ui.pseudo_terminal import PseudoTerminal
from voxtui.terminal.capabilities import (
    can_show_screen,
    grants_release,
    reports_key_release,
)


@pytest.mark.parametrize(
    ("answer", "releases"),
    [
        (b"\x1b[?2u\x1b[0n", True),
        (b"\x1b[?3u\x1b[0n", True),
        (b"\x1b[?1u\x1b[0n", False),
        (b"\x1b[0n", False),
    ],
)
def test_the_flag_of_the_kitty_protocol_is_read_from_the_answer(answer, releases):
    assert grants_release(answer) is releases


def test_without_a_terminal_no_query_is_sent(capsys):
    assert reports_key_release() is None
    assert capsys.readouterr().out == ""


ASK = """
from voxtui.terminal.capabilities import reports_key_release
print('releases:', reports_key_release())
"""


@pytest.mark.parametrize(
    ("releases", "printed"),
    [(True, "releases: True"), (False, "releases: False"), (None, "releases: None")],
)
def test_a_terminal_is_queried_and_restored(releases, printed):
    with PseudoTerminal([sys.executable, "-c", ASK], releases=releases) as there:
        assert there.ends() == 0
        there.until(lambda: printed.encode() in there.output)
        there.until(there.restored)
        assert b"^[" not in there.output  # no answer was echoed


@pytest.mark.parametrize(("term", "can"), [("xterm", True), ("dumb", False), ("", False)])
def test_the_screen_needs_a_terminal_that_is_not_dumb(monkeypatch, term, can):
    monkeypatch.setenv("TERM", term)
    assert can_show_screen() is can
