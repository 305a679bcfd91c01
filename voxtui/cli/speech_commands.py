"""Commands that answer, write down and speak: ask, transcribe, dictate, say, mcp, serve."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from voxtui.cli.options import (
    FAILED_TURN,
    FILE_PATH,
    NOTHING_HEARD,
    UNUSABLE,
    CommonOptions,
    global_options,
    leave,
    quiet_option,
    with_options,
)

if TYPE_CHECKING:
    from voxtui.commands.dictation.dictation_daemon import Order
    from voxtui.commands.dictation.dictation_output import Target


@click.command()
@click.argument("files", nargs=-1, type=FILE_PATH)
@click.option(
    "--text", metavar="TEXT", help="Answer TEXT instead of files; with -, about the text of stdin."
)
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
    options: CommonOptions, files: tuple[Path, ...], text: str | None, as_json: bool,
    wav: Path | None, play: bool, fast: bool, together: bool, quiet: bool,
) -> None:  # fmt: skip
    """Answer sound FILES, each as a conversation of its own, or "a question in quotes".

    The text of a pipe is attached to such a question: git log -5 | voxtui ask "what changed?". With
    a single - the question is read from stdin.

    The answers go to stdout. The exit code is 1 if a turn failed, 2 if a tool did or nothing could
    be done, and 3 if nothing was heard in a file.
    """
    if not files and text is None:
        raise click.UsageError("Missing argument 'FILES...', - or --text.")
    config = options.load().config
    from voxtui.commands.ask import AskOptions, questions, run, words_and_text
    from voxtui.dialogue.timestamps import Outcome
    from voxtui.dialogue.tool_interface import CallOutcome

    clips, text, attachment = words_and_text(files, text)
    chosen = AskOptions(as_json, wav, play, not fast, together, quiet, attachment)
    turns = run(config, questions(clips, text, config), clips, chosen)
    outcomes = {turn.outcome for turn in turns}
    if Outcome.FAILED in outcomes:
        raise SystemExit(FAILED_TURN)
    if any(report.outcome is not CallOutcome.DONE for turn in turns for report in turn.calls):
        raise SystemExit(UNUSABLE)
    raise SystemExit(NOTHING_HEARD if Outcome.NO_SPEECH in outcomes else 0)


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE_PATH)
@click.option("--format", "form", type=click.Choice(["text", "json", "srt", "vtt"]),
              default="text", show_default=True, help="Output format.")  # fmt: skip
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@click.option("--language", metavar="CODE", help="The spoken language (brain.language).")
@quiet_option
@global_options
def transcribe(
    options: CommonOptions, files: tuple[Path, ...], form: str, language: str | None, quiet: bool
) -> None:
    """Write down what is said in sound FILES; - is the sound on stdin.

    The exit code is 3 if nothing was heard in one of them.
    """
    config = with_options(options.load().config, brain__language=language)
    from voxtui.commands.transcribe import run

    raise SystemExit(0 if run(config, files, form, quiet) else NOTHING_HEARD)


@click.command()
@click.option("--to", "target", type=click.Choice(["stdout", "clipboard", "tmux", "type"]),
              default="stdout", show_default=True, help="Where the text goes.")  # fmt: skip
@click.option("--pane", metavar="PANE",
              help="The pane of --to tmux, such as {right} (default: the active one).")  # fmt: skip
@click.option("--start", "order", flag_value="start",
              help="Begin a recording in the background, for a key of your desktop.")  # fmt: skip
@click.option("--stop", "order", flag_value="stop", help="End the recording and deliver the text.")
@click.option(
    "--toggle",
    "order",
    flag_value="toggle",
    help="Begin a recording, or end it and deliver the text.",
)
@click.option("--hook", metavar="CMD",
              help="Replace the text by the output of CMD, which gets it on stdin.")  # fmt: skip
@click.option("--replacements", metavar="FILE",
              help='Replace words by a TOML file of "as heard" = "as written".')  # fmt: skip
@quiet_option
@click.option("--resident", is_flag=True, hidden=True)
@global_options
def dictate(
    options: CommonOptions, target: Target, pane: str | None, order: Order | None, hook: str | None,
    replacements: str | None, quiet: bool, resident: bool,
) -> None:  # fmt: skip
    """Speak, and get the text: git commit -m "$(voxtui dictate)"

    Space, Enter or silence ends the recording; Esc discards it. The exit code is 3 if nothing was
    heard.
    """
    config = options.load().config
    from voxtui.commands.dictation.dictate_command import DictateOptions, run, run_order
    from voxtui.commands.dictation.dictation_daemon import serve

    if resident:
        serve(config)
        return
    config = with_options(config, dictate__hook=hook, dictate__replacements=replacements)
    wanted = DictateOptions(target, pane, quiet)
    heard = run_order(order, config, wanted, options.arguments) if order else run(config, wanted)
    raise SystemExit(0 if heard else NOTHING_HEARD)


@click.command()
@click.argument("words", nargs=-1, metavar="[FILE | WORDS...]")
@click.option("--text", metavar="TEXT", help="Say TEXT, whatever it looks like.")
@click.option("--clipboard", is_flag=True, help="Say the text on the clipboard.")
@click.option("-o", "--output", "wav", type=FILE_PATH, metavar="FILE.wav",
              help="Write the speech to a file instead.")  # fmt: skip
@global_options
def say(
    options: CommonOptions, words: tuple[str, ...], text: str | None, clipboard: bool,
    wav: Path | None,
) -> None:  # fmt: skip
    """Read FILE, WORDS or the text on stdin aloud: man ls | voxtui say"""
    config = options.load().config
    from voxtui.commands.say import run, source

    spoken = run(config, source(words, text, clipboard, wav), wav)
    raise SystemExit(0 if spoken else FAILED_TURN)


@click.command()
@global_options
def mcp(options: CommonOptions) -> None:
    """Let a coding assistant hear and speak: claude mcp add voxtui -- voxtui mcp

    A server of the Model Context Protocol on stdin and stdout. The microphone is open only while
    the assistant asks for your words, after a cue, and for at most 60 seconds.
    """
    config = options.load().config
    from voxtui.commands.dictation.dictation_daemon import resident_command
    from voxtui.commands.mcp.mcp_command import run

    run(config, resident_command(options.arguments))
    leave(0)


@click.command()
@click.option("--brain", metavar="NAME", help="Recognise with this brain instead of brain.name.")
@click.option("--host", "serve__host", metavar="ADDRESS",
              help="Listen on this address instead of serve.host.")  # fmt: skip
@click.option("--port", "serve__port", type=int, metavar="N",
              help="Listen on this port instead of serve.port.")  # fmt: skip
@click.option("--sessions", "serve__sessions", type=int, metavar="N",
              help="Serve N at once instead of serve.sessions.")  # fmt: skip
@click.option("--uds", "serve__uds", metavar="PATH", help="Listen on a Unix socket instead.")
@click.option("--tls-cert", "serve__tls_cert", metavar="PEM",
              help="Serve https with this certificate.")  # fmt: skip
@click.option("--tls-key", "serve__tls_key", metavar="PEM",
              help="The private key of --tls-cert.")  # fmt: skip
@global_options
def serve(options: CommonOptions, brain: str | None, **keys: object) -> None:
    """Transcribe and speak for other programs, as a server with OpenAI's API.

    It listens on this machine only, unless --host names another address.
    """
    config = with_options(options.load().config, brain, **keys)
    from voxtui.serve.serve_command import run

    run(config)
