from __future__ import annotations

import base64
import os
import re
import select
import shlex
import shutil
import subprocess
import tomllib
from io import FileIO
from tempfile import TemporaryFile
from typing import Literal, TypeAlias

import click

from voxtui.errors import ConfigError, InputError
from voxtui.settings.files import file_errors
from voxtui.settings.paths import read_config, user_path
from voxtui.terminal.clipboard import INSTALL, WRITES, clipboard_program, hand_over

Target: TypeAlias = Literal["stdout", "clipboard", "tmux", "type"]

BUFFER = "voxtui"
"""The name of the tmux buffer, which is deleted after the paste."""


def replace_words(text: str, file: str) -> str:
    """Replace the words and phrases of `file`: TOML, `"as heard" = "as written"`.

    Ignores upper and lower case. A replacement is not replaced again. Raises ConfigError.
    """
    path = user_path(file)
    try:
        table = tomllib.loads(read_config(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}.") from error
    for heard, written in table.items():
        if not isinstance(written, str) or not heard.strip():
            raise ConfigError(f'{path}: {heard}: is not of the form "as heard" = "as written".')
    if not table:
        return text
    longest_first = sorted(table, key=len, reverse=True)
    # A group each, because two letters may be the same in `re` only: s and \u017f.
    either = "|".join(
        f"({re.escape(' '.join(heard.split()))})".replace(r"\ ", r"\s+") for heard in longest_first
    )
    return re.sub(
        rf"(?<!\w)(?:{either})(?!\w)",
        lambda found: table[longest_first[(found.lastindex or 1) - 1]],
        text,
        flags=re.IGNORECASE,
    )


def check_hook(command: str) -> None:
    """Raise InputError if `command` cannot be started."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"The hook {command!r} failed: {error}.") from error
    if not words or shutil.which(words[0]) is None:
        raise InputError(f"The hook {command!r} failed: there is no such program.")


def run_hook(text: str, command: str) -> str:
    """Return the output of `command` for `text` on its stdin. Uses no shell. Raises InputError."""
    # Files, because a process that it leaves behind would hold a pipe open.
    try:
        with TemporaryFile() as given, TemporaryFile() as printed:
            given.write(text.encode())
            given.seek(0)
            done = subprocess.run(
                shlex.split(command), stdin=given, stdout=printed, timeout=60, check=False
            )
            printed.seek(0)
            output = printed.read().decode()
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"The hook {command!r} failed: {reason}.") from error
    if done.returncode:
        raise InputError(f"The hook {command!r} failed with exit code {done.returncode}.")
    return output.rstrip("\n")


def check_target(target: Target, pane: str | None) -> None:
    """Raise InputError if `deliver` cannot deliver to `target`. Delivers nothing."""
    match target:
        case "stdout":
            _check_reader()
        case "clipboard":
            if not clipboard_program(WRITES):
                _open_terminal().close()
        case "tmux":
            _check_pane(pane)
        case "type":
            _type("")


def deliver(text: str, target: Target, pane: str | None) -> None:
    """Print `text`, or pass it to the clipboard, a tmux pane or the window. Raises InputError."""
    match target:
        case "stdout":
            with file_errors("stdout", "written"):
                click.echo(text)
        case "clipboard":
            _copy(text)
        case "tmux":
            _paste_in_tmux(text, pane)
        case "type":
            _type(text)


def _check_reader() -> None:
    """Raise InputError if stdout is a pipe without a reader."""
    poll = select.poll()
    poll.register(1, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise InputError("Nobody reads the text: the program behind the pipe has ended.")


def _copy(text: str) -> None:
    if command := clipboard_program(WRITES):
        hand_over(text, command, stays=True)
        return
    # OSC 52: the terminal itself keeps the text, also at the other end of SSH.
    sequence = b"\x1b]52;c;" + base64.b64encode(text.encode()) + b"\x07"
    with _open_terminal() as terminal:
        terminal.write(sequence)


def _open_terminal() -> FileIO:
    try:
        return FileIO("/dev/tty", "wb")
    except OSError as error:
        raise InputError(
            "There is no clipboard: no program for it was found, and there is no terminal.",
            INSTALL,
        ) from error


def _check_pane(pane: str | None) -> None:
    if shutil.which("tmux") is None:
        raise InputError("tmux is not installed.", "--to clipboard or --to type need none.")
    target = ["-t", pane] if pane else []
    dead = hand_over("", ["tmux", "display-message", "-p", *target, "#{pane_dead}#{pane_id}"])
    if not dead.startswith("0%"):
        which = f"no pane {pane}" if dead.strip() in ("", "0") else "a pane whose program has ended"
        raise InputError(f"tmux: there is {which}.", "`tmux list-panes -a` lists them.")


def _paste_in_tmux(text: str, pane: str | None) -> None:
    _check_pane(pane)
    target = ["-t", pane] if pane else []
    hand_over(text, ["tmux", "load-buffer", "-b", BUFFER, "-"])
    hand_over("", ["tmux", "paste-buffer", "-p", "-d", "-b", BUFFER, *target])


def _type(text: str) -> None:
    """Type `text` into the focused window; an empty one tests whether that is possible.

    On Wayland xdotool would report success and type nothing. ydotool sends the key positions of a
    US keyboard, so it is the last choice and types ASCII only.
    """
    wayland = "WAYLAND_DISPLAY" in os.environ
    for usable, *command in (
        (wayland, "wtype", "-"),
        ("DISPLAY" in os.environ and not wayland, "xdotool", "type", "--clearmodifiers", "--file",
         "-"),
        (text.isascii(), "ydotool", "type", "--file", "-"),
    ):  # fmt: skip
        if usable and shutil.which(command[0]):
            hand_over(text, command)
            return
    raise InputError(
        "No program here can type: wtype (Wayland), xdotool (X11) or ydotool.",
        "--to clipboard or --to tmux needs none of them.",
    )
