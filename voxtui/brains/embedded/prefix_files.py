"""Files with the evaluated beginning of all prompts, which load in milliseconds.

Evaluating the instruction and the examples takes several seconds on two cores. The file holds the
state of llama.cpp's cache after that: only text of voxtui and of its configuration, and never a
word of a conversation. It is in the user's cache directory, with mode 0600.

The name of a file is KEY-DIGEST.state. The key depends on everything that determines the state. The
digest is that of the content, so a truncated or changed file is never loaded. Native code parses
these files.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from voxtui.brains.embedded.chat_process import SOCKET, Setup

LARGEST_BYTES = 200 * 1000**2
"""Maximum bytes of all files; the oldest ones are deleted first."""

TIMEOUT_SECONDS = 10.0
"""Maximum seconds for the runtime to read or write a file of some megabytes."""


@dataclass(frozen=True, slots=True)
class PrefixFile:
    directory: Path
    key: str

    def restore(self, sequence: int = 0) -> bool:
        """Load the state into a sequence of the cache. Return True on success."""
        for path in self.directory.glob(f"{self.key}-*.state"):
            if _is_intact(path) and _ask("restore", path.name, sequence):
                with suppress(OSError):
                    os.utime(path)
                return True
            with suppress(OSError):
                path.unlink()
        return False

    def save(self, sequence: int = 0) -> None:
        """Write the state of a sequence. After a failure the next start evaluates again."""
        partial = self.directory / f"{self.key}.{os.getpid()}.partial"
        with suppress(OSError):
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
            saved = _ask("save", partial.name, sequence)
            if saved.get("n_written") == partial.stat().st_size:
                partial.rename(self.directory / f"{self.key}-{_digest(partial)}.state")
                remove_oldest(self.directory)
        with suppress(OSError):  # a read-only file system refuses to remove even what is not there
            partial.unlink()


def prefix_file(setup: Setup, cache_format: object) -> PrefixFile | None:
    """Return the file for the prefix of `setup`, or None without a private directory for it.

    `cache_format` is everything that determines the layout of the cache.
    """
    directory = setup.prefix_directory
    if directory is None:
        return None
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status, weights = directory.lstat(), setup.path.stat()
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode) or not _is_private(status):
        return None
    identity = (str(setup.path), weights.st_size, weights.st_mtime_ns, weights.st_ino)
    depends_on = (identity, setup.prefix, cache_format, version("xllamacpp"))
    return PrefixFile(directory, hashlib.sha256(repr(depends_on).encode()).hexdigest()[:32])


def remove_oldest(directory: Path) -> None:
    """Delete the least recently used files, until the rest is at most LARGEST_BYTES."""
    files = sorted(_files(directory), reverse=True)
    total = 0
    for _, size, path in files:
        total += size
        if total > LARGEST_BYTES:
            path.unlink(missing_ok=True)


def _files(directory: Path) -> Iterator[tuple[int, int, Path]]:
    for path in directory.iterdir():
        if path.suffix in (".state", ".partial"):
            with suppress(OSError):
                status = path.lstat()
                yield status.st_mtime_ns, status.st_size, path


def _is_intact(path: Path) -> bool:
    """Return True if `path` is a private file of this user, with the content of its digest.

    Any other file is not parsed.
    """
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or not _is_private(status):
            return False
        return status.st_size <= LARGEST_BYTES and path.stem.endswith(f"-{_digest(path)}")
    except OSError:
        return False


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.getuid() and not status.st_mode & 0o077


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _ask(action: str, name: str, sequence: int) -> dict[str, Any]:
    """Have the runtime save or restore its cache. Return its answer; empty if it refused.

    The runtime offers this only through its socket, which is in the current directory.
    """
    import socket
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection("localhost")
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(TIMEOUT_SECONDS)
        connection.sock.connect(SOCKET)
        connection.request(
            "POST",
            f"/slots/{sequence}?action={action}",
            json.dumps({"filename": name}),
            {"Content-Type": "application/json"},
        )
        response = connection.getresponse()
        return json.loads(response.read()) if response.status == 200 else {}
    except (OSError, HTTPException, ValueError):
        return {}
    finally:
        connection.close()
