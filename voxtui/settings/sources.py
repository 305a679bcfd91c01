"""Read the configuration from file, environment and `--set`, and the source of each value."""

from __future__ import annotations

import difflib
import math
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import msgspec
from msgspec import inspect

from voxtui.errors import ConfigError
from voxtui.settings.paths import read_config, user_config_file
from voxtui.settings.save import toml_value
from voxtui.settings.schema import (
    DEFAULT_BRAIN,
    PROJECT,
    TARGETS,
    Config,
    HistoryConfig,
    InputConfig,
    SessionConfig,
)

ENVIRONMENT = "VOXTUI_"

PROJECT_FILE = Path("voxtui.toml")
"""The config file of the current directory, for keys that the schema marks with PROJECT."""

RETIRED_VALUES = {"brain.voxtral.fast": {"auto": True, "off": False}}
"""Values of voxtui 0.1.0, and their present equivalents."""

IGNORED_FILE = Path("config.toml")
"""A file of the current directory that is not read, because many programs use this name."""

PLAIN = (
    (r"Expected `str` matching regex .*,(\d+)}\$'",
     r"must be a letter and then at most \1 letters, digits and _, all in lower case"),
    ("Expected `str`, got `.*`", "must be text"),
    ("Expected `array`, got `.*`", "must be a list"),
    (r"Expected `str \| array`, got .*|Invalid enum value .*",
     'must be a list, "integer" or "text"'),
    ("Expected `.*`, got `.*`", "has a value of the wrong type"),
    ("Expected `.*` of length >= 1", "must not be empty"),
    ("Expected `str` of length <= (.*)", r"must have at most \1 characters"),
    ("Expected `float` > (.*)", r"must be above \1"),
    ("Expected `float` <= (.*)", r"must be at most \1"),
    ("Object contains unknown field `(.*)`", r"unknown key \1"),
    ("Object missing required field `(.*)`", r"\1 is missing"),
)  # fmt: skip
"""What msgspec says of an entry in a list, and our words for it."""

LONGEST_SHOWN = 60
"""Maximum characters of an invalid key or value in a message."""


@dataclass(frozen=True, slots=True)
class Setting:
    key: str
    value: Any
    source: str
    """the origin: a file, an option, an environment variable, a preset, or `default`"""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    config: Config
    settings: tuple[Setting, ...]
    path: Path | None
    """the file in use, if there is one"""
    notice: str = ""
    """a sentence for the user about a ./config.toml that is not read"""


def load_config(path: Path | None, sets: Sequence[str], environ: Mapping[str, str]) -> LoadedConfig:
    """Read the file, then the environment, then `sets`. Raises ConfigError, place first."""
    notice = _notice() if path is None else ""
    project = path is None and os.path.lexists(PROJECT_FILE)
    path = path or active_config_file()
    settings: dict[str, Setting] = {}
    for setting in _from_file(path) if path else ():
        if project and setting.key not in project_keys():
            raise ConfigError(
                f"{path}: {setting.key}: cannot be set by a file in the current directory.",
                f"Set it in {user_config_file()}, or start with --config {path}.",
            )
        settings[setting.key] = setting
    for place, key, text in (*_from_environment(environ), *map(_from_option, sets)):
        settings[key] = Setting(key, _from_text(place, key, text), place)
    config = _assemble(settings)
    return LoadedConfig(config, tuple(_in_force(config, settings)), path, notice)


def project_keys() -> frozenset[str]:
    return frozenset(key for key, kind in _keys().items() if PROJECT in get_args(kind))


def active_config_file() -> Path | None:
    if os.path.lexists(PROJECT_FILE):
        return PROJECT_FILE
    path = user_config_file()
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from error
    return path


def _notice() -> str:
    """Return a notice if an unread ./config.toml has voxtui's settings, but not the defaults."""
    if not os.path.lexists(IGNORED_FILE):
        return ""
    try:
        table = tomllib.loads(read_config(IGNORED_FILE))
    except (ConfigError, ValueError, RecursionError):
        return ""
    ours = tomllib.loads((Path(__file__).parents[1] / "data/config.toml").read_text("utf-8"))
    if table == ours or not any(section in table for section in _sections()):
        return ""
    return (
        f"./{IGNORED_FILE} is not read: start with --config {IGNORED_FILE}, "
        f"or rename it to {PROJECT_FILE}."
    )


