"""An answer that is long, or comes in one piece, costs its length and holds up no key."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.content import Content
from textual.visual import Visual
from textual.widgets import Input

from tests.ui.conftest import screen
from voxtui.dialogue.events import ReplyText
from voxtui.ui.conversation.paragraph import LONGEST_LINE, Line, Paragraph
from voxtui.ui.conversation.transcript import Transcript
from voxtui.ui.conversation.turn_view import TurnView


class OneTranscript(App[None]):
    def compose(self) -> ComposeResult:
        yield Transcript()


def entry(text: str, lit: int | None) -> Paragraph:
    made = Paragraph("vox", "Vox", Content(text), muted=lit is not None)
    made.lit = lit
    return made


def grown(transcript: Transcript, pieces: list[str], lit: int | None) -> list[tuple[Line, int]]:
    """Return the lines of an entry to which `pieces` were appended one by one."""
    transcript.clear()
    growing = entry("", lit)
    transcript.add(growing)
    for piece in pieces:
        transcript.append(growing, piece)
    return simplified(growing)


def written(transcript: Transcript, text: str, lit: int | None) -> list[tuple[Line, int]]:
    transcript.clear()
    transcript.add(whole := entry(text, lit))
    return simplified(whole)


def simplified(shown: Paragraph) -> list[tuple[Line, int]]:
    """Return its lines with neighbours of one style joined, and how much of each is lit."""
    lines = [list(Segment.simplify(line)) for line in shown.lines]
    return list(zip(lines, shown.lit_lines(), strict=True))


PIECE = st.text("ab 字\t\n-\u0301", max_size=30)


async def test_an_entry_that_grew_looks_like_one_that_was_wrapped_at_once() -> None:
    app = OneTranscript()
    async with app.run_test(size=(24, 10)):
        transcript = app.query_one(Transcript)

        @settings(max_examples=50, deadline=None)
        @example(["aa", "a" * 7, "a" * 7 + "\u0301", "\ta", ""], 1)
        @example(["\t\taaaaa", "aaa\t\t"], None)
        @given(st.lists(PIECE, max_size=12), st.none() | st.integers(0, 60))
        def same(pieces: list[str], lit: int | None) -> None:
            at_once = written(transcript, "".join(pieces), lit)
            assert grown(transcript, pieces, lit) == at_once

        same()


@pytest.fixture
def wrapped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the lengths of the texts that the screen has wrapped."""
    lengths: list[int] = []
    to_strips = Visual.to_strips

    def counted(widget, visual, *rest, **options):
        if isinstance(widget, Transcript):
            lengths.append(len(visual))
        return to_strips(widget, visual, *rest, **options)

    monkeypatch.setattr(Visual, "to_strips", counted)
    return lengths


@pytest.mark.parametrize(
    ("pieces", "longest_line"),
    [
        (["word " * 4000], 80),
        (["x" * 20_000], 80),
        ([f"{n} " for n in range(1000)], 80),
        (["word " * 100] * 40, 80),
        (["\u0301" * 500] * 40, LONGEST_LINE + 500),
    ],
    ids=["one piece", "one word", "a word each", "40 pieces", "no width"],
)
async def test_wrapping_costs_in_proportion_to_the_answer(pieces, longest_line, wrapped) -> None:
    app = OneTranscript()
    async with app.run_test(size=(80, 24)):
        transcript = app.query_one(Transcript)
        view = TurnView(transcript, "typed", 1)
        wrapped.clear()
        for piece in pieces:
            view.append(piece)
        assert view.text == "".join(pieces)
        # For each piece: itself, and the line it is added to.
        assert sum(wrapped) <= sum(map(len, pieces)) + len(pieces) * longest_line


@pytest.mark.slow
async def test_pieces_that_wait_are_one_change_and_the_keys_behind_them_are_obeyed(wrapped) -> None:
    async with screen() as s:
        s.engine.begin("typed")
        await s.settle()
        wrapped.clear()
        for n in range(8000):
            s.engine.report(ReplyText(1, f"{n} two"))
        await s.type("a")
        assert isinstance(s.app.focused, Input)
        assert len(wrapped) < 40
