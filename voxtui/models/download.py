"""Download a model: from the hub, from Python packages, or from a file on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO, TypeAlias

from voxtui.errors import ModelError
from voxtui.models import hub, store
from voxtui.models.catalogue import (
    CHAT_MODELS,
    GENERAL,
    PACKAGED,
    Model,
    ModelFile,
    Source,
    models_directory,
)
from voxtui.models.checks import check_gguf
from voxtui.models.installed import model_file
from voxtui.models.packages import Packages, unpacked_packages
from voxtui.settings.paths import user_path
from voxtui.settings.schema import AUTO

ByteProgress: TypeAlias = Callable[[int, int], object]
"""Receives the bytes on this machine, and the bytes of the whole model."""


def download(
    model: Model, source: Source | Path = "auto", progress: ByteProgress = lambda done, size: None
) -> Path:
    """Download the missing files of `model` and return `model.path`. Raises ModelError.

    `auto` uses the hub if it answers, and otherwise the packages. A path is a copy of the released
    file on this machine. An interrupted download is resumed. `progress` may raise to abort.
    """
    with store.storage_errors(models_directory()):
        files = files_to_download(model)
        size = sum(file.size for file in files)
        with store.download_lock(), unpacked_packages() as packages:
            paths = {file: model.directory / file.path for file in files}
            todo = [
                f
                for f, path in paths.items()
                if not (store.has_size(path, f) and store.is_released(path, f))
            ]
            missing = sum(file.size - store.partial_size(paths[file], file) for file in todo)
            # A package needs room for its archive and for its content.
            store.check_space(missing + 2 * max((file.part_size for file in todo), default=0))
            done = size - sum(file.size for file in todo)
            progress(done, size)

            def report(here: int) -> None:
                progress(done + here, size)

            for file in todo:
                _download_file(model, file, source, packages, report)
                done += file.size
                progress(done, size)
    return model.path


def download_default(
    source: Source | Path,
    attempt: Callable[[Model, Source | Path], object],
    tell: Callable[[str], object],
) -> None:
    """Download the chat model for AUTO, unless one is installed.

    It is GENERAL if the hub delivers it, else PACKAGED. `attempt` downloads a model; `tell`
    receives a sentence that says which one, and why. Raises ModelError.
    """
    try:
        model_file(AUTO)
        return
    except ModelError:
        pass  # missing, or damaged
    general, packaged = CHAT_MODELS[GENERAL], CHAT_MODELS[PACKAGED]
    assert general.file is not None
    if isinstance(source, Path):
        attempt(general if store.has_size(user_path(source), general.file) else packaged, source)
        return
    if source != "packages":
        try:
            hub.check(general.file)
            tell(
                f"The hub answers, so voxtui fetches {GENERAL}, the general sibling of {PACKAGED}."
            )
            attempt(general, "hub")
            return
        except (hub.HubError, store.ChecksumMismatch) as error:
            if source == "hub":
                raise
            later = f" `voxtui models fetch {GENERAL}` tries the hub again."
            tell(f"{error.message} So voxtui fetches {PACKAGED} from Python packages.{later}")
        general.path.unlink(missing_ok=True)  # it is damaged, and would go before the other
    attempt(packaged, "packages")


def files_to_download(model: Model) -> Sequence[ModelFile]:
    """Return the files to download, small files first. May ask the hub. Raises ModelError."""
    if model.files:
        return model.files
    listed = hub.listing(model.repository)
    for pattern in model.needed:
        if not any(fnmatch(file.path, pattern) for file in listed):
            raise ModelError(f"{model.repository} on the hub has no {pattern}.")
    patterns = (*model.needed, *model.optional)
    wanted = [file for file in listed if any(fnmatch(file.path, p) for p in patterns)]
    return sorted(wanted, key=lambda file: file.size)


def _download_file(
    model: Model, file: ModelFile, source: Source | Path, packages: Packages, report: store.Report
) -> None:
    path = model.directory / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(source, Path):
        _copy(model, file, user_path(source), path, report)
    else:
        with store.open_partial(path) as partial:
            _fill(partial, file, source, packages, report)
    store.place(path, file, lambda: report(file.size))


def _copy(model: Model, file: ModelFile, original: Path, path: Path, report: store.Report) -> None:
    """Copy `original`. Through a hard link its owner could change the model after the check."""
    check_gguf(original)
    algorithm = file.digest.partition(":")[0]
    if (
        not store.has_size(original, file)
        or store.hash_file(original, algorithm, lambda: report(0)).digest != file.digest
    ):
        raise ModelError(
            f"{original} is not the released file of {model.name}.",
            "To use it anyway, set brain.embedded.model to its path.",
        )
    with store.open_content(original) as content, store.open_partial(path) as partial:
        partial.truncate(0)
        partial.seek(0)
        while block := content.read(store.BLOCK):
            partial.write(block)
            report(partial.tell())


def _fill(
    partial: BinaryIO, file: ModelFile, source: Source, packages: Packages, report: store.Report
) -> None:
    if source != "packages" and file.repository:
        try:
            if source == "auto" and file.parts:
                hub.check(file)
            hub.append(partial, file, report)
        except hub.HubError as error:
            if not file.parts:
                raise
            if source == "hub":
                hint = f"{error.hint} Or try `voxtui models fetch --source packages`."
                raise hub.HubError(error.message, hint.strip()) from error
    if partial.tell() < file.size:
        packages.append_parts(file, partial, report)