def options_of(key: str) -> Sequence[str]:
    kind = inspect.type_info(_keys()[key])
    assert isinstance(kind, inspect.LiteralType)
    return [str(value) for value in kind.values]


def value_of(config: Config, key: str) -> Any:
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def with_value(config: Config, key: str, value: Any, source: str = "chosen") -> Config:
    """Return a copy of `config` with `key` set. Raises ConfigError, which names `source`."""
    *sections, name = key.split(".")
    changed: Any = _checked(source, key, value)
    try:
        for depth in range(len(sections), -1, -1):
            struct: Any = value_of(config, ".".join(sections[:depth])) if depth else config
            changed = msgspec.structs.replace(struct, **{[*sections, name][depth]: changed})
    except ValueError as error:
        raise ConfigError(f"{source}: {'.'.join(sections)}: {error}.") from error
    return changed


def _from_file(path: Path) -> Iterator[Setting]:
    try:
        table = tomllib.loads(read_config(path))
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
    for name, text in sorted(environ.items()):
        if name.startswith(ENVIRONMENT) and "__" in name:
            yield name, name.removeprefix(ENVIRONMENT).lower().replace("__", "."), text
        elif meant := next((key for key in _keys() if name == _variable(key, "_")), None):
            raise ConfigError(f"{name}: is not read; did you mean {_variable(meant, '__')}?")


def _variable(key: str, dot: str) -> str:
    return ENVIRONMENT + key.replace(".", dot).upper()


def _from_option(option: str) -> tuple[str, str, str]:
    key, equals, text = option.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {option}: is not of the form section.key=value.")
    return "--set", key.strip(), text.strip()


def _from_text(place: str, key: str, text: str) -> Any:
    """Return the value of `text`: parsed as TOML if `key` accepts that, else the text itself."""
    if key in _sections():
        raise _is_section(place, key)
    if key not in _keys():
        raise _unknown(place, key)
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text
    is_text = isinstance(inspect.type_info(_keys()[key]), inspect.StrType | inspect.LiteralType)
    if is_text and not isinstance(value, str):
        value = text
    return _checked(place, key, value)


def _checked(place: str, key: str, value: Any) -> Any:
    kind = _keys()[key]
    if isinstance(value, str):
        value = RETIRED_VALUES.get(key, {}).get(value, value)
    reason = _requirement(inspect.type_info(kind))
    try:
        if isinstance(value, float) and not math.isfinite(value):
            reason = "must be a finite number"
            raise ValueError(reason)
        if any("\0" in text for text in _texts_in(value)):
            reason = "must be text without NUL characters"
            raise ValueError(reason)
        return msgspec.convert(value, kind)
    except UnicodeEncodeError as error:
        reason, cause = "must be valid Unicode", error
    except msgspec.ValidationError as error:
        if isinstance(value, list) and reason.startswith("must be a list"):
            detail, _, entry = str(error).partition(" - at `$")
            for pattern, plain in PLAIN:
                detail = re.sub(pattern, plain, detail)
            raise ConfigError(
                f"{place}: {key}{entry.rstrip('`')}: {detail}.", "docs/tools.md shows an example."
            ) from error
        cause = error
    except (ValueError, OverflowError) as error:
        cause = error
    shown = _shortened(toml_value(value).encode(errors="backslashreplace").decode())
    meant = _meant(key, value)
    end = f"; did you mean {meant}?" if meant else "."
    raise ConfigError(f"{place}: {key} = {shown}: {reason}{end}") from cause


def _texts_in(value: Any) -> Iterator[str]:
    """Yield each text in a value of TOML. Raises UnicodeEncodeError."""
    match value:
        case str():
            value.encode()
            yield value
        case list() | dict():
            entries = cast("Iterable[Any]", value.values() if isinstance(value, dict) else value)
            for entry in entries:
                yield from _texts_in(entry)
        case _:
            pass


