"""Deliver dictated text: to stdout, the clipboard, a pane of tmux or the focused window."""

from __future__ import annotations

import base64
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from typing import Literal, TypeAlias

import click

from voxtui.errors import ConfigError, InputError
from voxtui.settings.paths import read_config, user_path

Target: TypeAlias = Literal["stdout", "clipboard", "tmux", "type"]

PROGRAM_SECONDS = 10
"""Timeout of a program that takes the text."""

HOOK_SECONDS = 60

BUFFER = "voxtui"
"""The name of the tmux buffer, which is deleted after the paste."""


def replace_words(text: str, file: str) -> str:
    """Replace the words and phrases of `file`: TOML, `"as heard" = "as written"`.

    Upper and lower case are the same; a replacement is not replaced again. Raises ConfigError.
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
    by_words = {" ".join(heard.lower().split()): written for heard, written in table.items()}
    longest_first = sorted(by_words, key=len, reverse=True)
    either = "|".join(re.escape(heard).replace(r"\ ", r"\s+") for heard in longest_first)
    return re.sub(
        rf"(?<!\w)(?:{either})(?!\w)",
        lambda found: by_words[" ".join(found[0].lower().split())],
        text,
        flags=re.IGNORECASE,
    )


def run_hook(text: str, command: str) -> str:
    """Return the output of `command` for `text` on its stdin. Uses no shell. Raises InputError."""
    try:
        words = shlex.split(command)
        done = subprocess.run(
            words, input=text.encode(), stdout=subprocess.PIPE, timeout=HOOK_SECONDS, check=False
        )
        printed = done.stdout.decode()
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"The hook {command!r} failed: {reason}.") from error
    if done.returncode:
        raise InputError(f"The hook {command!r} failed with exit code {done.returncode}.")
    return printed.rstrip("\n")


def deliver(text: str, target: Target, pane: str | None) -> None:
    """Print `text`, or hand it to the clipboard, a pane of tmux or the focused window.

    Raises InputError.
    """
    match target:
        case "stdout":
            click.echo(text)
        case "clipboard":
            _copy(text)
        case "tmux":
            _paste_in_tmux(text, pane)
        case "type":
            _type(text)


def _copy(text: str) -> None:
    x11, wayland = "DISPLAY" in os.environ, "WAYLAND_DISPLAY" in os.environ
    for usable, *command in (
        (wayland, "wl-copy"),
        (x11, "xclip", "-selection", "clipboard", "-in"),
        (x11, "xsel", "--clipboard", "--input"),
        (sys.platform == "darwin", "pbcopy"),
        ("TMUX" in os.environ, "tmux", "load-buffer", "-w", "-"),
    ):
        if usable and shutil.which(command[0]):
            return _hand_over(text, command, stays=True)
    # OSC 52: the terminal itself keeps the text, also at the other end of SSH.
    sequence = b"\x1b]52;c;" + base64.b64encode(text.encode()) + b"\x07"
    try:
        with open("/dev/tty", "wb", buffering=0) as terminal:
            terminal.write(sequence)
    except OSError as error:
        raise InputError(
            "There is no clipboard: no program for it was found, and there is no terminal.",
            "Install wl-clipboard (Wayland) or xclip (X11).",
        ) from error


def _paste_in_tmux(text: str, pane: str | None) -> None:
    if shutil.which("tmux") is None:
        raise InputError("tmux is not installed.")
    target = ["-t", pane] if pane else []
    _hand_over(text, ["tmux", "load-buffer", "-b", BUFFER, "-"])
    _hand_over("", ["tmux", "paste-buffer", "-p", "-d", "-b", BUFFER, *target])


def _type(text: str) -> None:
    """Type `text` into the focused window.

    On Wayland xdotool would report success and type nothing. ydotool sends the places of keys on
    a US keyboard, so it is the last choice and takes ASCII only.
    """
    wayland = "WAYLAND_DISPLAY" in os.environ
    for usable, *command in (
        (wayland, "wtype", "-"),
        ("DISPLAY" in os.environ and not wayland, "xdotool", "type", "--clearmodifiers", "--file",
         "-"),
        (text.isascii(), "ydotool", "type", "--file", "-"),
    ):  # fmt: skip
        if usable and shutil.which(command[0]):
            return _hand_over(text, command)
    raise InputError(
        "No program here can type: wtype (Wayland), xdotool (X11) or ydotool.",
        "--to clipboard or --to tmux needs none of them.",
    )


def _hand_over(text: str, command: Sequence[str], stays: bool = False) -> None:
    """Give `text` to the stdin of `command`. Raises InputError.

    `stays`: it serves the clipboard in the background from now on. It must inherit no pipe, because
    the reader of that pipe would wait for its end.
    """
    name = " ".join(command[:2]) if command[0] == "tmux" else command[0]
    try:
        done = subprocess.run(
            command,
            input=text.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if stays else subprocess.PIPE,
            timeout=PROGRAM_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{name} failed: {error}.") from error
    if done.returncode:
        *_, reason = (done.stderr or b"").decode(errors="replace").strip().splitlines() or [""]
        why = f": {reason}" if reason else "."
        raise InputError(f"{name} failed with exit code {done.returncode}{why}")
