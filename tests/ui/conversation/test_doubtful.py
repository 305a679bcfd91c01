"""Words that the recogniser is not sure of, and speech that it refuses."""

from tests.ui.conftest import screen
from tests.ui.states import speech
from voxtui.dialogue.events import Caption, Captured, UserWords
from voxtui.dialogue.timestamps import Outcome
from voxtui.errors import ForeignSpeech


async def test_a_doubtful_word_stays_underlined_after_the_answer():
    async with screen() as s:

        def underlined() -> list[str]:
            return [
                segment.text
                for entry in s.app.transcript.entries
                for line in entry.lines
                for segment in line
                if segment.style and segment.style.underline
            ]

        s.engine.begin()
        s.engine.report(Captured(1, speech()), UserWords(1, "Ask Digium what time it is", (1, 5)))
        await s.settle()
        assert underlined() == ["Digium", "is"]
        assert "Ask Digium what time it is" in s.text
        s.engine.finish()
        s.engine.begin()
        await s.settle()
        assert underlined() == ["Digium", "is"]


async def test_words_that_were_invented_do_not_stay_on_the_screen():
    async with screen() as s:
        s.engine.begin()
        s.engine.report(Caption(1, "The Church", 0), Captured(1, speech()))
        await s.settle()
        assert "The Church" in s.text
        s.engine.finish(Outcome.FAILED, error=str(ForeignSpeech()))
        await s.settle()
        assert "The Church" not in s.text
        assert "That did not sound like English" in s.text