def _requirement(kind: inspect.Type) -> str:
    match kind:
        case inspect.UnionType(types=(first, *_)):  # the rest is None
            return _requirement(first)
        case inspect.VarTupleType():
            return "must be a list; docs/tools.md shows one"
        case inspect.LiteralType():
            options = ", ".join(str(value) or '""' for value in kind.values)
            return f"must be one of {options}"
        case inspect.BoolType():
            return "must be true or false"
        case inspect.StrType():
            if kind.pattern:
                return (
                    f"must be words of the letters a to z, of at most {kind.max_length} characters"
                )
            return "must be text" + ", and not empty" * bool(kind.min_length)
        case inspect.IntType() | inspect.FloatType():
            limits = {"above": kind.gt, "at least": kind.ge, "below": kind.lt, "at most": kind.le}
            told = [f"{words} {limit:g}" if isinstance(limit, float) else f"{words} {limit}"
                    for words, limit in limits.items() if limit is not None]  # fmt: skip
            name = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
            return f"must be {', '.join([name, ' and '.join(told)] if told else [name])}"
        case _:
            raise AssertionError(kind)


def _meant(key: str, value: Any) -> str:
    match inspect.type_info(_keys()[key]), value:
        case inspect.LiteralType(), str():
            return next(iter(difflib.get_close_matches(value, options_of(key), 1)), "")
        case inspect.StrType(), int() if not isinstance(value, bool):
            return f'"{value}"'
        case _:
            return ""


def _unknown(place: str, key: str) -> ConfigError:
    section, _, name = key.rpartition(".")
    siblings = {k.rpartition(".")[2]: k for k in _keys() if k.rpartition(".")[0] == section}
    names = {k.rpartition(".")[2]: k for k in _keys()} | siblings
    whole = {k: k for k in (*_keys(), *_sections()) if not key.startswith(f"{k}.")}
    shown = _shortened(key)
    for word, candidates, cutoff in ((name, siblings, 0.5), (key, whole, 0.7), (name, names, 0.7)):
        if len(word) > LONGEST_SHOWN:
            continue
        if near := difflib.get_close_matches(word, candidates, 1, cutoff):
            meant = candidates[near[0]]
            return ConfigError(f"{place}: {shown}: unknown key; did you mean {meant}?")
    these = f"the keys in {section}" if siblings else "the sections"
    known = ", ".join(siblings or _sections())
    return ConfigError(f"{place}: {shown}: unknown key; {these} are: {known}.")


def _is_section(place: str, key: str) -> ConfigError:
    example = next(k for k in _keys() if k.startswith(f"{key}."))
    return ConfigError(f"{place}: {key}: is a section, not a key; a key of it is {example}.")


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _assemble(settings: Mapping[str, Setting]) -> Config:
    """Build the configuration. Raises ConfigError if keys contradict each other."""
    table: dict[str, Any] = {}
    for setting in settings.values():
        *sections, name = setting.key.split(".")
        inner = table
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = setting.value
    try:
        return msgspec.convert(table, Config)
    except msgspec.ValidationError as error:
        reason, _, section = str(error).rstrip("`").partition(" - at `$.")
        places = {s.source: None for s in settings.values() if s.key.startswith(f"{section}.")}
        raise ConfigError(f"{', '.join(places)}: {section}: {reason}.") from error


def _in_force(config: Config, settings: Mapping[str, Setting]) -> Iterator[Setting]:
    brain = config.brain.name if config.brain.name in TARGETS else DEFAULT_BRAIN
    defaults = {
        "generation": (
            config.generation.sampling(brain),
            f"preset {config.generation.preset} of the {brain} brain",
        ),
        "history": (
            HistoryConfig(max_tokens=config.history.tokens(brain)),
            f"default of the {brain} brain",
        ),
        "input": (InputConfig(config.input.tokens(brain)), f"default of the {brain} brain"),
        "session": (SessionConfig(keep=False), "not asked yet"),
        "targets": (config.targets.resolved(brain), f"default of the {brain} brain"),
    }
    for key in _keys():
        value = value_of(config, key)
        if value is None:
            section, _, name = key.partition(".")
            struct, source = defaults[section]
            yield Setting(key, getattr(struct, name), source)
        else:
            yield Setting(key, value, settings[key].source if key in settings else "default")


@cache
def _keys() -> Mapping[str, Any]:
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
