"""The real screen on the real engine and on real devices, as far as they are virtual."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from tests.deadline import SECONDS
from tests.fakes import BeepVoice, FakeSoundSystem, Flag, LoudIsSpeech, ScriptedBrain
from tests.ui.test_with_engine import LiveScreen
from tests.virtual_audio import MICROPHONE, RATE, SPEAKER, VirtualAudio
from voxtui.audio.microphone import SounddeviceMicrophone
from voxtui.audio.portaudio import list_devices
from voxtui.audio.speaker import SounddeviceSpeaker
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import FRAME_SECONDS
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import ReplaceComponents
from voxtui.settings.schema import AudioConfig, Config
from voxtui.ui.app import VoxtuiApp
from voxtui.ui.bars import HALF_LINE, LINE
from voxtui.ui.menu.menu import LOOK_AGAIN

pytestmark = [pytest.mark.audio, pytest.mark.slow]


@pytest.fixture
def no_level_is_told_by_the_clock() -> None:
    """Check levels as for a real microphone."""


@pytest.fixture
def audio():
    with VirtualAudio() as audio, audio.environment():
        yield audio


def tone(seconds: float) -> np.ndarray:
    at = np.arange(round(16_000 * seconds))
    return (0.4 * np.sin(at * 2 * np.pi * 300 / 16_000)).astype(np.float32)


class Person(LiveScreen):
    def __init__(self, app: VoxtuiApp, pilot, audio: VirtualAudio) -> None:
        super().__init__(app, app.session.engine, pilot)
        self.audio = audio

    async def gone(self, seen: str) -> None:
        async with asyncio.timeout(SECONDS):
            while seen in self.text:
                await self.pilot.pause(0.02)

    async def choose(self, entry: str) -> None:
        """With the palette."""
        await self.pilot.press("ctrl+p")
        await self.pilot.pause(0.2)
        await self.pilot.press(*(key if key != " " else "space" for key in entry))
        await self.until(f"{entry[:4]}")
        await self.pilot.pause(0.6)
        await self.pilot.press("enter")
        await self.pilot.pause(0.1)

    async def says(self, seconds: float) -> None:
        """Between two taps."""
        await self.pilot.press("space")
        await self.until("● LISTENING")
        saying = self.audio.say(tone(seconds))
        assert await asyncio.to_thread(saying.wait) == 0
        await self.pilot.pause(6 * FRAME_SECONDS)
        await self.pilot.press("space")


@asynccontextmanager
async def person(audio: VirtualAudio, brain: ScriptedBrain) -> AsyncIterator[Person]:
    config = Config(audio=AudioConfig(input=MICROPHONE, output=SPEAKER))

    def make_engine(emit):
        return Engine(
            Models(LoudIsSpeech(), brain, BeepVoice()),
            config,
            emit,
            Devices(
                SounddeviceMicrophone(config.audio.input),
                SounddeviceSpeaker(config.audio.output),
                system=FakeSoundSystem(lambda: (SounddeviceMicrophone(""), SounddeviceSpeaker(""))),
            ),
        )

    factories = SimpleNamespace(
        microphone=lambda config: SounddeviceMicrophone(config.audio.input),
        speaker=lambda config: SounddeviceSpeaker(config.audio.output),
        brain=lambda config, say: ScriptedBrain(),
        voice=lambda config: BeepVoice(),
        reload=lambda config, say, fetches: ReplaceComponents(config),
        devices=list_devices,
        cancels_echo=lambda config: False,
    )
    app = VoxtuiApp(make_engine, config, factories=factories)
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            there = Person(app, pilot, audio)
            await there.until("○ READY")
            yield there
    finally:
        app.session.engine.close()


async def test_a_microphone_plugged_in_while_it_runs_is_found_chosen_and_heard(audio):
    brain = ScriptedBrain(["Heard you."])
    async with person(audio, brain) as s:
        audio.plug_in("headset")
        await s.choose(LOOK_AGAIN)
        await s.until("New: Microphone: headset", "○ READY")
        await s.choose("Microphone headset")
        async with asyncio.timeout(SECONDS):
            while s.app.session.microphone != "headset":
                await s.pilot.pause(0.02)
        await s.until("○ READY")
        await s.says(1.0)
        await s.until("Heard you.", "○ READY")
        assert brain.said[0].seconds > 0.8


async def test_a_selected_answer_is_read_aloud_and_its_turn_deleted_and_brought_back(audio):
    answer = "This sentence is heard once more."
    async with person(audio, ScriptedBrain([answer])) as s:
        await s.pilot.press(*"hello", "enter")
        await s.until(answer, "○ READY")
        await s.pilot.press("escape", "up")
        await s.until("Speak")
        with audio.record() as heard:
            await s.pilot.press("ctrl+g")
            await s.until("♪ SPEAKING")
            await s.until("○ READY")
            sounds = np.flatnonzero(np.abs(heard.stop()) > 0.1)
        assert (sounds[-1] - sounds[0]) / RATE == pytest.approx(0.01 * len(answer), abs=0.05)
        await s.pilot.press("delete")
        await s.gone(answer)
        await s.pilot.press(*"/undo", "enter")
        await s.until("hello", answer)


async def test_the_microphone_that_is_in_use_can_be_chosen_once_more(audio):
    brain = ScriptedBrain(["Still heard."])
    async with person(audio, brain) as s:
        before = s.app.session.engine._components.devices.microphone
        await s.choose(f"Microphone {MICROPHONE}")
        async with asyncio.timeout(SECONDS):
            while s.app.session.engine._components.devices.microphone is before:
                await s.pilot.pause(0.02)
        await s.until("○ READY")
        await s.says(1.0)
        await s.until("Still heard.", "○ READY")


async def test_without_any_microphone_the_screen_shows_that_until_one_is_found(audio):
    brain = ScriptedBrain(["Heard you."])
    async with person(audio, brain) as s:
        await asyncio.to_thread(audio.kill)
        await s.until("✗ ", "Enter: look again")
        await asyncio.to_thread(audio.start)
        await s.gone("Enter: look again")
        await s.until(f"Listening to {MICROPHONE} again.", "○ READY")
        await s.says(1.0)
        await s.until("Heard you.", "○ READY")


async def test_the_level_of_the_microphone_is_shown_while_models_load(audio):
    loaded = Flag()

    class Waits(ScriptedBrain):
        def warm_up(self, progress, options):
            progress("a large model", 0.4)
            assert loaded.wait(SECONDS)

    def make_engine(emit):
        return Engine(
            Models(LoudIsSpeech(), Waits()),
            Config(),
            emit,
            Devices(microphone=SounddeviceMicrophone(MICROPHONE)),
        )

    app = VoxtuiApp(make_engine, Config())
    saying = audio.say(tone(10.0))
    try:
        async with app.run_test(size=(80, 24)) as pilot:
            s = Person(app, pilot, audio)
            await s.until("◌ LOADING", MICROPHONE, "a large model 40%")
            meter = LINE * 8 + HALF_LINE + "─"  # -8 dBFS of -60, on ten cells
            async with asyncio.timeout(SECONDS):
                while meter not in s.line("◌ LOADING"):
                    await s.pilot.pause(0.02)
            loaded.set()
            await s.until("○ READY")
    finally:
        loaded.set()
        app.session.engine.close()
        saying.terminate()
        saying.wait()
