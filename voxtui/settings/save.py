"""Write settings to the user's config file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxtui.errors import ConfigError

if TYPE_CHECKING:
    pass

from voxtui.settings.paths import TEXT, user_config_file


def save_values(values: Mapping[str, Any]) -> Path:
    """Write these keys, and no other, into the user's own file; its comments stay.

    Returns where that is. Raises ConfigError; then the file is as it was.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    path = user_config_file()
    try:
        text = path.read_text(encoding=TEXT) if path.exists() else ""
        document: Any = tomlkit.parse(text)
        for key, value in values.items():
            *sections, name = key.split(".")
            table = document
            for section in sections:
                table = table.setdefault(section, tomlkit.table())
            table[name] = value
        _replace(path.resolve(), tomlkit.dumps(document))  # a link goes on leading to it
    except OSError as error:
        raise ConfigError(f"{path}: was not written: {error.strerror}.") from error
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not valid TOML, and was left as it is.") from error
    return path


def _replace(file: Path, text: str) -> None:
    """Make `text` what `file` holds, or leave it as it was. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    try:
        new.write_text(text, encoding="utf-8")
        if file.exists():
            shutil.copymode(file, new)
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def toml_value(value: Any) -> str:
    """`value` as it is written in config.toml."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)
