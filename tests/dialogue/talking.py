"""An engine on fakes, driven like a person does: `talking()`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.fakes import (
    SECONDS,
    BeepVoice,
    Events,
    FakeMicrophone,
    FakeSpeaker,
    LoudIsSpeech,
    ScriptedBrain,
    engine_on_fakes,
    frames,
)
from voxtui.dialogue.data import FRAME_SECONDS
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import Release, Talk
from voxtui.dialogue.events import (
    Notice,
    ReplyText,
    State,
    StateChanged,
    TurnFinished,
)
from voxtui.dialogue.protocols import NameDetector, Past, Skills
from voxtui.dialogue.timestamps import Turn
from voxtui.settings.schema import (
    BrainConfig,
    Config,
    VadConfig,
    VoxtralBrainConfig,
)

SPEECH = "..xxxxxxxxxx..."
WITHOUT_TRANSCRIPTS = BrainConfig(voxtral=VoxtralBrainConfig(idle_transcript=False))
HANDS_FREE = Config(vad=VadConfig(hands_free=True))
HEADPHONES = Config(vad=VadConfig(hands_free=True, listen_while_speaking=True))
TRAIL = 3200


@dataclass
class EngineTest:
    """An engine, its parts and its events."""

    engine: Engine
    brain: ScriptedBrain
    voice: BeepVoice
    speaker: FakeSpeaker
    microphone: FakeMicrophone
    events: Events

    def speak(self, pattern: str = SPEECH, at: float = 10.0) -> None:
        """Hold the key from `at` while `pattern` is heard, and let go at its end."""
        self.engine.post(Talk(at))
        self.microphone.push(frames(pattern, at))
        self.engine.post(Release(at + len(pattern) * FRAME_SECONDS))

    def turn(self) -> Turn:
        event = self.events.until(TurnFinished)
        assert isinstance(event, TurnFinished)
        return event.turn

    def ask(self, pattern: str = SPEECH, at: float = 10.0) -> Turn:
        self.speak(pattern, at)
        return self.turn()


@contextmanager
def talking(
    brain: ScriptedBrain | None = None,
    *,
    voice: BeepVoice | None = None,
    silent: bool = False,
    speaker: FakeSpeaker | None = None,
    microphone: FakeMicrophone | None = None,
    config: Config | None = None,
    fallback_devices: Callable[[], tuple[FakeMicrophone, FakeSpeaker]] | None = None,
    overhearing: LoudIsSpeech | None = None,
    detector: LoudIsSpeech | None = None,
    name_detector: NameDetector | None = None,
    loaded: bool = True,
    sound_system: Callable[[], object] = lambda: None,
    skills: Skills | None = None,
    captions: bool = False,
    confirms: bool = False,
    past: Past = (),
) -> Iterator[EngineTest]:
    """`silent`: the engine has no voice. `loaded` False: begins before the models are.

    `past`: the history with which the engine begins.
    """
    brain = brain or ScriptedBrain()
    voice = voice or BeepVoice()
    speaker = speaker or FakeSpeaker()
    microphone = microphone or FakeMicrophone()
    events = Events()
    engine = engine_on_fakes(
        events,
        microphone=microphone,
        speaker=speaker,
        detector=detector or LoudIsSpeech(),
        brain=brain,
        voice=None if silent else voice,
        config=config or Config(),
        fallback_devices=fallback_devices,
        overhearing=overhearing,
        name_detector=name_detector,
        sound_system=sound_system,
        skills=skills,
        captions=captions,
        confirms=confirms,
    )
    engine.start(past)
    try:
        if loaded:
            events.until(StateChanged, lambda e: e == StateChanged(State.READY))
        yield EngineTest(engine, brain, voice, speaker, microphone, events)
    finally:
        engine.close()
        join_stragglers()
        left = [t.name for t in threading.enumerate() if t.name.startswith("voxtui")]
        assert left == []


def join_stragglers() -> None:
    """Wait for voices at a cancelled clause and for cancelled timers, which end by themselves."""
    for thread in threading.enumerate():
        if thread.name in ("voxtui-voice", "voxtui-flush"):
            thread.join(SECONDS)


def text(events: Events) -> str:
    return "".join(e.text for e in events.of(ReplyText) if isinstance(e, ReplyText))


def notices(events: Events) -> str:
    return " ".join(str(event) for event in events.of(Notice))
