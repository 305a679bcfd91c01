"""config.toml as frozen types: every key is declared here, checked, and used."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

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
            raise ValueError(f"max_words {self.max_words} is less than min_words {self.min_words}")


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


@dataclass(frozen=True, slots=True)
class Setting:
    """One value in force, and where it was said."""

    key: str
    value: Any
    source: str
    """a file, an option, an environment variable, or `default`"""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    config: Config
    settings: tuple[Setting, ...]
    path: Path | None
    """the file in force, if there is one"""


def load_config(path: Path | None, sets: Sequence[str], environ: Mapping[str, str]) -> LoadedConfig:
    """The file at `path`, or the first one found, under environment variables, under `--set`.

    Raises ConfigError, whose message begins with where the trouble is.
    """
    if path is None:
        path = next((p for p in (Path("config.toml"), user_config_file()) if p.is_file()), None)
    table = _read(path) if path else {}
    sources: dict[str, str] = {}
    if path:
        _check(table, str(path))
        sources = dict.fromkeys(_flatten(table), str(path))
    for place, key, text in (*_from_environment(environ), *map(_from_option, sets)):
        table = _override(table, place, key, text)
        sources[key] = place
    config = _check(table, "configuration")
    values = _flatten(msgspec.to_builtins(config))
    settings = (Setting(k, v, sources.get(k, "default")) for k, v in values.items())
    return LoadedConfig(config, tuple(settings), path)


def user_config_file() -> Path:
    from platformdirs import user_config_path

    return user_config_path("voxtui") / "config.toml"


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file.") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path}: is a directory, not a file.") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text.") from error
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}.") from error


def _from_environment(environ: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(place, key, text) of each `VOXTUI_SECTION__KEY`; other names are not configuration."""
    return [
        (name, name.removeprefix(ENVIRONMENT).lower().replace("__", "."), text)
        for name, text in sorted(environ.items())
        if name.startswith(ENVIRONMENT) and "__" in name
    ]


def _from_option(option: str) -> tuple[str, str, str]:
    key, equals, text = option.partition("=")
    if not equals or "." not in key:
        raise ConfigError(f"--set {option}: is not of the form section.key=value.")
    return f"--set {key}", key.strip(), text.strip()


def _override(table: dict[str, Any], place: str, key: str, text: str) -> dict[str, Any]:
    """`table` with `key` set to `text`: a TOML value if that fits, else a string."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        value = text
    try:
        changed = _with(table, key, value)
        _check(changed, place)
    except ConfigError:
        changed = _with(table, key, text)
        if isinstance(value, str) or not _fits(changed):
            _check(_with(table, key, value), place)
    return changed


def _fits(table: dict[str, Any]) -> bool:
    try:
        _check(table, "")
    except ConfigError:
        return False
    return True


def _with(table: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    section, dot, rest = key.partition(".")
    if not dot:
        return {**table, section: value}
    inner: Any = table.get(section)
    if not isinstance(inner, dict):
        return {**table, section: _with({}, rest, value)}
    return {**table, section: _with(cast("dict[str, Any]", inner), rest, value)}


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat |= _flatten(cast("dict[str, Any]", value), f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _check(table: dict[str, Any], place: str) -> Config:
    for key, value in _flatten(table).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{place}: {key}: {value} is not a number that can be used.")
    try:
        return msgspec.convert(table, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{place}: {_explain(str(error), table)}") from error


_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?(.*)`)?$", re.DOTALL)
_WRONG = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?$", re.DOTALL)


def _explain(message: str, table: dict[str, Any]) -> str:
    """msgspec's message in the words of the file: the key first, then what is wrong with it."""
    if unknown := _UNKNOWN.match(message):
        name, section = unknown[1], unknown[2]
        key = f"{section}.{name}" if section else name
        known = [*_flatten(msgspec.to_builtins(Config())), *Config.__struct_fields__]
        inside = [k for k in known if section and k.startswith(f"{section}.")]
        near = difflib.get_close_matches(key, known, 1, 0.75) or difflib.get_close_matches(
            key, inside, 1, 0.5
        )
        return f"{key}: unknown key" + (f"; did you mean {near[0]}?" if near else ".")
    wrong = _WRONG.match(message)
    assert wrong is not None
    reason, key = wrong[1].replace("`", ""), wrong[2] or ""
    reason = reason[:1].lower() + reason[1:]
    value = _flatten(table).get(key)
    said = f"{value!r} will not do: " if value is not None else ""
    return f"{key}: {said}{reason}." if key else f"{reason}."
