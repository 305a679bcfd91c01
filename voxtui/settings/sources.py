"""Read the configuration: file, environment variables, `--set`, and where each value came from."""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_type_hints

import msgspec
from msgspec import inspect

from voxtui.errors import ConfigError

if TYPE_CHECKING:
    pass

from voxtui.settings.paths import TEXT, user_config_file
from voxtui.settings.save import toml_value
from voxtui.settings.schema import Config, is_loopback

ENVIRONMENT = "VOXTUI_"

LOCAL_CONFIG = Path("config.toml")

SENDS = ("brain.remote.url", "brain.remote.transcription_url")
"""Where the user's voice and API key go: a ./config.toml that happens to be here may not say so."""

LONGEST_SHOWN = 60
"""Characters of a refused value that are shown."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value in force, and where it was said."""

    key: str
    value: Any
    source: str
    """a file, an option, an environment variable, a preset, or `default`"""


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
    given = path is not None
    path = path or found_file()
    foreign = path == LOCAL_CONFIG and not given
    said: dict[str, Setting] = {}
    for setting in _from_file(path) if path else ():
        if foreign and setting.key in SENDS and setting.value and not is_loopback(setting.value):
            raise ConfigError(
                f"{path}: {setting.key}: only a file of your own may send your voice elsewhere.",
                f"Put it into {user_config_file()}, or start with --config {path}.",
            )
        said[setting.key] = setting
    for place, key, text in (*_from_environment(environ), *map(_from_option, sets)):
        said[key] = Setting(key, _from_text(place, key, text), place)
    config = _assemble(said)
    return LoadedConfig(config, tuple(_in_force(config, said)), path)


def found_file() -> Path | None:
    """The file in force where none is named. Raises ConfigError."""
    if os.path.lexists(LOCAL_CONFIG):
        # A clone has one that changes nothing, and must not hide what was saved.
        own = _own_file() if _is_as_shipped(LOCAL_CONFIG) else None
        return own or LOCAL_CONFIG
    return _own_file()


def _is_as_shipped(path: Path) -> bool:
    """Whether the file says every default, and nothing else."""
    said = {setting.key: setting.value for setting in _from_file(path)}
    defaults = {key: value_of(Config(), key) for key in _keys()}
    return said == {key: value for key, value in defaults.items() if value is not None}


def options_of(key: str) -> Sequence[str]:
    """What a key that takes one of some words may be."""
    kind = inspect.type_info(_keys()[key])
    assert isinstance(kind, inspect.LiteralType)
    return [str(value) for value in kind.values]


def value_of(config: Config, key: str) -> Any:
    """The value of a key such as `voice.speed`."""
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def with_value(config: Config, key: str, value: Any, by: str = "chosen") -> Config:
    """`config` with another value for `key`. Raises ConfigError, which says `by` what it came."""
    *sections, name = key.split(".")
    made: Any = _checked(by, key, value)
    for depth in range(len(sections), -1, -1):
        struct: Any = config
        for section in sections[:depth]:
            struct = getattr(struct, section)
        made = msgspec.structs.replace(struct, **{[*sections, name][depth]: made})
    return made


def _own_file() -> Path | None:
    """The user's own file, if there is one. Raises ConfigError where that cannot be known."""
    path = user_config_file()
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from error
    return path


def _from_file(path: Path) -> Iterator[Setting]:
    try:
        table = tomllib.loads(path.read_text(encoding=TEXT))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file.") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path}: is a directory, not a file.") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text.") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: is nested too deeply.") from error
    except ValueError as error:  # TOMLDecodeError, or a number with thousands of digits
        raise ConfigError(f"{path}: is not valid TOML: {error}.") from error
    return _from_table(table, str(path))


