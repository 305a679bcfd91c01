"""The downloadable models and the places of their files: see catalogue.toml."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from voxtui.errors import ModelError
from voxtui.settings.paths import user_folders, user_path
from voxtui.settings.schema import VoiceConfig

Source: TypeAlias = Literal["auto", "hub", "packages"]

SAFETENSORS_INDEX = "model.safetensors.index.json"
KOKORO = "hexgrad/Kokoro-82M"
KOKORO_MODEL = "kokoro-v1_0.pth"

KOKORO_VOICES = {
    "en": "af_heart", "es": "ef_dora", "fr": "ff_siwis", "hi": "hf_alpha", "it": "if_sara",
    "pt": "pf_dora",
}  # fmt: skip
"""Kokoro's default voice per language, unless `voice.name` is of that language. The first letter of
a voice is its language: a and b are English."""


def models_directory() -> Path:
    """Return the directory of downloaded models, which need not exist yet."""
    return user_folders().user_cache_path / "models"


@dataclass(frozen=True, slots=True)
class PackagePart:
    """A package that contains a section of a model's file."""

    requirement: str
    """the package and version: name==version of Python, name@version of npm"""
    path: str
    """the path within the installed package"""

    @property
    def is_of_npm(self) -> bool:
        return "@" in self.requirement


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a hub repository, at one commit."""

    repository: str
    """the owner/name on the hub; empty if no hub has the file"""
    path: str
    """the path within the repository"""
    size: int
    """the size in bytes"""
    digest: str
    """the hash: `sha256:HEX`, or `git:HEX` (git's SHA-1) if the hub publishes no SHA-256"""
    commit: str = "main"
    parts: tuple[PackagePart, ...] = ()
    """the packages that together contain the file, in file order"""
    part_size: int = 0
    """the bytes of every part but the last"""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Model:
    """A model that `voxtui models fetch NAME` downloads."""

    name: str
    repository: str
    """the owner/name on the hub"""
    size: int
    """the size in bytes; rounded if the hub lists the files"""
    licence: str
    note: str
    """a few words on its use"""
    files: tuple[ModelFile, ...] = ()
    """the files with hashes; empty if the hub lists the files that match the patterns"""
    needed: tuple[str, ...] = ()
    """shell patterns that each must match a file of the repository"""
    optional: tuple[str, ...] = ()
    """shell patterns of files that are downloaded if they exist"""
    opening: str = ""
    """the text of the prompt before each reply of a chat model"""

    @property
    def title(self) -> str:
        """The makers' name of the model, such as `Qwen2.5-Coder 1.5B`."""
        name = self.repository.rpartition("/")[2].removesuffix("-GGUF").removesuffix("-Instruct")
        return " ".join(name.rsplit("-", 1))

    @property
    def file(self) -> ModelFile | None:
        """The file of a single-file model, or None."""
        return self.files[0] if len(self.files) == 1 else None

    @property
    def sources(self) -> tuple[Source, ...]:
        hub: tuple[Source, ...] = ("hub",) if all(file.repository for file in self.files) else ()
        packaged = bool(self.files) and all(file.parts for file in self.files)
        return ("auto", *hub, *(("packages",) if packaged else ()))

    @property
    def directory(self) -> Path:
        if self.file:
            return models_directory()
        owner, _, name = self.repository.partition("/")
        # Anybody may publish a Voxtral of the same name, with other weights.
        foreign = self.name == "voxtral" and owner != "mistralai"
        return models_directory() / (self.repository if foreign else name)

    @property
    def path(self) -> Path:
        """The path of its file, or of the directory of several files. May not exist."""
        return self.directory / self.file.path if self.file else self.directory


GENERAL, PACKAGED = "qwen2.5-1.5b", "qwen2.5-coder-1.5b"
"""The chat models for AUTO: the first if it is installed, else the second. Both use the same
template, so a prompt can be made before it is known which one is installed."""


def _file(repository: str, row: dict[str, Any]) -> ModelFile:
    numbers = range(1, row.get("parts", 1) + 1) if "package" in row else ()
    return ModelFile(
        row.get("repository", repository),
        row["path"],
        row["size"],
        f"sha256:{row['sha256']}",
        parts=tuple(PackagePart(*(t.format(n=n) for t in row["package"])) for n in numbers),
        part_size=row.get("part_size", row["size"] if numbers else 0),
    )


def _models(kind: str) -> dict[str, Model]:
    models: dict[str, Model] = {}
    for row in _TABLES[kind]:
        files = tuple(_file(row["repository"], file) for file in row["files"])
        size = sum(file.size for file in files)
        models[row["name"]] = Model(**row | {"size": size, "files": files})
    return models


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

CHAT_MODELS = _models("chat")

HIBARI = "af_heart"
"""The voice that the package of the embedded voice contains."""

HIBARI_VOICES = _models("voice")
"""The other voices of the embedded voice, by their names in Kokoro."""

SPEECH_MODELS = _models("speech") | HIBARI_VOICES
"""Recognisers and voices that have hashes in the catalogue."""

WHISPER, SMALL_KOKORO = SPEECH_MODELS["whisper-base"], SPEECH_MODELS["kokoro-small"]

SMALL_KOKORO_MODEL = SMALL_KOKORO.files[-1].path


def chat_model(name: str) -> Model:
    if name not in CHAT_MODELS:
        raise ModelError(
            f"There is no chat model named {name}.",
            f"Known: {', '.join(CHAT_MODELS)}, or the path of a .gguf file (brain.embedded.model); "
            "`voxtui models list` shows the other models too.",
        )
    return CHAT_MODELS[name]


def voxtral(model: str) -> Model | Path:
    """Return the hub model or the local directory that `brain.voxtral.model` names."""
    # Rejects a name such as `a/..`, because its directory would be outside of the store.
    if os.path.isdir(model) or not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", model, re.ASCII):
        return user_path(model)
    return Model(
        name="voxtral",
        repository=model,
        # 4.68 billion parameters of two bytes each, and the tokeniser.
        size=9_400_000_000,
        licence="Apache-2.0",
        note="hears your voice itself; for a GPU",
        # `consolidated.safetensors` holds the same weights a second time.
        needed=("config.json", "tekken.json", "model*.safetensors"),
        optional=("generation_config.json", "*processor_config.json", SAFETENSORS_INDEX),
    )


def kokoro_voice(config: VoiceConfig, language: str) -> str:
    default = KOKORO_VOICES[language]
    of_language = config.name[0] in ("ab" if language == "en" else default[0])
    return config.name if of_language else default


def kokoro(config: VoiceConfig, language: str = "en") -> Model:
    voices = dict.fromkeys(kokoro_voice(config, code) for code in ("en", language))
    return Model(
        name="kokoro",
        repository=KOKORO,
        size=330_000_000,
        licence="Apache-2.0",
        note="the voice beside voxtral; for a GPU",
        needed=("config.json", KOKORO_MODEL, *(f"voices/{voice}.pt" for voice in voices)),
    )
