"""Text of others in sentences: no terminal command, no forged line, no reordered text."""

import pytest

from voxtui.errors import InputError, one_line, strip_control_characters


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("\x1b]0;title\x07name", "]0;titlename"),
        ("\x9b31mred\x7f", "31mred"),
        ("abc\u202egpj.exe", "abcgpj.exe"),
        ("a\u2066b\u2069c", "abc"),
        ("one\u2028two\u2029three", "onetwothree"),
        ("broken \udc80", "broken "),
    ],
)
def test_characters_that_command_or_reorder_are_removed(text, stripped):
    assert strip_control_characters(text) == stripped


@pytest.mark.parametrize(
    "text",
    [
        "👩\u200d🚀 👨\u200d👩\u200d👧",
        "שלום\u200f (עולם)",
        "می\u200cخواهم",
        "क्\u200dष",
        "ไทย\u200bไทย",
        "tab\tand\nline",
    ],
    ids=["emoji", "hebrew", "persian", "hindi", "thai", "space"],
)
def test_joiners_and_marks_that_scripts_need_are_kept(text):
    assert strip_control_characters(text) == text


def test_a_line_break_in_a_name_forges_no_line():
    error = InputError("new\nline\r\n  of.wav: there is no such file.", "Use\nanother.")
    assert str(error) == "new line of.wav: there is no such file. Use another."
    assert one_line("\n a \r b\n") == "a b"