def _from_table(table: Mapping[str, Any], place: str, prefix: str = "") -> Iterator[Setting]:
    for name, value in table.items():
        key = prefix + name
        if key in _keys():
            yield Setting(key, _checked(place, key, value), place)
        elif key not in _sections():
            raise _unknown(place, key)
        elif isinstance(value, dict):
            yield from _from_table(cast("dict[str, Any]", value), place, f"{key}.")
        else:
            raise _is_section(place, key)


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(place, key, text) of each `VOXTUI_SECTION__KEY`; other names are not configuration."""
    for name, text in sorted(environ.items()):
        if name.startswith(ENVIRONMENT) and "__" in name:
            yield name, name.removeprefix(ENVIRONMENT).lower().replace("__", "."), text
        elif meant := next((key for key in _keys() if name == _variable(key, "_")), None):
            raise ConfigError(f"{name}: is not read; did you mean {_variable(meant, '__')}?")


def _variable(key: str, dot: str) -> str:
    return ENVIRONMENT + key.replace(".", dot).upper()


def _from_option(option: str) -> tuple[str, str, str]:
    key, equals, text = option.partition("=")
    if not equals:
        raise ConfigError(f"--set {option}: is not of the form section.key=value.")
    return "--set", key.strip(), text.strip()


def _from_text(place: str, key: str, text: str) -> Any:
    """What `text` means for `key`: a TOML value where that fits, else the text itself."""
    if key in _sections():
        raise _is_section(place, key)
    if key not in _keys():
        raise _unknown(place, key)
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text
    try:
        return _checked(place, key, value)
    except ConfigError:
        if isinstance(value, str) or not isinstance(inspect.type_info(_keys()[key]), _TEXTS):
            raise
        return _checked(place, key, text)


def _checked(place: str, key: str, value: Any) -> Any:
    """`value` as `key` takes it. Raises ConfigError."""
    try:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError
        if isinstance(value, str) and b"\0" in value.encode():  # which also fails for no text
            raise ValueError
        return msgspec.convert(value, _keys()[key])
    except (ValueError, OverflowError) as error:
        kind = inspect.type_info(_keys()[key])
        shown = toml_value(value).encode(errors="backslashreplace").decode()
        shown = shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}…"
        near = _meant(kind, value, shown)
        raise ConfigError(f"{place}: {key}: {shown} is not {_expected(kind)}{near}") from error


def _meant(kind: inspect.Type, value: Any, shown: str) -> str:
    """The end of the sentence: what was probably meant by `value`, which is not of `kind`."""
    match kind, value:
        case inspect.LiteralType(values), str():
            close = difflib.get_close_matches(value, [str(v) for v in values], 1)
            return f"; did you mean {close[0]}?" if close else "."
        case inspect.StrType(), int() if not isinstance(value, bool):
            return f'; did you mean "{shown}"?'
        case _:
            return "."


def _expected(kind: inspect.Type) -> str:
    """In words, what a key of this type takes."""
    match kind:
        case inspect.UnionType(types):
            return _expected(types[0])
        case inspect.LiteralType(values):
            return f"one of {', '.join(str(value) for value in values)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return "a whole number" + _range(kind)
        case inspect.FloatType():
            return "a number" + _range(kind)
        case inspect.StrType(min_length=least):
            return "a text" if least is None else "a text with something in it"
        case _:
            raise TypeError(kind)


def _range(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge:g} to {kind.le:g}"
    bounds = {"above": kind.gt, "of at least": kind.ge, "below": kind.lt, "up to": kind.le}
    said = [f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None]
    return f" {' and '.join(said)}" if said else ""


def _unknown(place: str, key: str) -> ConfigError:
    section, _, name = key.rpartition(".")
    siblings = {k.rpartition(".")[2]: k for k in _keys() if k.rpartition(".")[0] == section}
    names = {k.rpartition(".")[2]: k for k in _keys()} | siblings
    whole = {k: k for k in (*_keys(), *_sections())}
    for word, candidates, cutoff in ((name, siblings, 0.5), (key, whole, 0.7), (name, names, 0.7)):
        if near := difflib.get_close_matches(word, candidates, 1, cutoff):
            return ConfigError(f"{place}: {key}: unknown key; did you mean {candidates[near[0]]}?")
    known = ", ".join(siblings or _sections())
    inside = f" in {section}" if siblings else ""
    others = place == str(LOCAL_CONFIG) and not section
    hint = "Another program's file? Then start voxtui elsewhere, or name yours: --config PATH"
    return ConfigError(
        f"{place}: {key}: unknown key; there is{inside}: {known}.", hint if others else ""
    )


def _is_section(place: str, key: str) -> ConfigError:
    example = next(k for k in _keys() if k.startswith(f"{key}."))
    return ConfigError(f"{place}: {key}: is a section, not a key; a key of it is {example}.")


def _assemble(said: Mapping[str, Setting]) -> Config:
    """The configuration that `said` makes. Raises ConfigError where keys contradict each other."""
    table: dict[str, Any] = {}
    for setting in said.values():
        *sections, name = setting.key.split(".")
        inner = table
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = setting.value
    try:
        return msgspec.convert(table, Config)
    except msgspec.ValidationError as error:
        reason, _, section = str(error).rstrip("`").partition(" - at `$.")
        places = {s.source: None for s in said.values() if s.key.startswith(f"{section}.")}
        raise ConfigError(f"{', '.join(places)}: {section}: {reason}.") from error


def _in_force(config: Config, said: Mapping[str, Setting]) -> Iterator[Setting]:
    sampling = config.generation.sampling()
    for key in _keys():
        value = value_of(config, key)
        if value is None:
            value = getattr(sampling, key.rpartition(".")[2])
            yield Setting(key, value, f"preset {config.generation.preset}")
        else:
            yield Setting(key, value, said[key].source if key in said else "default")


_TEXTS = (inspect.StrType, inspect.LiteralType)


@cache
def _keys() -> Mapping[str, Any]:
    """Every key with its section, in the order of the file, and the type of its value."""
    return dict(_keys_of(Config, ""))


@cache
def _sections() -> Sequence[str]:
    found = {
        ".".join(key.split(".")[:n]): None for key in _keys() for n in range(1, key.count(".") + 1)
    }
    return [*found]


def _keys_of(struct: type[msgspec.Struct], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, kind in get_type_hints(struct, include_extras=True).items():
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            yield from _keys_of(kind, f"{prefix}{name}.")
        else:
            yield prefix + name, kind
