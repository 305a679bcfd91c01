"""The words of an answer light up as they are heard."""

import pytest
from textual.color import Color

from tests.ui.conftest import screen
from tests.ui.states import ANSWER
from voxtui.dialogue.events import ReplyText
from voxtui.settings.schema import Config, UiConfig
from voxtui.storage.derived_latencies import characters_at
from voxtui.ui.conversation.turn_view import LONGEST_LIT
from voxtui.ui.themes import DARK

CLAUSES = [(0, 0.0), (10, 1.0), (30, 3.0)]


@pytest.mark.parametrize(
    ("seconds", "characters"), [(0.0, 0), (0.5, 5), (1.0, 10), (2.0, 20), (3.0, 30), (9.0, 30)]
)
def test_the_characters_heard_follow_the_seconds_of_each_clause(seconds, characters):
    assert characters_at(CLAUSES, seconds) == characters
    assert characters_at([(0, 0.0)], seconds) == 0


def bright(s) -> str:
    """Return the text of the answer in the brightest colour."""
    wanted = Color.parse(s.app.theme_variables["text"])
    transcript, entry = s.app.transcript, s.app.turns.view.reply
    index = transcript.entries.index(entry)
    top = sum(other.height for other in transcript.entries[:index])
    rows = range(top, top + entry.height)
    strips = [transcript.render_line(row - transcript.lines_in_view().start) for row in rows]
    return "".join(
        segment.text
        for strip in strips
        for segment in list(strip)[1:]
        if Color.from_rich_color(segment.style.color) == wanted
    )


async def test_a_long_answer_is_not_lit_because_each_word_would_wrap_all_of_it():
    async with screen() as s:
        s.engine.begin()
        s.engine.report(ReplyText(1, "word " * 100))
        await s.settle()
        view = s.app.turns.view
        view.light(7)
        assert view.reply.lit == 4
        s.engine.report(ReplyText(1, "word " * (LONGEST_LIT // 5)))
        await s.settle()
        view.light(90)
        assert view.reply.lit is None


@pytest.mark.slow
async def test_words_light_up_as_they_are_heard_and_all_at_the_end():
    async with screen((120, 40), config=Config(ui=UiConfig(theme=DARK))) as s:
        s.engine.begin()
        s.engine.report(ReplyText(1, ANSWER[:20]))
        await s.settle()
        view = s.app.turns.view
        assert bright(s) == ANSWER[:20]
        view.light(7)
        assert bright(s) == ANSWER[:7]  # a word is heard as a whole
        s.engine.report(ReplyText(1, ANSWER[20:]))
        await s.settle()
        assert bright(s) == ANSWER[:7]
        view.light(len(ANSWER))
        assert bright(s) == ANSWER
        view.light(7)
        s.engine.finish(reply=ANSWER)
        await s.settle()
        assert bright(s) == ANSWER
