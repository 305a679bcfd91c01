from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from voxtui.errors import ConfigError
from voxtui.settings.files import read_file

if TYPE_CHECKING:
    from platformdirs import PlatformDirs

TEXT = "utf-8-sig"
"""The encoding UTF-8, with or without the byte order mark that some editors write."""

LARGEST_CONFIG = 1 << 20
"""Maximum size in bytes, because the parser is slow. Our file has 6 kB."""

MOST_DOTS = 16
"""Maximum dots per line outside strings. A key of 100,000 parts took the parser 45 s and 8 GB."""

_STRING_OR_COMMENT = re.compile(  # no possessive quantifiers: Python 3.11.2 gets them wrong
    r'"""(?:[^"\\]|\\.|"(?!""))*(?:"""+|\\?\Z)' r"|'''.*?(?:'''+|\Z)"
    r'|"(?:[^"\\\n]|\\[^\n])*"?' r"|'[^'\n]*'?" r"|#[^\n]*",
    re.DOTALL,
)  # fmt: skip


def user_config_file() -> Path:
    return user_folders().user_config_path / "config.toml"


def user_folders() -> PlatformDirs:
    from platformdirs import PlatformDirs

    return PlatformDirs("voxtui", appauthor=False)


def user_path(named: str | Path) -> Path:
    """Expand `~` in `named`. The `~` of an unknown user stays unchanged."""
    return Path(os.path.expanduser(named))


def read_config(path: Path) -> str:
    """Return the text of a TOML file, without a byte order mark.

    Raises ConfigError, also for a file that would take the parser minutes or gigabytes.
    """
    try:
        data = read_file(path, LARGEST_CONFIG + 1)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file.") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path}: is a directory, not a file.") from error
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise ConfigError(f"{path}: is not a regular file.") from error
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from error
    if len(data) > LARGEST_CONFIG:
        raise ConfigError(f"{path}: is larger than 1 MB.")
    try:
        text = data.decode(TEXT)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text.") from error
    bare = _STRING_OR_COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(bare.split("\n"), 1):
        if line.count(".") > MOST_DOTS:
            raise ConfigError(f"{path}: line {number} has more than {MOST_DOTS} dots.")
    return text


def notes_file(named: str) -> Path:
    """Return the path of the notes: `named`, or a file in the data folder if it is empty."""
    return user_path(named) if named else user_folders().user_data_path / "notes.md"
