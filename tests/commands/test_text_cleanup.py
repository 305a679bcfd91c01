"""Text and the output of programs as passages that a voice can read."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxtui.commands.dictation.text_cleanup import LONGEST_LINE, passages

MAN = (
    "NNAAMMEE\n"
    "       cut - print selected parts\n\n"
    "DDEESSCCRRIIPPTTIIOONN\n"
    "       Print  selected  parts  of lines from each _FILE to standard out‐\n"
    "       put. With no FILE, read standard input.\n\n"
    "       --bb, ----bbyytteess=_LIST\n"
    "              select only these bytes\n"
)


def spoken(*pieces, unwrap=True):
    return "".join(passages(pieces, unwrap)).splitlines()


def overstruck(text):
    """As `man` writes bold (doubled in `text`) and underlined letters (after `_`)."""
    bold = re.sub(r"([A-Za-z-])\1", "\\1\b\\1", text)
    return re.sub(r"_([A-Z]+)", lambda word: "".join(f"_\b{c}" for c in word[1]), bold)


def test_a_manual_page_becomes_sentences():
    page = overstruck(MAN)
    assert "N\bN" in page and "_\bF_\bI" in page
    assert spoken(page) == [
        "NAME.",
        "cut - print selected parts.",
        "DESCRIPTION.",
        "Print  selected  parts  of lines from each FILE to standard output. With no FILE, read "
        "standard input.",
        "dash b, dash dash bytes=LIST.",
        "select only these bytes.",
    ]


def test_colours_titles_and_links_are_removed():
    link = "\x1b]8;;https://example.org\x1b\\here\x1b]8;;\x07"
    assert spoken(f"\x1b]0;title\x07\x1b[1;31mLook\x1b[0m {link}.\x1b(B") == ["Look here."]


@pytest.mark.parametrize(
    ("text", "passage"),
    [
        ("=====\n", []),
        ("Name ........ 5", ["Name   5."]),
        ("```python\nrun it\n```\n", ["run it."]),
        ("a | b", ["a, b."]),
        ("git commit -m x --all", ["git commit dash m x dash dash all."]),
        ("well-known -5 a-b", ["well-known -5 a-b."]),
        (f"id {'7' * 20}", [f"id {'7 ' * 19}7."]),
        ("one\r\ntwo\rthree", ["one.", "two.", "three."]),
        ("Is it? Yes!\n", ["Is it? Yes!"]),
    ],
)
def test_signs_become_words_and_rulers_are_left_out(text, passage):
    assert spoken(text) == passage


LONG = "this line is long enough to have been wrapped by a program"


def test_only_a_line_that_breaks_off_goes_on_in_the_next():
    assert spoken(f"{LONG}\nand goes on.") == [f"{LONG} and goes on."]
    assert spoken(f"{LONG}\n\nA paragraph.") == [f"{LONG}.", "A paragraph."]
    assert spoken(f"{LONG}\n  indented") == [f"{LONG}.", "indented."]
    assert spoken(f"- {LONG}\n- {LONG}") == [f"- {LONG}.", f"- {LONG}."]
    assert spoken(f"- {LONG}\n  and goes on.") == [f"- {LONG} and goes on."]
    assert spoken("short\nlines") == ["short.", "lines."]
    assert spoken(f"{LONG}\nis typed.", unwrap=False) == [f"{LONG}.", "is typed."]


def test_a_line_is_there_before_the_next_one():
    def pieces():
        yield f"{LONG}\n"
        pytest.fail("read ahead")

    assert next(passages(pieces())) == LONG


@given(st.text(alphabet="ab -.\n\r\x1b[m\x08|_`", max_size=80), st.lists(st.integers(0, 80)))
def test_the_passages_do_not_depend_on_how_the_text_arrives(text, cuts):
    bounds = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(bounds)]
    assert spoken(*pieces) == spoken(text)


def test_a_line_without_an_end_is_read_in_parts():
    parts = [*passages(["word " * 10_000])]
    assert max(map(len, parts)) <= LONGEST_LINE
    assert "".join(parts).split() == [*["word"] * 9_999, "word."]
