"""The models that are several files of a hub repository: which, where they are kept, how they come.

A fetch grows each file as `FILE.partial` beside its place, so that the next fetch goes on where it
was interrupted; only what has the hash that the hub says takes its place.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from voxtui.errors import ModelError
from voxtui.models.hub import HubFile, grow, hub_home, listing
from voxtui.models.store import (
    ByteProgress,
    access_errors,
    check_room,
    models_directory,
    only_fetch,
    storage_errors,
)
from voxtui.settings.paths import user_path
from voxtui.settings.schema import VoiceConfig

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
LONGEST_HEADER = 100 << 20
"""bytes; what claims a longer header is no safetensors file"""


@dataclass(frozen=True, slots=True)
class Repository:
    """A model of several files, fetched by `voxtui models fetch NAME`."""

    name: str
    upstream: str
    """on the hub: owner/name"""
    needed: tuple[str, ...]
    """its files that must be there, as shell patterns"""
    useful: tuple[str, ...]
    """its files that are fetched too, if there are any"""
    gigabytes: float
    licence: str
    note: str
    """what it is good for, in a few words"""

    @property
    def place(self) -> Path:
        """Where a fetch puts it."""
        return models_directory() / self.upstream.rpartition("/")[2]

    def unfetched(self, file: str = "") -> ModelError:
        """What to say while it, or `file` of it, is not here."""
        what = f"{file} of {self.upstream}" if file else self.upstream
        hint = f"Run `voxtui models fetch {self.name}` ({self.gigabytes:g} GB)."
        return ModelError(f"{what} is not on this machine yet.", hint)


def voxtral(model: str) -> Repository | Path:
    """What `brain.voxtral.model` names: a repository, or a directory of the user's own."""
    if os.path.isdir(model) or not re.fullmatch(r"\w[\w.-]*/[\w.-]+", model):
        return user_path(model)
    return Repository(
        name="voxtral",
        upstream=model,
        # `consolidated.safetensors` holds the same weights once more.
        needed=("config.json", "tekken.json", "model*.safetensors"),
        useful=("generation_config.json", "*processor_config.json", INDEX),
        # 4.68 billion parameters of two bytes each, and the tokeniser.
        gigabytes=9.4,
        licence="Apache-2.0",
        note="hears your voice itself; for a GPU",
    )


@access_errors()
def voxtral_directory(model: str) -> Path:
    """The directory with all files of `brain.voxtral.model`. Raises ModelError."""
    named = voxtral(model)
    if isinstance(named, Path):
        _check_voxtral(named, "Set brain.voxtral.model to a model's directory or hub name.")
        return named
    for directory in (named.place, _in_hub_cache(named)):
        if directory.is_dir():
            _check_voxtral(directory, f"Run `voxtui models fetch {named.name}`.")
            return directory
    raise named.unfetched()


@dataclass(frozen=True, slots=True)
class KokoroFiles:
    model: Path
    config: Path
    voice: Path


KOKORO = "hexgrad/Kokoro-82M"
KOKORO_MODEL = "kokoro-v1_0.pth"


def kokoro(config: VoiceConfig) -> Repository:
    """Kokoro with the voice of the configuration."""
    return Repository(
        name="kokoro",
        upstream=KOKORO,
        needed=("config.json", KOKORO_MODEL, f"voices/{config.name}.pt"),
        useful=(),
        gigabytes=0.33,
        licence="Apache-2.0",
        note="the voice beside voxtral; for a GPU",
    )


@access_errors()
def kokoro_files(config: VoiceConfig) -> KokoroFiles:
    """The files `voice.kokoro` names, and for the others those that were fetched.

    Raises ModelError if one is not there.
    """
    repository = kokoro(config)

    def find(named: str, file: str) -> Path:
        if named:
            path = user_path(named)
            if not path.is_file():
                raise ModelError(f"There is no file {path}.", "Set voice.kokoro to where it is.")
            return path
        for directory in (repository.place, _in_hub_cache(repository)):
            if (directory / file).is_file():
                return directory / file
        raise repository.unfetched(file)

    given = config.kokoro
    return KokoroFiles(
        model=find(given.model, KOKORO_MODEL),
        config=find(given.config, "config.json"),
        voice=find(given.voice, f"voices/{config.name}.pt"),
    )


