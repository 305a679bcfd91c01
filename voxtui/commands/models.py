"""`voxtui models`: which are here, and fetching them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from voxtui.errors import InputError, ModelError
from voxtui.models import store as models
from voxtui.models.repositories import (
    Repository,
    fetch_files,
    kokoro,
    kokoro_files,
    voxtral,
    voxtral_directory,
    wanted_files,
)
from voxtui.models.store import MODELS, ChatModel, Source, is_here, model_file, place
from voxtui.settings.paths import user_path
from voxtui.settings.schema import Config


def show_models(config: Config) -> None:
    """Print every model, and which is needed."""
    needed = config.brain.embedded.model
    for model in MODELS.values():
        here = f"here: {place(model)}" if is_here(model) else "not here"
        show(model, model.size / 1e9, f"needed, {here}" if model.name == needed else here)
    if needed not in MODELS:
        click.echo(f"{needed}: needed, a file of your own")
    brain = voxtral(config.brain.voxtral.model)
    if isinstance(brain, Repository):
        show_repository(brain, lambda: voxtral_directory(brain.upstream))
    else:
        click.echo(f"{brain}: for voxtral, a directory of your own")
    show_repository(kokoro(config.voice), lambda: kokoro_files(config.voice).model.parent)


def show_repository(model: Repository, find: Callable[[], Path]) -> None:
    try:
        here = f"here: {find()}"
    except ModelError:
        here = "not here"
    show(model, model.gigabytes, here)


def show(model: ChatModel | Repository, gigabytes: float, here: str) -> None:
    click.echo(f"{model.name:<20} {gigabytes:5.2f} GB  {model.licence:<12} {here}")
    click.echo(f"{'':<20} {model.note}; {model.upstream}")


def fetch(config: Config, name: str | None, source: Source, file: Path | None) -> None:
    """Fetch the model `name`, or the chat model of `config`. Raises ModelError and InputError."""
    match name:
        case "voxtral" | "kokoro" if file or source == "packages":
            raise InputError(
                f"{name} comes from the hub only.", "Files of your own are named in the config."
            )
        case "voxtral":
            fetch_voxtral(config)
        case "kokoro":
            fetch_repository(kokoro(config.voice), lambda: kokoro_files(config.voice).model.parent)
        case _:
            fetch_chat_model(name or config.brain.embedded.model, file or source)


def fetch_chat_model(name: str, source: Source | Path) -> None:
    if name not in MODELS:
        click.echo(f"{model_file(name)} is your own file; nothing to fetch.", err=True)
        return
    if isinstance(source, Path) and not user_path(source).is_file():
        raise InputError(f"{source}: there is no such file.")
    model = MODELS[name]
    if is_here(model):
        click.echo(f"{name} is here already: {place(model)}", err=True)
        return
    with fetching(name, model.size, place(model)) as progress:
        models.fetch(name, source=source, progress=progress)


def fetch_voxtral(config: Config) -> None:
    model = config.brain.voxtral.model
    repository = voxtral(model)
    if isinstance(repository, Repository):
        fetch_repository(repository, lambda: voxtral_directory(model))
    else:
        click.echo(f"{voxtral_directory(model)} is your own; nothing to fetch.", err=True)


def fetch_repository(repository: Repository, find: Callable[[], Path]) -> None:
    with suppress(ModelError):
        click.echo(f"{repository.name} is here already: {find()}", err=True)
        return
    files = wanted_files(repository)
    size = sum(file.size for file in files)
    with fetching(repository.name, size, repository.place) as progress:
        fetch_files(files, repository.place, progress)
    find()


@contextmanager
def fetching(
    name: str, size: int, place: Path
) -> Generator[Callable[[int, int], None], None, None]:
    """Say what is fetched, and show how much of it is done."""
    click.echo(f"Fetching {name}: {size / 1e9:.2f} GB to {place}", err=True)
    hidden = not sys.stderr.isatty()
    with click.progressbar(length=size, file=sys.stderr, show_pos=False, hidden=hidden) as bar:
        done = 0

        def progress(now: int, size: int) -> None:
            nonlocal done
            bar.update(now - done)
            done = now

        yield progress
