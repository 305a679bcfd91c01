"""config.toml as frozen types: every key is declared here, checked, and used."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from voxtui.errors import ConfigError

ENVIRONMENT = "VOXTUI_"


class EmbeddedBrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: Annotated[str, Meta(min_length=1)] = "qwen2.5-coder-1.5b"
    """a name `voxtui models list` knows, or the path of a .gguf file"""


class BrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Literal["auto", "embedded"] = "auto"
    instruction: str = (
        "You are Vox, a friendly voice assistant. Answer in one or two short spoken sentences. "
        "Plain text only, no lists, no code."
    )
    embedded: EmbeddedBrainConfig = EmbeddedBrainConfig()


class VoiceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    engine: Literal["auto", "embedded", "none"] = "auto"
    name: Annotated[str, Meta(min_length=1)] = "af_heart"
    speed: Annotated[float, Meta(ge=0.5, le=2.0)] = 1.0
    timeout_s: Annotated[float, Meta(gt=0, le=60)] = 3.0


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
            raise ValueError(f"max_words ({self.max_words}) is less than min_words ({self.min_words})")


class HistoryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    turns: Annotated[int, Meta(ge=0, le=5)] = 5
    max_tokens: Annotated[int, Meta(ge=0, le=32_000)] = 1200


class TargetsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ttft_ms: Annotated[float, Meta(gt=0)] = 100
    first_sound_ms: Annotated[float, Meta(gt=0)] = 300
    total_ms: Annotated[float, Meta(gt=0)] = 1000


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    brain: BrainConfig = BrainConfig()
    voice: VoiceConfig = VoiceConfig()
    audio: AudioConfig = AudioConfig()
    vad: VadConfig = VadConfig()
    generation: GenerationConfig = GenerationConfig()
    streaming: StreamingConfig = StreamingConfig()
    history: HistoryConfig = HistoryConfig()
    targets: TargetsConfig = TargetsConfig()
