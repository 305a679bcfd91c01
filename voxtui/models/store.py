"""Downloaded model files: partial downloads, checksums, the download lock, disk space.

A download grows `FILE.partial`, which is always a prefix of the released file. It replaces FILE
after its hash was checked. `FILE.checked` records the hash together with the file's size, times and
inode. A file that differs from its record is hashed again before use.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event as Flag
from typing import BinaryIO, TypeAlias

import msgspec
from filelock import FileLock, Timeout
from msgspec.structs import replace

from voxtui.errors import ModelError
from voxtui.models.catalogue import Model, ModelFile, models_directory
from voxtui.settings.files import open_regular, read_file, write_file

BLOCK = 1 << 20
"""Bytes of one transfer."""
HASH_BLOCK = 16 << 20
"""Bytes that are hashed between two calls of `beat`: about 10 ms."""

OTHER_DIRECTORY = "keep the model in another directory and set its path in the config"
RESUMES = "Run the command again: the download resumes where it stopped."

NEVER = Flag()

Beat: TypeAlias = Callable[[], object]
"""Called often during long work. It raises to end the work."""

Report: TypeAlias = Callable[[int], object]
"""A beat that receives the bytes of a file that are on this machine."""


class Stopped(Exception):
    """The flag of the caller was set, so there is no result."""


class ChecksumMismatch(ModelError):
    """A download differs from the released file. It was deleted."""


def open_content(path: Path) -> BinaryIO:
    return os.fdopen(open_regular(path), "rb")


def open_partial(path: Path) -> BinaryIO:
    """Open the partial download of `path` for writing, positioned at its end. Raises OSError.

    Refuses links, because a link could make the download overwrite a file outside of the store.
    """
    partial = partial_path(path)
    file = os.fdopen(open_regular(partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
    if os.fstat(file.fileno()).st_nlink > 1:
        file.close()
        raise OSError(errno.EMLINK, "It has a second hard link", str(partial))
    file.seek(0, os.SEEK_END)
    return file


def partial_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


def partial_size(path: Path, file: ModelFile) -> int:
    return min(_size(partial_path(path)), file.size)


def has_size(path: Path, file: ModelFile) -> bool:
    return _size(path) == file.size


def is_here(model: Model) -> bool:
    """Return True if the file of a chat model exists in full length. Does not hash it."""
    return model.file is not None and has_size(model.path, model.file)


class CheckRecord(msgspec.Struct, frozen=True):
    """The hash of a file, and the file's attributes at that time."""

    digest: str
    size: int
    mtime_ns: int
    inode: int
    ctime_ns: int = 0
    """the time of the last change of content or attributes in ns, which no program can restore,
    unlike `mtime_ns`; 0 in records of earlier versions"""

    def describes(self, path: Path) -> bool:
        """Return True if the attributes of `path` are unchanged. Raises OSError."""
        now = _record_of(self.digest, path.stat())
        return now == (self if self.ctime_ns else replace(self, ctime_ns=now.ctime_ns))


def hash_file(path: Path, algorithm: str, beat: Beat) -> CheckRecord:
    """Return the record of `path` by `sha256` or `git`. Raises OSError."""
    with open_content(path) as content:
        attributes = os.fstat(content.fileno())
        found = hashlib.sha256()
        if algorithm == "git":  # SHA-1, after a header with the length
            found = hashlib.sha1(b"blob %d\0" % attributes.st_size, usedforsecurity=False)
        while block := content.read(HASH_BLOCK):
            found.update(block)
            beat()
        # The attributes from before: a file that changes meanwhile does not fit its record.
        return _record_of(f"{algorithm}:{found.hexdigest()}", attributes)


def is_released(path: Path, file: ModelFile, stop: Flag = NEVER) -> bool:
    """Return True if `path` has the hash of `file`; computed if its check record is not up to date.

    Raises OSError, and Stopped.
    """
    record = _record(path)
    if record and record.digest == file.digest and record.describes(path):
        return True
    return has_digest(path, file.digest, stop)


