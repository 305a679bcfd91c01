"""Short-lived folders in the system's temporary directory, removed however the program ends."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "voxtui-"
"""Prefix of the names. The process id follows, which tells the folders of killed processes."""

_in_use = set[Path]()


@contextmanager
def temporary_folder() -> Generator[Path]:
    """Yield a new folder, and remove it at the end."""
    import tempfile

    parent = Path(tempfile.gettempdir())
    _remove_stale_folders(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
    _in_use.add(folder)
    try:
        yield folder
    finally:
        _remove(folder)
        _in_use.discard(folder)


def remove_temporary_folders() -> None:
    """Remove the folders of this process, which may end while some are in use."""
    for folder in tuple(_in_use):
        _remove(folder)


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _remove_stale_folders(parent: Path) -> None:
    """Remove the folders of this user's killed processes, unless they hold more than sockets."""
    for folder in parent.glob(f"{PREFIX}*-????????"):
        owner = folder.name.split("-")[1]
        with suppress(OSError):
            status = folder.lstat()
            mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
            if mine and owner.isdecimal() and not _is_running(int(owner)):
                for socket in filter(Path.is_socket, folder.iterdir()):
                    socket.unlink()
                folder.rmdir()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
