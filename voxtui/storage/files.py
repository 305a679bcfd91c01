"""Open files of the user's own folders without hanging and without writing through links."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def open_private(path: Path, flags: int) -> int:
    """Open the regular file `path` for writing and return its descriptor; raise OSError.

    A new file has mode 0600. A link is not followed: it may name a file that others chose.
    O_NONBLOCK: opening a FIFO fails instead of waiting for its other end.
    """
    found = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    return _regular(found, path)


def read_file(path: Path, limit: int) -> bytes:
    found = _regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), path)
    with os.fdopen(found, "rb") as file:
        return file.read(limit)


def write_private(path: Path, data: bytes) -> None:
    """Replace the file `path`, in one step, by one of mode 0600 with `data`; raise OSError.

    Makes its folder. A link at `path` is replaced, not followed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    opened, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _regular(found: int, path: Path) -> int:
    if stat.S_ISREG(os.fstat(found).st_mode):
        return found
    os.close(found)
    raise OSError(errno.EINVAL, "Not a regular file", str(path))
