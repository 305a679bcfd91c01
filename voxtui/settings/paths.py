"""Where voxtui keeps the user's files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from platformdirs import PlatformDirs

TEXT = "utf-8-sig"
"""UTF-8, with or without the byte order mark that some editors put before it."""


def user_config_file() -> Path:
    """The user's own file, whether or not it is there."""
    return user_folders().user_config_path / "config.toml"


def user_folders() -> PlatformDirs:
    """Where the system wants the user's configuration, data, state and cache of voxtui."""
    from platformdirs import PlatformDirs

    return PlatformDirs("voxtui", appauthor=False)


def user_path(named: str | Path) -> Path:
    """`named` with its `~` expanded; a `~` of somebody unknown stays, and names no file."""
    return Path(os.path.expanduser(named))