def wanted_files(repository: Repository) -> list[HubFile]:
    """What we want of what the hub has now, small files first. Raises ModelError."""
    there = listing(repository.upstream)
    for pattern in repository.needed:
        if not any(fnmatch(file.path, pattern) for file in there):
            raise ModelError(f"{repository.upstream} on the hub has no {pattern}.")
    patterns = (*repository.needed, *repository.useful)
    wanted = [file for file in there if any(fnmatch(file.path, p) for p in patterns)]
    return sorted(wanted, key=lambda file: file.size)


def bring(repository: Repository, progress: ByteProgress) -> None:
    """Fetch `repository` to its place. Raises ModelError; the next time goes on."""
    fetch_files(wanted_files(repository), repository.place, progress)


def fetch_files(files: Sequence[HubFile], place: Path, progress: ByteProgress) -> None:
    """Bring `files` to the directory `place`. Raises ModelError; the next fetch goes on."""
    total = sum(file.size for file in files)
    with storage_errors(models_directory()), only_fetch():
        paths = [place / file.path for file in files]
        check_room(total - sum(map(_size, (*paths, *map(_partial, paths)))))
        before = 0
        for file, path in zip(files, paths, strict=True):

            def report(done: int, before: int = before) -> None:
                progress(before + done, total)

            if _size(path) != file.size:
                _fetch_file(file, path, report)
            before += file.size
            progress(before, total)


def _fetch_file(file: HubFile, path: Path, report: Callable[[int], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = _partial(path)
    with partial.open("ab") as growing:
        grow(growing, file, report)
    if not _is_released(partial, file):
        partial.unlink()
        raise ModelError(
            f"{file.name} came damaged: its hash is not the one the hub says.",
            "It was deleted. Try again.",
        )
    partial.replace(path)


def _is_released(path: Path, file: HubFile) -> bool:
    if _size(path) != file.size:
        return False
    begun = hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)  # as git hashes a file
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256" if file.sha256 else lambda: begun)
    return digest.hexdigest() == (file.sha256 or file.blob)


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _in_hub_cache(repository: Repository) -> Path:
    """Where the hub's own client keeps the latest commit it fetched."""
    cache = os.environ.get("HF_HUB_CACHE")
    folder = user_path(cache) if cache else hub_home() / "hub"
    folder /= f"models--{repository.upstream.replace('/', '--')}"
    try:
        return folder / "snapshots" / (folder / "refs" / "main").read_text().strip()
    except (OSError, ValueError):
        return folder / "snapshots" / "none"


def _check_voxtral(directory: Path, hint: str) -> None:
    """Raises ModelError if there is a file missing or cut short."""
    if not directory.is_dir():
        raise ModelError(f"There is no directory {directory}.", hint)
    weights = [WHOLE]
    if (directory / INDEX).is_file() and not (directory / WHOLE).is_file():
        weights = _shards(directory / INDEX, hint)
    for name in ("config.json", "tekken.json", *weights):
        if not (directory / name).is_file():
            raise ModelError(f"{directory} is incomplete: {name} is missing.", hint)
    for name in weights:
        if not _is_whole(directory / name):
            raise ModelError(f"{directory / name} is damaged or cut short.", hint)


def _shards(index: Path, hint: str) -> list[str]:
    try:
        files: dict[str, str] = json.loads(index.read_bytes())["weight_map"]
        return sorted({str(file) for file in files.values()})
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} is damaged.", hint) from error


def _is_whole(path: Path) -> bool:
    """Whether the file is as long as its header says: 8 bytes of length, the header, the data."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > LONGEST_HEADER:
                return False
            header: dict[str, Any] = json.loads(file.read(length))
        ends = [
            entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"
        ]
        return path.stat().st_size == 8 + length + max(ends, default=0)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False
