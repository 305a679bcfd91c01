"""The keys that the bytes of a terminal stand for."""

import tomllib
from io import BytesIO, TextIOWrapper
from itertools import pairwise
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual.keys import Keys

from tests.fakes import SECONDS
from voxtui.ui.driver.keyboard import (
    FlushMarker,
    Key,
    KeyboardAnswer,
    KeyboardDriver,
    KeyParser,
    KeyUp,
    Output,
    Paste,
)


def parse(*pieces) -> list[Any]:
    parser = KeyParser()
    return [told(message) for piece in pieces for message in parser.feed(piece)]


def told(message) -> Any:
    match message:
        case KeyUp():
            return ("up", message.key)
        case KeyboardAnswer():
            return ("answer", message.releases)
        case Key():
            return ("repeat" if message.repeated else "down", message.key)
        case events.Key():
            return ("key", message.key)
        case events.Paste():
            return ("paste", message.text)
        case _:
            return type(message).__name__


@pytest.mark.parametrize(
    ("sequence", "meaning"),
    [
        ("\x1b[32;;32u", ("key", "space")),
        ("\x1b[32;1:1;32u", ("down", "space")),
        ("\x1b[32;1:2;32u", ("repeat", "space")),
        ("\x1b[32;1:3u", ("up", "space")),
        ("\x1b[32;129:3u", ("up", "space")),  # num lock
        ("\x1b[32;2:3u", ("up", "space")),  # shift went down meanwhile
        ("\x1b[97;2:3u", ("up", "a")),
        ("\x1b[19;1:3~", ("up", "f8")),
        ("\x1b[19~", ("key", "f8")),
        ("\x1b[2;1:2~", ("repeat", "insert")),
        ("\x1b[1;1:3A", ("up", "up")),
        ("\x1b[1;1:3P", ("up", "f1")),
        ("\x1b[57442;1:3u", ("up", "left_control")),
        ("\x1b[13;1:3u", ("up", "enter")),
        ("\x1b[97;5:2u", ("repeat", "ctrl+a")),
        ("\x1b[228;1:1;228u", ("down", "ä")),
    ],
)
def test_a_key_goes_down_repeats_and_comes_up(sequence, meaning):
    assert parse(sequence) == [meaning]


@pytest.mark.parametrize(("flags", "releases"), [(27, True), (2, True), (25, False), (0, False)])
def test_the_answer_of_the_terminal_tells_if_it_reports_releases(flags, releases):
    assert parse(f"\x1b[?{flags}u\x1b[0n") == [("answer", releases)]


def test_a_status_without_flags_before_it_means_no_releases():
    assert parse("\x1b[0n") == [("answer", False)]


def test_an_answer_is_never_typed_into_the_app():
    keys = parse("a\x1b[?27u", "\x1b[0n", "b\x1b[0nc")
    assert keys == [("key", "a"), ("answer", True), ("key", "b"), ("key", "c")]


SESSION = (
    "\x1b[?27u\x1b[0n\x1b[32;1:1;32u\x1b[32;1:2;32u\x1b[32;1:3u\x1b[200~ n[32;1:3u\x1b[201~"
    "\x1b[<0;5;5M\x1b[<0;5;5m\x1b[I\x1b[O\x1b[19~ä"
)
MEANT = [
    ("answer", True),
    ("down", "space"),
    ("repeat", "space"),
    ("up", "space"),
    ("paste", " n[32;1:3u"),
    "MouseDown",
    "MouseUp",
    "AppFocus",
    "AppBlur",
    ("key", "f8"),
    ("key", "ä"),
]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
def test_sequences_may_be_split_anywhere(size):
    pieces = [SESSION[i : i + size] for i in range(0, len(SESSION), size)]
    assert parse(*pieces) == MEANT


@given(st.sets(st.integers(1, len(SESSION) - 1)))
def test_sequences_may_be_split_at_any_places(cuts):
    edges = [0, *sorted(cuts), len(SESSION)]
    assert parse(*(SESSION[a:b] for a, b in pairwise(edges))) == MEANT


def test_the_reader_waits_without_a_limit_unless_something_has_begun():
    parser = KeyParser()
    assert [*parser.feed("a")] and parser.patience is None
    assert not [*parser.feed("\x1b")] and 0 < parser.patience <= 0.1
    assert [*parser.feed("[A")] and parser.patience is None
    assert not [*parser.feed("\x1b[200~a")] and 1 < parser.patience <= 2
    assert [*parser.feed("\x1b[201~")] and parser.patience is None


def test_pasted_text_is_never_parsed_as_keys():
    """Terminals remove the escape characters from pasted text."""
    assert parse("\x1b[200~ [32;1:1;32u[?27u\n0n\x1b[201~ ") == [
        ("paste", " [32;1:1;32u[?27u\n0n"),
        ("key", "space"),
    ]


def test_legacy_key_sequences_are_understood():
    assert parse(" ", "   ", "\x1bOA", "\r", "\x1b[24~") == [
        *[("key", "space")] * 4,
        ("key", "up"),
        ("key", "enter"),
        ("key", "f12"),
    ]


