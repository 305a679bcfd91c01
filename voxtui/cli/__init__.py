"""The command line: parse arguments, call the module that does the work, report failures.

The functions here import that module when they run, so that `voxtui --help` imports no library.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from voxtui import __version__
from voxtui.cli.measure_commands import bench, stats
from voxtui.cli.options import (
    FAILED_TURN,
    FILE_PATH,
    INTERRUPTED,
    UNUSABLE,
    CommonOptions,
    OrderedGroup,
    global_options,
    leave,
    quiet_option,
)
from voxtui.cli.setup_commands import devices, doctor, history, models, show_config, tools
from voxtui.cli.speech_commands import ask, dictate, mcp, say, serve, transcribe
from voxtui.errors import ConfigError, InputError, RestartNeeded, VoxtuiError, one_line

if TYPE_CHECKING:
    from pathlib import Path

    from voxtui.settings.schema import Config


class WithWords(OrderedGroup):
    """Takes a first argument with a space as the first words of the conversation."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not is_words(args[0]):
            return super().resolve_command(ctx, args)
        if len(args) > 1:
            raise click.UsageError("Put one question in quotes, after the options.")
        return args[0], click.Command(args[0]), []


def is_words(argument: str) -> bool:
    return " " in argument.strip()


@click.group(
    cls=WithWords,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(
    __version__, "-V", "--version", prog_name="voxtui", message="%(prog)s %(version)s"
)
@click.option("--plain", is_flag=True, help="Talk in lines, without the screen.")
@click.option("-f", "--file", "files", type=FILE_PATH, multiple=True, metavar="FILE",
              help="Talk about the text of FILE. Repeatable.")  # fmt: skip
@click.option("-c", "--continue", "continues", is_flag=True,
              help="Go on with the newest stored conversation.")  # fmt: skip
@quiet_option
@global_options
def cli(
    options: CommonOptions, plain: bool, files: tuple[Path, ...], continues: bool, quiet: bool
) -> None:
    """Talk to your computer from the terminal, and hear it answer.

    Without a command the screen opens; F1 lists its keys. Text from a pipe is attached to the
    conversation, and words in quotes are your first question: git diff | voxtui "what changed?".
    Nothing leaves this machine unless you name a server: one that answers (brain.remote.url), or
    one with tools ([[mcp.server]]).
    """
    command, words = click.get_current_context().invoked_subcommand, ""
    if command is not None and is_words(command):
        command, words = None, command
    if words and plain:
        raise click.UsageError('Without the screen: voxtui ask "a question in quotes"')
    for used, option in ((plain, "--plain"), (files, "--file"), (continues, "--continue")):
        if command is not None and used:
            raise click.UsageError(f"{option} is for talking, not for {command}.")
    if quiet and not plain:
        raise click.UsageError(
            "--quiet goes after the command (voxtui ask --quiet) or with --plain."
        )
    if plain:
        from voxtui.commands.plain import talk_in_lines
        from voxtui.terminal.text_input import read_attachment

        attachments = [read_attachment(file) for file in files]
        answered = talk_in_lines(options.load().config, quiet, attachments, continues)
        leave(0 if answered else FAILED_TURN)
    elif command is None:
        leave(open_screen(options.load().config, files, continues, words))


def open_screen(
    config: Config, files: tuple[Path, ...], continues: bool = False, words: str = ""
) -> int:
    """Open the screen with `files` and stdin attached. Return its exit code. Raises InputError."""
    if not all(stream.isatty() for stream in (sys.stdout, sys.stderr)):
        raise InputError(
            "The screen needs a terminal.", "Without one: voxtui --plain, or voxtui ask FILE"
        )
    from voxtui.terminal.capabilities import can_show_screen

    if not can_show_screen():
        term = os.environ.get("TERM", "")
        raise InputError(
            f"This terminal cannot show the screen (TERM={term}).", "Without it: voxtui --plain"
        )
    from voxtui.terminal.text_input import STDIN, read_attachment, take_keys_from_terminal

    piped = not sys.stdin.isatty()
    texts = dict.fromkeys((*files, *[STDIN] * piped))  # `-f -` names stdin, which is read once
    attachments = [read_attachment(file) for file in texts]
    if piped:
        take_keys_from_terminal()
    from voxtui.ui.driver import gc_tuning

    gc_tuning.pause()  # until the first frame: imports make no garbage
    from voxtui.ui.ui_command import run

    return run(config, attachments, continues, words)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion of voxtui for a SHELL: eval "$(voxtui completion bash)" """
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None
    click.echo(complete(cli, {}, "voxtui", "_VOXTUI_COMPLETE").source())


for command in (ask, transcribe, dictate, say, mcp, serve, history, bench, stats, devices, doctor,
                show_config, models, tools, completion):  # fmt: skip
    cli.add_command(command)


def main() -> NoReturn:
    """Run the command line. Every failure a person can meet is one sentence and an exit code."""
    open_closed_streams()
    from voxtui.terminal.native_stderr import lenient_writer

    stdout: Any = sys.stdout
    stdout.reconfigure(errors="replace")  # a terminal that cannot show every character
    sys.stderr = lenient_writer(2, sys.stderr.encoding, closefd=False)
    can_begin_again = stat.S_ISCHR(os.fstat(0).st_mode)  # what a pipe held is read by then
    try:
        code = cli.main(prog_name="voxtui", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        raise SystemExit(UNUSABLE) from None
    except (click.Abort, KeyboardInterrupt):
        leave(INTERRUPTED)
    except RestartNeeded as error:
        begin_again(error, can_begin_again)
    except VoxtuiError as error:
        label = "" if isinstance(error, ConfigError | InputError) else "voxtui: "
        refuse(f"{label}{error}")
    except OSError as error:
        if error.filename:
            refuse(f"voxtui: {one_line(os.fsdecode(error.filename))}: {error.strerror}.")
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        refuse(
            f"voxtui: The output was not written: {error.strerror}. Free some space and try again."
        )
    except MemoryError:
        refuse("voxtui: Out of memory. `voxtui doctor` shows how much is free.")
    except RuntimeError as error:
        if "can't start new thread" not in str(error):
            raise
        refuse(
            "voxtui: The system refused a new thread. A memory or process limit is too low. "
            "`ulimit -v` and `ulimit -u` show the limits."
        )
    raise SystemExit(code)  # of --help and --version: 0; of a command that returned: None


def begin_again(error: RestartNeeded, possible: bool) -> NoReturn:
    """Replace this process by the same command with the same arguments."""
    if not possible:
        refuse(f"voxtui: {error}")
    click.echo(f"voxtui: {error.message} Starting again without it.", err=True)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def refuse(sentence: str) -> NoReturn:
    """Print the error `sentence` and end without writing the rest of stdout."""
    click.echo(sentence, err=True)
    leave(UNUSABLE)


def open_closed_streams() -> None:
    """Open /dev/null in place of each standard stream that the caller closed.

    Otherwise the next file gets its number, and the output of a native library lands in that file.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = os.open(os.devnull, os.O_RDWR)  # the lowest free number: that of the stream
            setattr(sys, name, os.fdopen(stream, mode, encoding="utf-8", closefd=False))
