"""Open and replace files without hanging, and without writing through links."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from voxtui.errors import InputError


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open the regular file `path` and return its descriptor. Raises OSError for any other kind.

    Writing follows no link, because a link may name a file that others chose. A new file has
    `mode`. O_NONBLOCK keeps the opening of a FIFO from waiting for its other end.
    """
    links = 0 if flags == os.O_RDONLY else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | links | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if links and error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "It is a symbolic link", str(path)) from error
        raise
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "It is not a regular file", str(path))


@contextmanager
def file_errors(path: Path | str, done: str) -> Generator[None]:
    """Raise InputError for an OSError inside the context: `path` cannot be `done`, and why."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be {done}: {error.strerror}.") from error


def read_file(path: Path, limit: int, missing: bytes | None = None) -> bytes:
    """Return a file, cut at `limit` unless -1, or `missing`, if given, if it does not exist."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read(limit)
    except FileNotFoundError:
        if missing is None:
            raise
        return missing


def write_file(path: Path, data: bytes, keeps_mode: bool = False) -> None:
    """Atomically replace the file `path` by one of mode 0600 with `data`. Raises OSError.

    Creates its folder. Replaces a link instead of following it. `keeps_mode` keeps the permissions
    of the old file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    opened, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # else a loss of power may leave the new name with no data
        if keeps_mode and path.exists():
            shutil.copymode(path, name)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def append_line(path: Path, line: bytes, head: bytes = b"", most: int | None = None) -> None:
    """Append `line` by one write; to a new file after `head`. Raises OSError.

    Creates the folder. Writes nothing if the file would have more than `most` bytes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    opened = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        size = os.fstat(opened).st_size
        if size:  # a full disk or an editor may have left the last line without its end
            head = b"" if os.pread(opened, 1, size - 1) == b"\n" else b"\n"
        data = head + line
        if most is not None and size + len(data) > most:
            return
        if os.write(opened, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(opened)
