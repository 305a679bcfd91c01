"""Declare every key of config.toml with its type, range and default."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    pass


class EmbeddedBrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: Annotated[str, Meta(min_length=1)] = "qwen2.5-coder-1.5b"
    """a name `voxtui models list` knows, or the path of a .gguf file"""


class VoxtralBrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: Annotated[str, Meta(min_length=1)] = "mistralai/Voxtral-Mini-3B-2507"
    """owner/name on the hub, or a directory"""
    quantization: Literal["none", "fp8"] = "none"
    """how the language model's weights are kept; the audio encoder's stay as they are"""
    idle_transcript: bool = True
    """whether an utterance is put into words after its reply"""
    graphs: bool = False
    """whether a turn's work is captured as CUDA graphs when the model is loaded"""
    kernels: Literal["none", "attention", "all", "overlapped"] = "none"
    """what of a decode step goes through kernels of our own; needs Triton"""


class RemoteBrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server that speaks OpenAI's protocol."""

    url: str = ""
    """empty: there is none"""
    model: str = ""
    """empty: the only one that the server has"""
    transcription_model: str = ""
    """empty: `model` hears the sound itself"""
    transcription_url: str = ""
    """empty: `url`"""
    idle_transcript: bool = True
    """whether sound that `model` heard is put into words after its reply, which sends it again"""
    timeout_s: Annotated[float, Meta(gt=0, le=600)] = 30.0

    def __post_init__(self) -> None:
        for name in ("url", "transcription_url"):
            _check_url(name, getattr(self, name))
        if self.transcription_url and not self.transcription_model:
            raise ValueError("transcription_url needs a transcription_model")

    @property
    def hosts(self) -> str:
        """Where the user's voice and words go."""
        urls = (self.transcription_url, self.url) if self.transcription_model else (self.url,)
        return " and ".join(dict.fromkeys(urlsplit(url).netloc for url in urls if url))


def is_loopback(url: str) -> bool:
    """Whether what goes to `url` stays on this machine."""
    with suppress(ValueError):  # no URL, or no address
        host = urlsplit(url).hostname or ""
        if host == "localhost":
            return True
        address = ipaddress.ip_address(host)
        return address.is_loopback or address.is_unspecified  # 0.0.0.0, as servers print it
    return False


def _check_url(name: str, url: str) -> None:
    """Raises ValueError."""
    if not url:
        return
    if "@" in url or "?" in url:
        raise ValueError(
            f"{name} may hold no password: the environment variable VOXTUI_API_KEY is for a key"
        )
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise ValueError(f'{name} "{url}" is not of the form http://HOST:PORT/v1')


class BrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Literal["auto", "embedded", "voxtral", "remote"] = "auto"
    instruction: str = (
        "You are Vox, a friendly voice assistant. Answer in one or two short spoken sentences. "
        "Plain text only, no lists, no code."
    )
    embedded: EmbeddedBrainConfig = EmbeddedBrainConfig()
    voxtral: VoxtralBrainConfig = VoxtralBrainConfig()
    remote: RemoteBrainConfig = RemoteBrainConfig()

    @property
    def idle_transcript(self) -> bool:
        """Whether what was said is put into words once nothing else is to do."""
        return (self.remote if self.name == "remote" else self.voxtral).idle_transcript


class KokoroConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Paths of files; empty: those that `voxtui models fetch kokoro` fetched."""

    model: str = ""
    config: str = ""
    voice: str = ""


class VoiceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    engine: Literal["auto", "kokoro", "embedded", "none"] = "auto"
    name: Annotated[str, Meta(min_length=1)] = "af_heart"
    speed: Annotated[float, Meta(ge=0.5, le=2.0)] = 1.0
    timeout_s: Annotated[float, Meta(gt=0, le=60)] = 3.0
    kokoro: KokoroConfig = KokoroConfig()


class AudioConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: str = ""
    output: str = ""
    max_utterance_s: Annotated[float, Meta(ge=1, le=600)] = 120.0


class VadConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    threshold: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    min_speech_ms: Annotated[int, Meta(ge=0, le=5000)] = 200
    hands_free: bool = False
    start_ms: Annotated[int, Meta(ge=32, le=5000)] = 200
    end_ms: Annotated[int, Meta(ge=64, le=10_000)] = 800
    listen_while_speaking: bool = False


class GenerationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    preset: Literal["balanced", "ultra"] = "balanced"
    max_new_tokens: Annotated[int, Meta(ge=1, le=4096)] | None = None
    min_new_tokens: Annotated[int, Meta(ge=0, le=4096)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] | None = None
    seed: Annotated[int, Meta(ge=0, lt=2**31)] = 1

    def __post_init__(self) -> None:
        most, least = self.max_new_tokens, self.min_new_tokens
        if most is not None and least is not None and most < least:
            raise ValueError(f"max_new_tokens {most} is less than min_new_tokens {least}")

    def sampling(self) -> Sampling:
        """The values in force: the preset's, with the explicit keys on top."""
        explicit = {
            name: value
            for name in Sampling.__struct_fields__
            if (value := getattr(self, name, None)) is not None
        }
        return msgspec.structs.replace(PRESETS[self.preset], **explicit)


class Sampling(msgspec.Struct, frozen=True):
    """How a brain picks tokens."""

    max_new_tokens: int
    min_new_tokens: int
    temperature: float
    top_p: float
    top_k: int
    """0: no limit"""
    repetition_penalty: float
    one_sentence: bool = False
    """ask for one short sentence, so that few tokens are not cut in a word"""
    seed: int = 1


PRESETS = {
    "balanced": Sampling(160, 1, 0.2, 0.95, 0, 1.0),
    "ultra": Sampling(25, 2, 0.05, 0.9, 30, 1.2, one_sentence=True),
}


class StreamingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    min_words: Annotated[int, Meta(ge=1, le=50)] = 1
    max_words: Annotated[int, Meta(ge=1, le=50)] = 2
    flush_ms: Annotated[int, Meta(ge=1, le=5000)] = 50

    def __post_init__(self) -> None:
        if self.max_words < self.min_words:
            raise ValueError(f"max_words {self.max_words} is less than min_words {self.min_words}")


class HistoryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    turns: Annotated[int, Meta(ge=0, le=5)] = 5
    max_tokens: Annotated[int, Meta(ge=0, le=32_000)] = 1200


class TargetsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ttft_ms: Annotated[float, Meta(gt=0)] = 100
    processing_ms: Annotated[float, Meta(gt=0)] = 100
    first_sound_ms: Annotated[float, Meta(gt=0)] = 300
    total_ms: Annotated[float, Meta(gt=0)] = 1000


class MetricsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool = True


class UiConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # No letter, which others need; only keys that every terminal reports.
    talk_key: Literal[
        "space", "insert", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9", "f10", "f11", "f12"
    ] = "space"
    save_dir: str = ""
    theme: Annotated[str, Meta(min_length=1)] = "textual-dark"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    brain: BrainConfig = BrainConfig()
    voice: VoiceConfig = VoiceConfig()
    audio: AudioConfig = AudioConfig()
    vad: VadConfig = VadConfig()
    generation: GenerationConfig = GenerationConfig()
    streaming: StreamingConfig = StreamingConfig()
    history: HistoryConfig = HistoryConfig()
    targets: TargetsConfig = TargetsConfig()
    metrics: MetricsConfig = MetricsConfig()
    ui: UiConfig = UiConfig()
