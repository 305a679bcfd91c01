"""CommonOptions and exit codes that commands share."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from voxtui.errors import InputError
from voxtui.storage.temporary_folders import remove_temporary_folders

if TYPE_CHECKING:
    from voxtui.settings.schema import Config
    from voxtui.settings.sources import LoadedConfig

FAILED_TURN, UNUSABLE, NOTHING_HEARD, INTERRUPTED = 1, 2, 3, 130


class FilePath(click.Path):
    """A path without click's own check: reading the file gives the better error message."""

    def __init__(self) -> None:
        super().__init__(readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":  # a Path of it would be the current folder
            if isinstance(param, click.Option):
                raise InputError(f"{param.opts[0]}: an empty path names no file.")
            raise InputError("An empty argument names no file and holds no question.")
        return super().convert(value, param, ctx)


FILE_PATH = FilePath()

LEAST_ADDRESS_SPACE = 1_300_000_000
"""Minimum address space in bytes. With less, a native library may abort or loop."""

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(slots=True)
class CommonOptions:
    """Global options, allowed before or after the command."""

    config: Path | None = None
    sets: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        sets = [argument for value in self.sets for argument in ("--set", value)]
        return [*(["--config", str(self.config)] if self.config else []), *sets]

    def load(self) -> LoadedConfig:
        check_memory_limit()
        from voxtui.settings.sources import load_config

        loaded = load_config(self.config, self.sets, os.environ)
        if loaded.notice:
            click.echo(loaded.notice, err=True)
        return loaded


def check_memory_limit() -> None:
    """Raise InputError if the process's memory limit is too low for its libraries."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= limit < LEAST_ADDRESS_SPACE:  # no limit is -1, or larger than any memory
        raise InputError(
            f"The memory limit of this shell is {limit / 1e6:,.0f} MB, which is too little.",
            "Lift it: ulimit -v unlimited",
        )


def with_options(config: Config, brain: str | None = None, **values: object) -> Config:
    """Return `config` with the values of options, by key with two underscores, except None."""
    from voxtui.settings.sources import with_value

    if brain:
        config = with_value(config, "brain.name", brain, "--brain")
    for name, value in values.items():
        section, _, option = name.partition("__")
        if value is not None:
            source = f"--{option.replace('_', '-')}"
            config = with_value(config, f"{section}.{option}", value, source)
    return config


def global_options(command: Command) -> Command:
    @click.option(
        "--config", "config_path", type=FILE_PATH, metavar="PATH",
        help="Use this config.toml.",
    )  # fmt: skip
    @click.option(
        "--set", "sets", multiple=True, metavar="KEY=VALUE",
        help="Set one value, such as voice.speed=1.2; `voxtui config` lists them. Repeatable.",
    )  # fmt: skip
    @click.pass_context
    @wraps(command)
    def with_options(
        context: click.Context, /, config_path: Path | None, sets: tuple[str, ...], **rest: Any
    ) -> Any:
        options = context.ensure_object(CommonOptions)
        options.config = config_path or options.config
        options.sets += sets
        try:
            return context.invoke(command, options, **rest)
        except BrokenPipeError:  # as of `voxtui config | head -1`: no error
            leave(0)

    return with_options  # type: ignore[return-value]


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")

quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Print no status on stderr, only errors."
)


class OrderedGroup(click.Group):
    """Lists its commands in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def leave(code: int) -> NoReturn:
    """Flush stdout and end at once, because a thread may be busy in native code for seconds."""
    remove_temporary_folders()
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(code)
