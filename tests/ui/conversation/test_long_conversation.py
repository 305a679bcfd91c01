"""Many turns: the lines in view stay there, and the work depends on them alone."""

from __future__ import annotations

import pytest
from textual.content import Content
from textual.visual import Visual

from tests.ui.conftest import Screen, screen
from voxtui.dialogue.events import ReplyText, UserWords
from voxtui.ui.conversation.paragraph import Paragraph
from voxtui.ui.conversation.transcript import Transcript

pytestmark = pytest.mark.slow  # each draws thousands of lines


def talk(s: Screen, turns: int, words: int = 12) -> None:
    for _ in range(turns):
        s.engine.begin("typed")
        number = s.engine.turns
        text = " ".join(f"{number}.{n}" for n in range(words))
        s.engine.report(UserWords(number, f"question {number}"), ReplyText(number, text))
        s.engine.finish()


def transcript(s: Screen) -> Transcript:
    return s.app.query_one(Transcript)


def count_wraps(monkeypatch: pytest.MonkeyPatch) -> list[Content]:
    """Return the list of texts that the transcript wraps from now on."""
    texts: list[Content] = []
    to_strips = Visual.to_strips

    def counted(widget, visual, *rest, **options):
        if isinstance(widget, Transcript):
            texts.append(visual)
        return to_strips(widget, visual, *rest, **options)

    monkeypatch.setattr(Visual, "to_strips", counted)
    return texts


def first_line(s: Screen) -> str:
    """Return the first line of the conversation in view, without the scroll bar."""
    return s.lines[2][:70].rstrip()


async def scrolled_back(s: Screen, turns: int = 40) -> str:
    """Talk, then go back some pages; return the line that is then on top."""
    talk(s, turns)
    await s.settle()
    for _ in range(3):
        await s.pilot.press("pageup")
        await s.settle()
    await s.pilot.press("up")  # not to the first line of an entry
    await s.settle()
    return first_line(s)


async def test_the_lines_in_view_stay_while_an_answer_is_written_and_finished():
    async with screen() as s:
        read = await scrolled_back(s)
        assert read.strip()
        number = s.engine.turns
        s.engine.report(ReplyText(number, "late " * 60))
        s.engine.report(UserWords(number, "words that came late " * 8))
        s.engine.finish()
        await s.settle()
        assert first_line(s) == read


async def test_the_lines_in_view_stay_when_the_oldest_turns_are_forgotten(monkeypatch):
    monkeypatch.setattr("voxtui.ui.conversation.transcript.KEPT_ENTRIES", 60)
    monkeypatch.setattr("voxtui.ui.conversation.transcript.DROPPED_ENTRIES", 10)
    async with screen() as s:
        read = await scrolled_back(s)
        view = transcript(s)
        place = view.scroll_offset.y
        for _ in range(12):
            view.add(Paragraph("vox", "Vox", Content("a notice")))
        await s.settle()
        assert view.scroll_offset.y < place and first_line(s) == read


async def test_the_lines_in_view_stay_in_a_narrower_terminal():
    async with screen(size=(100, 24)) as s:
        talk(s, 40)
        await s.settle()
        await s.pilot.press("pageup", "pageup", "pageup")
        await s.settle()
        view = transcript(s)
        read = next(entry for entry in view.in_view() if entry.kind == "you").content.plain
        await s.pilot.resize_terminal(70, 24)
        while any(entry.look is not view.look for entry in view.entries):
            await s.pilot.pause(0.01)
        assert read in s.text


async def test_the_end_key_follows_an_answer_again():
    async with screen() as s:
        await scrolled_back(s)
        await s.pilot.press("end")
        for n in range(8):
            s.engine.report(ReplyText(s.engine.turns, f"token{n} "))
            await s.settle()
            assert f"token{n}" in s.text


async def test_a_new_width_reaches_the_turns_in_view_at_once_and_then_all(monkeypatch):
    monkeypatch.setattr("voxtui.ui.conversation.drawn_entries.WRAP_SECONDS", 0.0005)
    async with screen(size=(100, 24)) as s:
        talk(s, 60)
        await s.settle()
        await s.pilot.resize_terminal(50, 24)
        view = transcript(s)
        assert all(entry.look is view.look for entry in view.in_view())
        while any(entry.look is not view.look for entry in view.entries):
            await s.pilot.pause(0.01)
        longest = max(len(line) for line in view.text.splitlines())
        assert longest <= view.scrollable_content_region.width


@pytest.mark.parametrize("turns", [5, 300])
async def test_a_token_costs_the_same_however_long_the_conversation_is(monkeypatch, turns: int):
    async with screen() as s:
        talk(s, turns)
        s.engine.begin("typed")
        s.engine.report(ReplyText(s.engine.turns, "one "))
        await s.settle()
        view, wrapped = transcript(s), count_wraps(monkeypatch)
        before = dict(view.drawn)
        s.engine.report(ReplyText(s.engine.turns, "two "))
        await s.settle()
        drawn = [number for number, line in view.drawn.items() if line is not before.get(number)]
        assert len(wrapped) == 1 and len(drawn) == 1


async def test_drawn_lines_are_kept_for_a_few_screens_only():
    async with screen() as s:
        view = transcript(s)
        for _ in range(40):
            talk(s, 1)
            await s.settle()
            assert len(view.drawn) <= 2 * len(view.lines_in_view())
        assert set(view.lines_in_view()) <= set(view.drawn)


async def test_a_change_of_focus_wraps_nothing_again(monkeypatch):
    async with screen() as s:
        talk(s, 5)
        await s.settle()
        wrapped = count_wraps(monkeypatch)
        await s.type("a")
        await s.press("escape")
        assert not wrapped


async def test_old_turns_are_kept_as_text_and_can_be_read_again(monkeypatch):
    monkeypatch.setattr("voxtui.ui.conversation.transcript.WRAPPED_ENTRIES", 10)
    async with screen() as s:
        talk(s, 40)
        await s.settle()
        view = transcript(s)
        assert sum(bool(entry.lines) for entry in view.entries) < 25
        assert "question 2\n" in view.text
        await s.pilot.press("home")
        for _ in range(2):
            await s.pilot.press("pagedown")
        await s.settle()
        assert "question" in s.text
        await s.pilot.resize_terminal(50, 24)
        while any(entry.look is not view.look for entry in view.entries):
            await s.pilot.pause(0.01)
        assert view.virtual_size.height == view.text.count("\n") + 1
