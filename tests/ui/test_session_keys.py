import json

import numpy as np
import pytest

from tests.fakes import FakeMicrophone, FakeSpeaker, ScriptedBrain, frames
from tests.ui.conftest import screen, until
from tests.ui.test_with_engine import live
from voxtui.dialogue.data import Utterance
from voxtui.dialogue.events import Captured, ReplyText, State, StateChanged, UserWords
from voxtui.dialogue.timestamps import Outcome
from voxtui.settings.schema import Config, UiConfig

SAID = Utterance(
    np.concatenate([np.full(8000, v, np.float32) for v in (0.1, 1.0, 0.0, 0.4)]), (), 1.0
)


async def test_an_utterance_is_shown_as_a_waveform_with_its_length_then_as_words():
    async with screen() as s:
        s.engine.begin()
        s.engine.report(StateChanged(State.THINKING), Captured(1, SAID))
        await s.settle()
        line = s.line("You")
        assert "2.0 s" in line
        assert "█" in line and "▁" in line
        s.engine.report(UserWords(1, "What is the capital?"))
        await s.settle()
        assert s.line("You").split("You")[1].strip() == "What is the capital?"


async def test_a_finished_answer_loses_its_marks_and_keeps_its_words():
    async with screen() as s:
        s.engine.begin("typed")
        s.engine.report(ReplyText(1, "Two **good** ones:\n\n"), ReplyText(1, "- one\n- two"))
        await s.settle()
        assert "**good**" in s.text
        s.engine.finish(reply="x")
        await s.settle()
        assert "Two good ones:" in s.text
        assert "• one" in s.text
        assert "**" not in s.text
        s.engine.begin("typed")
        s.engine.report(ReplyText(2, "And **bold**"))
        s.engine.finish(reply="x", outcome=Outcome.CANCELLED)
        await s.settle()
        assert "And **bold** (interrupted)" in s.text


@pytest.mark.slow
async def test_c_copies_the_last_answer():
    async with screen() as s:
        await s.press("ctrl+y")
        assert s.app.clipboard == ""
        for n, reply in enumerate(("One.", "Two."), 1):
            s.engine.begin("typed")
            s.engine.report(ReplyText(n, reply))
            s.engine.finish(reply=reply)
        await s.settle()
        await s.press("ctrl+y")
        assert s.app.clipboard == "Two."


@pytest.mark.slow
async def test_s_saves_the_session_and_shows_its_path(tmp_path):
    config = Config(ui=UiConfig(save_dir=str(tmp_path)))
    async with screen(size=(200, 24), config=config) as s:
        await s.press("ctrl+s")
        assert list(tmp_path.iterdir()) == []
        s.engine.begin()
        s.engine.report(Captured(1, SAID), UserWords(1, "Hello?"), ReplyText(1, "Hi."))
        s.engine.finish(reply="Hi.", heard="Hello?")
        await s.settle()
        await s.press("ctrl+s")
        await s.app.workers.wait_for_complete()
        await s.settle()
        (place,) = tmp_path.iterdir()
        assert {file.name for file in place.iterdir()} == {
            "session.json", "session.md", "turn-0001.wav",
        }  # fmt: skip
        assert place.name in s.text


async def test_words_transcribed_after_the_answer_are_shown_and_saved(tmp_path):
    config = Config(ui=UiConfig(save_dir=str(tmp_path)))
    async with screen(config=config) as s:
        for n in (1, 2):
            s.engine.begin()
            s.engine.report(Captured(n, SAID), ReplyText(n, "Hi."))
            s.engine.finish(reply="Hi.")
        s.engine.report(UserWords(1, "The first."), UserWords(2, "The second."))
        await s.settle()
        assert "The second." in s.text
        await s.press("ctrl+s")
        await s.app.workers.wait_for_complete()
        (place,) = tmp_path.iterdir()
        turns = json.loads((place / "session.json").read_text())["turns"]
        assert [turn["heard"] for turn in turns] == ["The first.", "The second."]
        for words in ("The first.", "The second."):
            assert words in (place / "session.md").read_text()


@pytest.mark.slow
async def test_a_save_that_fails_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    config = Config(ui=UiConfig(save_dir=str(tmp_path / "file")))
    async with screen(size=(200, 24), config=config) as s:
        s.engine.begin("typed")
        s.engine.finish(reply="Hi.")
        await s.settle()
        await s.press("ctrl+s")
        await s.app.workers.wait_for_complete()
        await s.settle()
        assert "The session was not saved" in s.text


@pytest.mark.slow
async def test_r_answers_the_same_utterance_in_place_of_the_last_answer():
    microphone = FakeMicrophone()
    brain = ScriptedBrain(["First."], ["Second."], heard="Hello?")
    async with live(brain, microphone, FakeSpeaker()) as s:
        await s.press("ctrl+r")
        assert s.toasts == ["There is no turn to answer again yet."]
        down = await s.press("space")
        await s.until("● LISTENING")
        spoken = frames("..xxxxxxxxxxxxxxxxxxx......", start=down)
        microphone.push(spoken)
        await s.press("space", after=len(spoken) * 0.032)
        microphone.push(frames("..........", start=spoken[-1].captured_at))
        await s.until("First.", "○ READY")
        await s.press("ctrl+r")
        await s.until("Second.", "again")
        await until(s, lambda: "First." not in s.text)
        assert brain.said[0] is brain.said[1]
        assert brain.pasts == [(), ()]
        (replayed,) = (turn.result for turn in s.app.session.record.finished)
        assert replayed and replayed.reply == "Second."
        assert not replayed.paced and replayed.clip is None
