from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from voxtui.errors import ConfigError, strip_control_characters
from voxtui.settings.files import write_file
from voxtui.settings.paths import read_config, user_config_file


def save_values(values: Mapping[str, Any]) -> Path:
    """Write keys into the user's config file, whose comments stay. Return its path."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    path = user_config_file()
    try:
        document: Any = tomlkit.parse(read_config(path) if path.exists() else "")
        for key, value in values.items():
            *sections, name = key.split(".")
            table = document
            for section in sections:
                table = table.setdefault(section, tomlkit.table())
            table[name] = value
        # By its own path, so that a symbolic link to it stays.
        write_file(path.resolve(), tomlkit.dumps(document).encode(), keeps_mode=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}.") from error
    except (TOMLKitError, AttributeError, TypeError) as error:
        # The last two: a key of ours is a table there, or a section is none.
        raise ConfigError(f"{path}: is not a valid config file; it was not changed.") from error
    return path


def toml_value(value: Any) -> str:
    """Return a value in TOML, a table on one line."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    match value:
        case str() | bool():
            text = json.dumps(value, ensure_ascii=False)
            return "".join(c if strip_control_characters(c) else f"\\u{ord(c):04x}" for c in text)
        case tuple() | list():
            items = cast("Iterable[Any]", value)
            return f"[{', '.join(map(toml_value, items))}]"
        case dict():
            table = cast("dict[str, Any]", value)
            pairs = (f"{name} = {toml_value(item)}" for name, item in table.items())
            return f"{{ {', '.join(pairs)} }}"
        case _:
            return str(value)