def has_digest(path: Path, digest: str, stop: Flag = NEVER) -> bool:
    """Return True, and record it, if `path` has the hash `digest`. Raises OSError, Stopped."""

    def check() -> None:
        if stop.is_set():
            raise Stopped

    checked = hash_file(path, digest.partition(":")[0], check)
    if checked.digest == digest:
        _write_record(path, checked)
    return checked.digest == digest


def has_changed(path: Path) -> bool:
    """Return True if `path` differs from its check record. False without a record."""
    record = _record(path)
    return record is not None and not record.describes(path)


def is_unchanged(path: Path) -> bool:
    """Return True if `path` has the hash of its check record, or no record. Raises OSError."""
    record = _record(path)
    return record is None or record.describes(path) or has_digest(path, record.digest)


def place(path: Path, file: ModelFile, beat: Beat) -> None:
    """Check the partial download of `path`, and move it to `path`. Raises ChecksumMismatch."""
    partial = partial_path(path)
    checked = hash_file(partial, file.digest.partition(":")[0], beat)
    if checked.digest != file.digest:
        partial.unlink()
        raise ChecksumMismatch(f"Checksum mismatch for {file.name}.", "It was deleted. Try again.")
    partial.replace(path)
    _write_record(path, replace(checked, ctime_ns=path.stat().st_ctime_ns))


def record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.checked")


def _record_of(digest: str, attributes: os.stat_result) -> CheckRecord:
    return CheckRecord(
        digest,
        attributes.st_size,
        attributes.st_mtime_ns,
        attributes.st_ino,
        attributes.st_ctime_ns,
    )


def _record(path: Path) -> CheckRecord | None:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(read_file(record_path(path), 4096), type=CheckRecord)
    return None


def _write_record(path: Path, record: CheckRecord) -> None:
    """Replace the record of `path`. If that fails, the file is hashed before each use."""
    with suppress(OSError):
        write_file(record_path(path), msgspec.json.encode(record))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@contextmanager
def access_errors() -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        path = Path(error.filename or models_directory())
        hint = f"`ls -ld {path.parent}` shows its owner."
        raise ModelError(
            f"{path} cannot be read: {reason(error)}.",
            hint if isinstance(error, PermissionError) else "",
        ) from error


@contextmanager
def storage_errors(directory: Path) -> Generator[None, None, None]:
    """Create `directory`. Raise ModelError for an OSError within the context."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        path = error.filename or directory
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT:
                message = f"The disk is full: {directory} ({reason(error)})."
                hint = f"Free some space. {RESUMES}"
            case errno.EACCES | errno.EPERM | errno.EROFS:
                message = f"{path} cannot be written: {reason(error)}."
                hint = f"Change its permissions, or {OTHER_DIRECTORY}."
            case errno.ELOOP | errno.EMLINK | errno.EINVAL:
                message = f"{path} cannot be used: {reason(error)}."
                hint = "Delete it and run the command again."
            case _:
                message = f"{path} cannot be used: {reason(error)}."
                hint = f"Correct that, or {OTHER_DIRECTORY}."
        raise ModelError(message, hint) from error


def reason(error: OSError) -> str:
    """Return the error's text and code, such as `No space left on device, ENOSPC`."""
    name = errno.errorcode.get(error.errno or 0, "")
    return ", ".join(filter(None, (error.strerror or str(error), name)))


@contextmanager
def download_lock() -> Generator[None, None, None]:
    """Hold the download lock. Raises ModelError if another process holds it."""
    try:
        with FileLock(models_directory() / "fetch.lock", timeout=0):
            yield
    except Timeout:
        raise ModelError(
            "Another voxtui is downloading a model.", "Wait until it has finished."
        ) from None


def check_space(needed: int) -> None:
    free = shutil.disk_usage(models_directory()).free
    if free < needed:
        raise ModelError(
            f"Not enough space in {models_directory()}: "
            f"{needed / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free.",
            f"Free some space, or {OTHER_DIRECTORY}.",
        )
