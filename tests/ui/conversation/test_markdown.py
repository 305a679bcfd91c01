import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxtui.ui.conversation.markdown import rendered


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("Plain words.", "Plain words."),
        ("The **capital** is *Paris*.", "The capital is Paris."),
        ("- one\n- two", "• one\n• two"),
        ("3. three\n4. four", "3. three\n4. four"),
        ("0. zero\n1. one", "0. zero\n1. one"),
        ("It is\n\n42.", "It is\n42. "),
        ("[Vox]: Yes", "[Vox]: Yes"),
        ("- a\n  - b\n- c", "• a\n  • b\n• c"),
        ("# Title\n\nText", "Title\nText"),
        ("`x = 1`", "x = 1"),
        ("```python\nx = 1\ny = 2\n```", "  x = 1\n  y = 2"),
        ("- so:\n  ```\n  x\n  y\n  ```", "• so:\n    x\n    y"),
        ("> said", "▌ said"),
        ("[site](https://example.org)", "site"),
        ("one\ntwo", "one\ntwo"),
        ("<b>tag</b>", "<b>tag</b>"),
        ("~~no~~ yes", "no yes"),
        ("[red]x[/red]", "[red]x[/red]"),
        ("5 * 3 * 2 = 30", "5 * 3 * 2 = 30"),
    ],
)
def test_markdown_becomes_text_without_its_marks(text, seen):
    assert rendered(text).plain == seen


def test_markdown_marks_become_styles():
    spans = rendered("a **b** `c` *d*").spans
    assert [str(span.style) for span in spans] == [
        "bold", "$text-accent", "italic",
    ]  # fmt: skip


@given(st.text(st.sampled_from("ab *_`#>-1.\n[]()<~&\\!"), max_size=60))
def test_no_text_fails_and_no_letter_is_lost(text):
    letters = sum(text.count(c) for c in "ab")
    plain = rendered(text).plain
    assert sum(plain.count(c) for c in "ab") <= letters
