"""The real screen on the real engine; only what the engine drives is scripted."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.fakes import (
    SECONDS,
    BeepVoice,
    FakeMicrophone,
    FakeSpeaker,
    Flag,
    ScriptedBrain,
    engine_on_fakes,
    frames,
)
from tests.ui.conftest import CLIPS, Screen
from voxtui.dialogue.engine_commands import SendText
from voxtui.dialogue.events import State
from voxtui.session.local_session import Factories
from voxtui.settings.schema import Config
from voxtui.ui.app import VoxtuiApp


class LiveScreen(Screen):
    async def until(self, *seen: str) -> None:
        """Wait until all of these stand on the screen."""
        async with asyncio.timeout(SECONDS):
            while not all(text in self.text for text in seen):
                await self.pilot.pause(0.01)


@asynccontextmanager
async def live(
    brain: ScriptedBrain,
    microphone: FakeMicrophone | None,
    speaker: FakeSpeaker,
    factories: Factories | None = None,
):
    def make_engine(emit):
        return engine_on_fakes(
            emit, microphone=microphone, speaker=speaker, brain=brain, voice=BeepVoice()
        )

    app = VoxtuiApp(make_engine, Config(), CLIPS, factories)
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            shown = LiveScreen(app, app.session.engine, pilot)
            await shown.until("○ READY")
            yield shown
    finally:
        app.session.engine.close()


@pytest.mark.slow
async def test_a_spoken_turn_from_space_to_the_numbers():
    microphone = FakeMicrophone()
    brain = ScriptedBrain(["It ", "is ", "Paris."], heard="What is the capital?")
    async with live(brain, microphone, FakeSpeaker()) as s:
        down = await s.press("space")
        await s.until("● LISTENING")
        spoken = frames("..xxxxxxxxxxxxxxxxxxx......", start=down)
        microphone.push(spoken)
        await s.press("space", after=len(spoken) * 0.032)
        microphone.push(frames("..........", start=spoken[-1].captured_at))
        await s.until("What is the capital?", "It is Paris.", "○ READY")
        assert "♪" in s.text
        async with asyncio.timeout(SECONDS):  # a turn this short is over before it is painted
            while "first_shown" not in s.app.panel.turn.timestamps:
                await s.pilot.pause(0.01)
        assert s.app.panel.turn.timestamps["first_shown"] > 0


@pytest.mark.slow
async def test_a_typed_turn_is_answered_aloud():
    speaker = FakeSpeaker()
    async with live(ScriptedBrain(["Hello to you."]), None, speaker) as s:
        await s.type("hello")
        await s.pilot.press("enter")
        await s.until("hello", "Hello to you.", "○ READY")
        assert speaker.chunks


@pytest.mark.slow
async def test_a_correction_takes_the_place_of_the_turn_on_the_screen_and_in_the_history():
    brain = ScriptedBrain(["A city."], ["Brussels."], ["Yes."])
    async with live(brain, None, FakeSpeaker()) as s:
        await s.send("the capital of Brussels")
        await s.until("A city.", "○ READY")
        await s.press("ctrl+o", "ctrl+w")
        await s.send("Belgium")
        await s.until("Brussels.", "○ READY")
        await s.send("sure?")
        await s.until("Yes.", "○ READY")
        assert [turn.user_text for turn in brain.pasts[-1]] == ["the capital of Belgium"]
        assert "A city." not in s.text


async def test_escape_silences_the_answer_and_marks_the_unheard_part():
    speaker = FakeSpeaker(held=True, heard=0.0)
    async with live(ScriptedBrain(["A long story."]), None, speaker) as s:
        s.app.session.engine.post(SendText("tell"))
        await s.until("♪ SPEAKING", "A long story.")
        await s.press("escape")
        await s.until("(interrupted)", "○ READY")
        assert s.app.session.state is State.READY


@pytest.mark.slow
async def test_a_new_text_cuts_off_the_answer_before():
    waiting = Flag()
    brain = ScriptedBrain(["Never ", waiting, "shown"], ["Second."])
    async with live(brain, None, FakeSpeaker()) as s:
        for text, seen in (("one", "Never"), ("two", "Second.")):
            await s.type(text)
            await s.pilot.press("enter")
            if text == "two":
                waiting.set()
            await s.until(seen)
        await s.until("○ READY")
        assert "shown" not in s.text


@pytest.mark.slow
async def test_a_microphone_that_is_lost_is_one_sentence_and_typing_goes_on():
    microphone = FakeMicrophone()
    async with live(ScriptedBrain(["Still here."]), microphone, FakeSpeaker()) as s:
        microphone.unplug()
        await s.until(f"✗ The microphone {microphone.name!r} is lost, and there is no other.")
        s.app.session.say("there?")
        await s.until("there?", "Still here.")