DIGITS = st.text("0123456789:;", max_size=14)
NOISE = st.one_of(
    st.builds(lambda inner, end: f"\x1b[{inner}{end}", DIGITS, st.sampled_from("u~ABCDHPQRSnmMt")),
    st.builds(lambda inner: f"\x1b[?{inner}u", DIGITS),
    st.builds(lambda inner: f"\x1b[<{inner}M", DIGITS),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.text("\x1b[]?;:0123456789u~nOIM", max_size=12),
    st.sampled_from(["\x1b[32;1:3u", "\x1b[1114112;1:3u", "\x1b[32;;99999999999u", "\x1b"]),
)


@pytest.mark.slow
@given(st.lists(NOISE, max_size=20))
def test_any_bytes_are_parsed_without_an_error(pieces):
    for message in parse(*filter(None, pieces)):
        assert message != ("key", Keys.Ignore)


@given(st.lists(NOISE, max_size=10))
def test_the_talk_key_is_parsed_after_any_noise(pieces):
    """Noise may open an escape sequence, which the next escape ends, or a paste."""
    settled = [*filter(None, pieces), "\x1b[201~", "\x1b[0n", "\x1b[32;1:3u"]
    assert parse(*settled)[-1] == ("up", "space")


def test_text_that_comes_faster_than_any_hand_types_is_a_paste() -> None:
    text = "some words of it " * 1000
    messages = parse(*(f"/{text}\r"[i : i + 4096] for i in range(0, len(text) + 2, 4096)))
    assert messages[0] == ("key", "slash") and messages[-1] == ("key", "enter")
    assert len(messages) < 300
    spelled = "".join(
        what if kind == "paste" else what.replace("space", " ") for kind, what in messages[1:-1]
    )
    assert spelled == text


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_a_paste_without_its_end_is_over_after_a_silence(monkeypatch, size) -> None:
    monkeypatch.setattr("voxtui.ui.driver.keyboard.PASTE_SILENCE_SECONDS", -1.0)
    parser, data = KeyParser(), "\x1b[200~lost text"
    for start in range(0, len(data), size):
        assert not list(parser.feed(data[start : start + size]))
    assert [told(message) for message in parser.tick()] == [("paste", "lost text")]
    assert [told(message) for message in parser.feed("\x11")] == [("key", "ctrl+q")]


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_of_a_huge_paste_the_beginning_is_kept_and_keys_follow_it(monkeypatch, size) -> None:
    monkeypatch.setattr("voxtui.ui.driver.keyboard.LONGEST_PASTE", 10_000)
    data = f"\x1b[200~{'x' * 6000}\n{'y' * 6000}\x1b[201~\x11"
    parser = KeyParser()
    messages = [m for i in range(0, len(data), size) for m in parser.feed(data[i : i + size])]
    pasted = messages[0]
    assert isinstance(pasted, Paste) and pasted.characters == 12_001
    assert pasted.text == f"{'x' * 6000}\n{'y' * 3999}"
    assert [told(message) for message in messages[1:]] == [("key", "ctrl+q")]


@pytest.mark.parametrize("size", [3, 5, 6, 100])
def test_two_pastes_and_the_keys_between_them_stay_apart(size) -> None:
    data = "a\x1b[200~one\x1b[201~b\x1b[200~\x1b[201~\x1b[200~two\x1b[\x1b[201~\x1b[32;1:3u"
    assert parse(*(data[i : i + size] for i in range(0, len(data), size))) == [
        ("key", "a"),
        ("paste", "one"),
        ("key", "b"),
        ("paste", ""),
        ("paste", "two\x1b["),
        ("up", "space"),
    ]


def test_textual_is_pinned_to_the_version_whose_private_parts_are_used() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    (pin,) = [d for d in project["project"]["dependencies"] if d.startswith("textual")]
    assert pin == "textual>=8.2.8,<8.3"


def test_a_frame_counts_as_shown_once_it_was_written_and_flushed() -> None:
    file, told = TextIOWrapper(BytesIO()), list[float]()
    output = Output(file)
    marker = FlushMarker()
    marker.reached = told.append
    output.write("painted")
    output.write(marker)
    assert not told and file.buffer.getvalue() == b""
    output.flush()
    output.flush()
    assert len(told) == 1 and file.buffer.getvalue() == b"painted"


def test_the_screen_waits_until_a_frame_is_written(monkeypatch):
    driver, read, written = KeyboardDriver.__new__(KeyboardDriver), Event(), []

    def write(marker: FlushMarker) -> None:
        Timer(0.1, lambda: (read.set(), marker.reached(1.0))).start()

    monkeypatch.setattr(driver, "write", write)
    monkeypatch.setattr("voxtui.ui.driver.keyboard.WRITE_SECONDS", SECONDS)
    driver.wait_written(written.append)
    assert read.is_set() and written == [1.0]


def test_a_terminal_that_reads_nothing_delays_the_screen_by_one_frame_at_most(monkeypatch):
    driver, markers = KeyboardDriver.__new__(KeyboardDriver), []
    monkeypatch.setattr(driver, "write", markers.append)
    driver.wait_written(lambda at: None)
    assert len(markers) == 1


@pytest.mark.parametrize("size", ["30;100;0;0", "0;0;0;0", "0;0;600;1000"])
def test_a_mouse_in_a_terminal_without_a_size_ends_nothing(size):
    resized, moved = parse(f"\x1b[48;{size}t", "\x1b[<35;5;5M")
    assert (resized, moved) == ("Resize", "MouseMove")
