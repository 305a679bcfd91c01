"""Devices that disappear in the middle of a turn: the engine on the real PortAudio."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.audio.sounds import report
from tests.fakes import BeepVoice, Events, FakeSoundSystem, LoudIsSpeech, ScriptedBrain
from tests.virtual_audio import MICROPHONE, RATE, SPEAKER, VirtualAudio
from voxtui.audio.microphone import SounddeviceMicrophone
from voxtui.audio.portaudio import list_devices, sound_system
from voxtui.audio.speaker import SounddeviceSpeaker
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import AUDIBLE, Utterance
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import Release, RescanDevices, SendText, Talk
from voxtui.dialogue.events import Loaded, MicrophoneLost, Notice, State, StateChanged, TurnFinished
from voxtui.dialogue.protocols import Microphone, Speaker
from voxtui.dialogue.timestamps import Outcome, Turn
from voxtui.errors import DeviceError
from voxtui.settings.schema import Config

pytestmark = pytest.mark.audio

STORY = "A story that takes more than a second to be told, and goes on and on and on after that."
LONG_STORY = " ".join([STORY] * 3)


class EngineTest:
    """The engine on the devices of one sound server, which another server can replace."""

    def __init__(self, audio: VirtualAudio, story: str) -> None:
        self.audio = audio
        self.events = Events()
        self.brain = ScriptedBrain(*([[story]] * 9))
        self.engine = Engine(
            Models(LoudIsSpeech(), self.brain, BeepVoice()),
            Config(),
            self.events,
            Devices(
                SounddeviceMicrophone(MICROPHONE),
                SounddeviceSpeaker(SPEAKER),
                system=FakeSoundSystem(self._fallback_devices, sound_system),
            ),
        )
        self.engine.start()
        self.wait_for(State.READY)

    def _fallback_devices(self) -> tuple[Microphone, Speaker]:
        return SounddeviceMicrophone(""), SounddeviceSpeaker("")

    def wait_for(self, state: State) -> None:
        self.events.until(StateChanged, lambda event: event == StateChanged(state))

    def turn(self) -> Turn:
        finished = self.events.until(TurnFinished)
        assert isinstance(finished, TurnFinished)
        return finished.turn

    def speak(self, audio: VirtualAudio, seconds: float = 1.0) -> None:
        tone = 0.4 * np.sin(np.arange(round(16_000 * seconds)) * 2 * np.pi * 300 / 16_000)
        assert audio.say(tone.astype(np.float32)).wait() == 0

    @property
    def notices(self) -> str:
        return " ".join(str(event) for event in self.events.of(Notice))

    @property
    def utterance_seconds(self) -> float:
        """Return the length of the last utterance."""
        utterance = self.brain.said[-1]
        assert isinstance(utterance, Utterance)
        return utterance.seconds


@pytest.fixture
def first() -> Iterator[VirtualAudio]:
    with VirtualAudio() as audio, audio.environment():
        yield audio


@pytest.fixture
def other() -> Iterator[VirtualAudio]:
    with VirtualAudio() as audio:
        yield audio


@pytest.fixture
def talk(first: VirtualAudio, request: pytest.FixtureRequest) -> Iterator[EngineTest]:
    """Start the engine on `first`; its answers are STORY, or the parameter."""
    talk = EngineTest(first, getattr(request, "param", STORY))
    yield talk
    talk.engine.close()


def loud_seconds(samples: np.ndarray) -> float:
    return np.count_nonzero(np.abs(samples) > AUDIBLE) / RATE


@pytest.mark.slow
def test_an_utterance_cut_short_by_unplugging_is_answered_on_the_other_devices(
    first: VirtualAudio, other: VirtualAudio, talk: Talk
) -> None:
    with other.record() as recorder:
        talk.engine.post(Talk())
        talk.wait_for(State.LISTENING)
        talk.speak(first)
        first.unplug(other)
        turn = talk.turn()
        heard = recorder.stop()
    report(
        f"kept {talk.utterance_seconds:.2f} s of speech, "
        f"heard {loud_seconds(heard):.2f} s of the answer"
    )
    assert turn.outcome is Outcome.ANSWERED and talk.utterance_seconds > 0.8
    assert loud_seconds(heard) > 0.5
    for notice in (
        "stopped delivering sound",
        "Listening to default now",
        "Speaking through default",
    ):
        assert notice in talk.notices
    assert not talk.events.of(MicrophoneLost)
    talk.wait_for(State.READY)
    talk.engine.post(Talk())
    talk.speak(other)
    talk.engine.post(Release())
    assert talk.turn().outcome is Outcome.ANSWERED and talk.utterance_seconds > 0.8


def test_a_speaker_unplugged_in_an_answer_leaves_the_text_and_the_next_answer_is_heard(
    first: VirtualAudio, other: VirtualAudio, talk: Talk
) -> None:
    talk.engine.post(SendText("tell me"))
    talk.wait_for(State.SPEAKING)
    threading.Event().wait(0.3)
    first.unplug(other)
    turn = talk.turn()
    assert turn.outcome is Outcome.ANSWERED and turn.reply == STORY
    talk.events.until(Notice, lambda event: "Speaking through default now" in str(event))
    assert "stopped taking sound" in talk.notices
    with other.record() as recorder:
        talk.engine.post(SendText("once more"))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert loud_seconds(recorder.stop()) > 0.5


@pytest.mark.slow
def test_without_another_device_the_answer_goes_on_as_text(
    first: VirtualAudio, talk: EngineTest
) -> None:
    talk.engine.post(Talk())
    talk.wait_for(State.LISTENING)
    talk.speak(first)
    first.unplug()
    talk.events.until(MicrophoneLost)
    assert talk.turn().outcome is Outcome.ANSWERED and talk.utterance_seconds > 0.8
    talk.engine.post(SendText("still there?"))
    assert talk.turn().reply == STORY
    assert "There is no speaker. Answers are text until one is back." in talk.notices


@pytest.mark.slow
def test_a_speaker_that_comes_back_is_heard_again(first: VirtualAudio, talk: EngineTest) -> None:
    talk.engine.post(SendText("tell me"))
    talk.wait_for(State.SPEAKING)
    first.unplug()
    assert talk.turn().reply == STORY
    first.start()
    with first.record() as recorder:
        talk.engine.post(SendText("once more"))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert loud_seconds(recorder.stop()) > 0.5


@pytest.mark.slow
def test_a_microphone_that_the_sound_server_replaces_by_itself_is_not_noticed(
    first: VirtualAudio, talk: Talk
) -> None:
    talk.engine.post(Talk())
    talk.wait_for(State.LISTENING)
    first.remove_microphone()
    talk.speak(first)
    talk.engine.post(Release())
    assert talk.turn().outcome is Outcome.ANSWERED and talk.utterance_seconds > 0.8
    assert not talk.events.of(Notice)


@pytest.mark.slow
@pytest.mark.parametrize("talk", [pytest.param(LONG_STORY, id="a long story")], indirect=True)
def test_a_speaker_that_the_sound_server_replaces_by_itself_is_not_noticed(
    first: VirtualAudio, talk: Talk
) -> None:
    first.plug_in_speaker("headset")
    with first.record("headset.monitor") as recorder:
        talk.engine.post(SendText("tell me"))
        talk.wait_for(State.SPEAKING)
        threading.Event().wait(0.3)
        first.remove_speaker()
        assert talk.turn().outcome is Outcome.ANSWERED
        assert loud_seconds(recorder.stop()) > 1.5
    assert not talk.events.of(Notice)


@pytest.mark.slow
@pytest.mark.parametrize("talk", [pytest.param(LONG_STORY, id="a long story")], indirect=True)
def test_a_speaker_lost_while_it_plays_is_replaced_by_the_default_and_the_text_goes_on(
    first: VirtualAudio, talk: Talk
) -> None:
    first.plug_in_speaker("headset")
    talk.engine.post(SendText("tell me"))
    talk.wait_for(State.SPEAKING)
    threading.Event().wait(0.3)
    first.remove_speaker(with_streams=True)
    turn = talk.turn()
    assert turn.outcome is Outcome.ANSWERED and turn.reply == LONG_STORY
    talk.events.until(Notice, lambda event: "Speaking through headset now" in str(event))
    assert "'voxspk' stopped taking sound" in talk.notices
    assert "The answer goes on as text." in talk.notices
    with first.record("headset.monitor") as recorder:
        talk.engine.post(SendText("once more"))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert loud_seconds(recorder.stop()) > 0.5
    assert talk.brain.pasts[-1][0].reply_text == LONG_STORY


@pytest.mark.slow
def test_a_device_plugged_in_is_listed_after_a_rescan_and_the_devices_in_use_stay(
    first: VirtualAudio, talk: Talk
) -> None:
    first.plug_in("headset")
    assert "headset" not in [device.name for device in list_devices()]
    talk.engine.post(RescanDevices())
    talk.wait_for(State.READY)
    assert "headset" in [device.name for device in list_devices()]
    with first.record() as recorder:
        talk.engine.post(Talk())
        talk.wait_for(State.LISTENING)
        talk.speak(first)
        talk.engine.post(Release())
        assert talk.turn().outcome is Outcome.ANSWERED and talk.utterance_seconds > 0.8
        assert loud_seconds(recorder.stop()) > 0.5
    assert not talk.events.of(Notice)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["the server ends", "the devices stall"])
def test_devices_that_come_back_are_used_again(
    first: VirtualAudio, talk: EngineTest, fault: str
) -> None:
    ends = fault == "the server ends"
    first.kill() if ends else first.stall()
    talk.events.until(MicrophoneLost)
    first.start() if ends else first.unstall()
    began = time.monotonic()
    both = (MICROPHONE, SPEAKER)
    talk.events.until(Loaded, lambda event: (event.microphone, event.speaker) == both)  # type: ignore[union-attr]
    report(f"{fault}: listening again after {time.monotonic() - began:.2f} s")
    with first.record() as recorder:
        talk.engine.post(Talk())
        talk.wait_for(State.LISTENING)
        talk.speak(first)
        talk.engine.post(Release())
        assert talk.turn().outcome is Outcome.ANSWERED and talk.utterance_seconds > 0.8
        assert loud_seconds(recorder.stop()) > 0.5


def test_a_sound_server_that_is_started_again_changes_the_sound_system(first: VirtualAudio) -> None:
    before = sound_system()
    assert sound_system() == before
    first.kill()
    first.start()
    assert sound_system() != before


def test_a_sound_system_that_fails_to_restart_raises_a_device_error_until_it_works(
    virtual_audio: VirtualAudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sounddevice

    def refusing() -> None:
        raise sounddevice.PortAudioError("No host API")

    list_devices()
    with monkeypatch.context() as broken:
        broken.setattr(sounddevice, "_initialize", refusing)
        for _ in "ab":
            with pytest.raises(DeviceError, match="cannot be used: No host API"):
                list_devices()
    assert MICROPHONE in [device.name for device in list_devices()]


def test_a_sound_system_that_fails_to_start_raises_a_device_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sounddevice.py").write_text("raise RuntimeError('No host API')")
    monkeypatch.delitem(sys.modules, "sounddevice")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DeviceError, match="cannot be used: No host API"):
        list_devices()
