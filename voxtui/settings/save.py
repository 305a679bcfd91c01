"""Write settings to the user's config file."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from voxtui.errors import ConfigError
from voxtui.settings.paths import read_config, user_config_file


def save_values(values: Mapping[str, Any]) -> Path:
    """Write keys to the user's config file, beside its comments. Returns it. Raises ConfigError."""
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
        _replace(path.resolve(), tomlkit.dumps(document))  # keeps a symbolic link
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}.") from error
    except (TOMLKitError, AttributeError, TypeError) as error:
        # The last two: a key of ours is a table there, or a section is none.
        raise ConfigError(f"{path}: is not a valid config file; it was not changed.") from error
    return path


def _replace(file: Path, text: str) -> None:
    """Replace the content of `file` at once, or leave it unchanged. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)
    new = Path(name)
    try:
        with open(descriptor, "w", encoding="utf-8") as writing:
            writing.write(text)
        if file.exists():
            shutil.copymode(file, new)
        os.replace(new, file)
    finally:
        new.unlink(missing_ok=True)


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it, a table on one line."""
    match value:
        case str() | bool():
            return json.dumps(value, ensure_ascii=False)
        case tuple():
            items = cast("tuple[Any, ...]", value)
            return f"[{', '.join(map(toml_value, items))}]"
        case msgspec.Struct():
            value = msgspec.to_builtins(value)
        case _:
            pass
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        pairs = (f"{name} = {toml_value(item)}" for name, item in table.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list):
        return toml_value(tuple(cast("list[Any]", value)))
    return str(value)
