"""Short-lived folders in the system's temporary directory."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_in_use = set[Path]()


@contextmanager
def temporary_folder() -> Generator[Path]:
    """Yield a new folder, and remove it at the end."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="voxtui-"))
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
