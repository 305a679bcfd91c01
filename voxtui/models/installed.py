"""Find model files on this machine: downloaded, in the hub client's cache, or the user's own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag

from voxtui.errors import ModelError, ModelMissing
from voxtui.models import store
from voxtui.models.catalogue import (
    CHAT_MODELS,
    GENERAL,
    KOKORO_MODEL,
    PACKAGED,
    SMALL_KOKORO,
    SMALL_KOKORO_MODEL,
    Model,
    chat_model,
    kokoro,
    kokoro_voice,
    voxtral,
)
from voxtui.models.checks import check_gguf, check_voxtral
from voxtui.models.hub import hub_home
from voxtui.settings.paths import user_path
from voxtui.settings.schema import AUTO, VoiceConfig


def chat_model_name(named: str) -> str:
    """Return the name or path that `brain.embedded.model` means; for AUTO the installed model."""
    if named != AUTO:
        return named
    return GENERAL if store.is_here(CHAT_MODELS[GENERAL]) else PACKAGED


@store.access_errors()
def model_file(named: str, stop: Flag = store.NEVER) -> Path:
    """Return the file that `brain.embedded.model` names. Raises ModelError.

    Hashes a file that has changed since its last check. Raises Stopped soon after `stop` is set.
    """
    name = chat_model_name(named)
    if name in CHAT_MODELS or ("/" not in name and not name.endswith(".gguf")):
        fetch = "voxtui models fetch" if named == AUTO else f"voxtui models fetch {name}"
        return _downloaded(chat_model(name), fetch, stop)
    path = user_path(name)
    check_gguf(path)
    return path


def _downloaded(model: Model, fetch: str, stop: Flag) -> Path:
    path, file = model.path, model.file
    assert file is not None
    problem = ""
    if not path.exists():
        problem = f"The chat model {model.name} is not on this machine yet."
    elif not store.has_size(path, file):
        problem = f"{path} is damaged: {path.stat().st_size} bytes instead of {file.size}."
    elif not store.is_released(path, file, stop):
        problem = f"Checksum mismatch for {path}."
    if problem:
        missing = file.size - store.partial_size(path, file)
        raise ModelMissing(problem, f"Run `{fetch}`.", missing)
    return path


@store.access_errors()
def check_content(path: Path) -> None:
    """Hash the file of a known chat model. Raise ModelError if it differs from the released one."""
    model = next((model for model in CHAT_MODELS.values() if model.path == path), None)
    if model and model.file and not store.has_digest(path, model.file.digest):
        raise ModelError(
            f"Checksum mismatch for {path}.",
            f"Delete it, then run `voxtui models fetch {model.name}`.",
        )


@store.access_errors()
def voxtral_directory(model: str, rehash: bool = False) -> Path:
    """Return the directory with all files of `brain.voxtral.model`. Raises ModelError.

    Rejects a file that changed since its check; with `rehash`, only if its hash differs (slow).
    """
    named = voxtral(model)
    if isinstance(named, Path):
        check_voxtral(named, "Set brain.voxtral.model to a model's directory or hub name.")
        return named
    for directory in (named.path, _hub_cache(named)):
        if directory.is_dir():
            files = check_voxtral(directory, f"Run `voxtui models fetch {named.name}`.")
            _check_unchanged(files, named, rehash)
            return directory
    raise missing(named)


@store.access_errors()
def released_path(model: Model, stop: Flag = store.NEVER) -> Path:
    """Return the path of a model with known hashes. Raises ModelError; else like `model_file`."""
    for file in model.files:
        path = model.directory / file.path
        problem = ""
        if not path.exists():
            problem = f"{model.name} is not on this machine yet."
        elif not store.has_size(path, file) or not store.is_released(path, file, stop):
            problem = f"{path} is damaged: it is not the released file."
        if problem:
            hint = f"Run `voxtui models fetch {model.name}` ({model.size / 1e6:.0f} MB)."
            raise ModelError(problem, hint)
    return model.path


@dataclass(frozen=True, slots=True)
class KokoroFiles:
    model: Path
    config: Path | None
    """the configuration; None for the small model, which has none"""
    voice: Path

    @property
    def is_small(self) -> bool:
        """True for the 8-bit weights for onnxruntime."""
        return self.model.suffix == ".onnx"


@store.access_errors()
def kokoro_files(
    config: VoiceConfig, rehash: bool = False, language: str = "en", small: bool = True
) -> KokoroFiles:
    """Return the files that `voice.kokoro` names, and downloaded ones for the rest.

    Without Kokoro, returns those of the small model, if `small`. The voice is for `language`, a key
    of KOKORO_VOICES. Raises ModelError if a file is missing or changed; `rehash` as for
    `voxtral_directory`.
    """
    model, name = kokoro(config), kokoro_voice(config, language)
    if small and not config.kokoro.model and not _directory_with(model, KOKORO_MODEL):
        with suppress(ModelError):
            return _small_kokoro_files(name)

    def find(named: str, file: str) -> Path:
        if named:
            path = user_path(named)
            if not path.is_file():
                raise ModelError(
                    f"There is no file {path}.", "Set voice.kokoro to the path of that file."
                )
            return path
        if directory := _directory_with(model, file):
            _check_unchanged([directory / file], model, rehash)
            return directory / file
        raise missing(model, file, "" if language == "en" else f" --language {language}")

    named = config.kokoro
    named_voice = named.voice if name == config.name else ""
    return KokoroFiles(
        find(named.model, KOKORO_MODEL),
        find(named.config, "config.json"),
        find(named_voice, f"voices/{name}.pt"),
    )


def _directory_with(model: Model, file: str) -> Path | None:
    directories = (model.path, _hub_cache(model))
    return next((path for path in directories if (path / file).is_file()), None)


def _small_kokoro_files(voice: str) -> KokoroFiles:
    """Return the small model with `voice`. Raises ModelError if it lacks either."""
    folder = released_path(SMALL_KOKORO)
    path = folder / "voices" / f"{voice}.bin"
    if not path.is_file():
        raise ModelError(f"{SMALL_KOKORO.name} has no voice {voice}.")
    return KokoroFiles(folder / SMALL_KOKORO_MODEL, None, path)


def missing(model: Model, file: str = "", option: str = "") -> ModelError:
    """Return the error for a missing `model`, or its `file`; `option` is an option of its fetch."""
    subject = f"{file} of {model.repository}" if file else model.repository
    hint = f"Run `voxtui models fetch {model.name}{option}` ({model.size / 1e9:g} GB)."
    return ModelError(f"{subject} is not on this machine yet.", hint)


def _check_unchanged(files: Iterable[Path], model: Model, rehash: bool) -> None:
    hint = f"Run `voxtui models fetch {model.name}`."
    for file in files:
        if rehash and not store.is_unchanged(file):
            raise ModelError(f"Checksum mismatch for {file}.", hint)
        if not rehash and store.has_changed(file):
            raise ModelError(f"{file} changed after its checksum was checked.", hint)


def _hub_cache(model: Model) -> Path:
    """Return the directory of the newest commit that the hub's own client downloaded."""
    cache = os.environ.get("HF_HUB_CACHE")
    folder = user_path(cache) if cache else hub_home() / "hub"
    folder /= f"models--{model.repository.replace('/', '--')}"
    try:
        return folder / "snapshots" / (folder / "refs" / "main").read_text().strip()
    except (OSError, ValueError):
        return folder / "snapshots" / "none"
