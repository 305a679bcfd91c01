"""What the embedded brain reads between two turns, in an engine with rules and the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.brains.conftest import small
from tests.brains.embedded.scripted import ScriptedChat, ScriptedRecogniser
from tests.dialogue.talking import talking
from tests.dialogue.turn.test_skills import ClockOnly
from tests.fakes import FakeSpeaker
from tests.ui.pseudo_terminal import until
from voxtui.brains.embedded.chat_process import ASK
from voxtui.brains.embedded.embedded_brain import EmbeddedBrain
from voxtui.dialogue.data import SKILL
from voxtui.dialogue.engine_commands import SendText
from voxtui.dialogue.protocols import PastTurn
from voxtui.settings.schema import HistoryConfig


@pytest.mark.parametrize("most_tokens", [1000, 48])
def test_an_answer_of_a_rule_is_read_while_it_is_spoken(tmp_path: Path, most_tokens: int) -> None:
    """Nothing but the user's own words is left to read after Enter, even if a cut is due."""
    (path := tmp_path / "any.gguf").write_bytes(b"GGUF" + bytes(100))
    config = replace(small(str(path)), history=HistoryConfig(max_tokens=most_tokens))
    chat, speaker = ScriptedChat("Hello."), FakeSpeaker()
    brain: Any = EmbeddedBrain(config, recogniser=ScriptedRecogniser(), chat=chat)
    with talking(brain, speaker=speaker, skills=ClockOnly(), config=config) as talk:
        talk.engine.post(SendText("Hi."))
        talk.turn()
        speaker.held = True
        talk.engine.post(SendText("What time is it?"))
        until(lambda: "It is ten past one." in chat.prompts[-1])
        ready = chat.prompts[-1]
        speaker.held = False
        assert talk.turn().brain == SKILL
        talk.engine.post(SendText("Thank you."))
        talk.turn()
    assert ready.endswith("(13:04)\n")
    assert chat.prompts[chat.prompts.index(ready) + 1] == f"{ready}Thank you.{ASK}"


def test_the_time_of_the_first_question_is_read_before_the_engine_is_ready(tmp_path: Path) -> None:
    """Nothing but the question is left to read after READY."""
    (path := tmp_path / "any.gguf").write_bytes(b"GGUF" + bytes(100))
    chat = ScriptedChat("Hello.")
    config = small(str(path))
    brain: Any = EmbeddedBrain(config, recogniser=ScriptedRecogniser(), chat=chat)
    with talking(brain, skills=ClockOnly(), config=config) as talk:
        while_loading = list(chat.prompts)
        talk.engine.post(SendText("Hi."))
        talk.turn()
        ready = while_loading[-1]
        assert ready.endswith("(It is Sunday, 22 November 2026, 13:04.)\n")
        assert chat.prompts[len(while_loading)] == f"{ready}Hi.{ASK}"


def test_the_time_is_not_read_before_a_conversation_that_goes_on() -> None:
    """It stands behind that conversation, which may take long to read."""
    past = (PastTurn("Hi.", None, (), clock="(It is Sunday, 22 November 2026, 13:00.)"),)
    for before, clock in (((), "(It is Sunday, 22 November 2026, 13:04.)"), (past, "")):
        with talking(skills=ClockOnly(), past=before) as talk:
            assert talk.brain.warmed_for is not None
            assert talk.brain.warmed_for.clock == clock
