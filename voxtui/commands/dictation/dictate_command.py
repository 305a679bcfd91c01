"""`voxtui dictate`: record speech and deliver its text."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import click

from voxtui import wiring
from voxtui.commands.dictation import dictation_output as output
from voxtui.commands.dictation.dictation import Dictated, Dictation, DictationView
from voxtui.commands.dictation.dictation_daemon import Order, give_order, resident_command
from voxtui.errors import InputError, VoxtuiError
from voxtui.settings.schema import Config
from voxtui.terminal.native_stderr import native_log, native_stderr_in
from voxtui.terminal.tty_keys import Pressed, terminal_keys


@dataclass(frozen=True, slots=True)
class DictateOptions:
    target: output.Target = "stdout"
    pane: str | None = None
    """the tmux pane, or None for the active one"""
    quiet: bool = False


def run(config: Config, options: DictateOptions) -> bool:
    """Record until a key or silence ends it, and deliver the text. Return False without words."""
    check(config, options)
    return finish(_dictate(config, options.quiet), config, options)


def run_order(
    order: Order, config: Config, options: DictateOptions, arguments: Sequence[str]
) -> bool:
    """Give `order` to the daemon. Return False if it ended a recording without words.

    `arguments` are the global options of a daemon that is started.
    """
    if order != "stop":  # the words of a recording that is on must not be lost
        check(config, options)
    state, dictated = give_order(order, config, resident_command(arguments))
    if state == "listening":
        if not options.quiet:
            click.echo("Listening. `voxtui dictate --stop` ends it.", err=True)
        return True
    if state == "idle":
        raise InputError("Nothing is being dictated.", "`voxtui dictate --start` begins.")
    return finish(dictated, config, options)


def check(config: Config, options: DictateOptions) -> None:
    """Raise VoxtuiError, before the user speaks, if words could not be recognised or delivered."""
    wiring.check_recogniser(config)
    if config.dictate.replacements:
        output.replace_words("", config.dictate.replacements)
    if config.dictate.hook:
        output.check_hook(config.dictate.hook)
    output.check_target(options.target, options.pane)


def _dictate(config: Config, quiet: bool) -> Dictated:
    silence_s = config.dictate.silence_s
    with native_stderr_in(native_log()), terminal_keys() as pressed:
        if pressed is None and not silence_s:
            raise InputError(
                "There is no terminal for a key that ends the dictation.",
                "Set dictate.silence_s, or use voxtui dictate --start and --stop.",
            )
        prompt = "Speak. Space or Enter ends, Esc drops." if pressed else "Speak."
        if wiring.recognises_twice(config):
            prompt += " Then Whisper may take seconds."
        line = CaptionLine(prompt, quiet)
        dictation = Dictation(wiring.microphone_alone(config), silence_s, line)
        try:
            line.show("The microphone is starting …")
            dictation.open()
            with wiring.recogniser(config, partial(click.echo, err=True), careful=True) as to_text:
                if to_text.sends_to:
                    line.notice(f"Your voice goes to {to_text.sends_to}.")
                detector = wiring.build_detector(config)
                return dictation.listen(config.vad, detector, to_text, lambda: ended(pressed))
        finally:
            dictation.close()
            line.clear()


def ended(pressed: Pressed | None) -> float | None:
    """Return the time of a key that ends the dictation. Raises KeyboardInterrupt to discard it."""
    keys = re.sub(rb"\x1b[O\[][0-?]*[@-~]", b"", pressed() if pressed else b"")  # such as arrows
    if b"\x1b" in keys:
        raise KeyboardInterrupt
    return time.monotonic() if any(key in b" \r\n\x04" for key in keys) else None


def finish(dictated: Dictated, config: Config, options: DictateOptions) -> bool:
    if dictated.problem:
        click.echo(dictated.problem, err=True)
    if not (text := dictated.text):
        click.echo("Nothing was heard.", err=True)
        return False
    try:
        if config.dictate.replacements:
            text = output.replace_words(text, config.dictate.replacements)
        if config.dictate.hook:
            text = output.run_hook(text, config.dictate.hook)
        output.deliver(text, options.target, options.pane)
    except (VoxtuiError, OSError):
        if sys.stderr.isatty():
            click.echo(f"You said: {text}", err=True)
        else:  # not into the log of a desktop
            with suppress(VoxtuiError, OSError):
                output.deliver(text, "clipboard", None)
                click.echo("The text is on the clipboard.", err=True)
        raise
    return True


class CaptionLine(DictationView):
    """Captions on one line of stderr, which shows `prompt` once the microphone delivers."""

    def __init__(self, prompt: str, quiet: bool) -> None:
        self._prompt = prompt
        self._quiet = quiet
        self._shown = sys.stderr.isatty() and not quiet

    def listening(self) -> None:
        self.show(self._prompt)

    def caption(self, text: str) -> None:
        self.show(text, end=True)

    def notice(self, sentence: str) -> None:
        if not self._quiet:
            self.clear()
            click.echo(sentence, err=True)

    def show(self, text: str, end: bool = False) -> None:
        """Show as much of the beginning of `text` as fits, or of its `end`."""
        if not self._shown:
            return
        from rich.cells import cell_len

        # A terminal that does not know its size says 0.
        width = (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1
        part = text[-width:] if end and width else text[:width]
        while cell_len(part) > width:
            part = part[1:] if end else part[:-1]
        click.echo(f"\r\x1b[K{part}", nl=False, err=True)

    def clear(self) -> None:
        self.show("")
