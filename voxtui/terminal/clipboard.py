"""The clipboard of the session, by the programs that are installed for it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from voxtui.errors import InputError, strip_control_characters
from voxtui.terminal.text_input import ATTACHMENT_CHARACTERS

READS, WRITES = 0, 1

INSTALL = "Install wl-clipboard (Wayland) or xclip (X11)."


def clipboard_text() -> str:
    """Return the text on the clipboard. Waits for its owner. Raises InputError."""
    if not (command := clipboard_program(READS)):
        raise InputError(
            "The clipboard cannot be read: no program for it was found, or its display does not"
            " answer.",
            INSTALL,
        )
    try:
        text = hand_over("", command)
        return strip_control_characters(text[:ATTACHMENT_CHARACTERS])
    except InputError as error:
        raise InputError(f"The clipboard gave no text: {error}") from error


def clipboard_program(use: int) -> Sequence[str] | None:
    """Return the command that READS or WRITES the clipboard, or None."""
    x11, wayland = _x11_answers(), _wayland_answers()
    for usable, *commands in (
        (wayland, "wl-paste --no-newline --type text", "wl-copy"),
        (x11, "xclip -selection clipboard -out", "xclip -selection clipboard -in"),
        (x11, "xsel --clipboard --output", "xsel --clipboard --input"),
        (sys.platform == "darwin", "pbpaste", "pbcopy"),
        ("TMUX" in os.environ, "tmux save-buffer -", "tmux load-buffer -w -"),
    ):
        command = commands[use].split()
        if usable and shutil.which(command[0]):
            return command
    return None


def hand_over(text: str, command: Sequence[str], stays: bool = False) -> str:
    """Pass `text` to the stdin of `command`, and return its output. Raises InputError.

    If it `stays`, it serves the clipboard in the background. It then inherits no pipe, because the
    reader of that pipe would wait for its end.
    """
    name = " ".join(command[:2]) if command[0] == "tmux" else command[0]
    try:
        done = subprocess.run(
            command,
            input=text.encode(),
            stdout=subprocess.DEVNULL if stays else subprocess.PIPE,
            stderr=subprocess.DEVNULL if stays else subprocess.PIPE,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{name} failed: {error}.") from error
    if done.returncode:
        *_, reason = (done.stderr or b"").decode(errors="replace").strip().splitlines() or [""]
        why = f": {reason}" if reason else "."
        raise InputError(f"{name} failed with exit code {done.returncode}{why}")
    return (done.stdout or b"").decode(errors="replace")


def _x11_answers() -> bool:
    """Return True if the X server of DISPLAY accepts connections: the variable may be stale."""
    display = os.environ.get("DISPLAY", "")
    host, _, number = display.rpartition(":")
    number = number.partition(".")[0]
    if not number.isdecimal():
        return False
    path = f"/tmp/.X11-unix/X{number}"
    match host:
        case "" | "unix":
            return _connects(socket.AF_UNIX, f"\0{path}") or _connects(socket.AF_UNIX, path)
        case _ if host.startswith("/"):  # macOS
            return _connects(socket.AF_UNIX, display)
        case _:  # SSH
            return _connects(socket.AF_INET, (host, 6000 + int(number)))


def _wayland_answers() -> bool:
    display = os.environ.get("WAYLAND_DISPLAY", "")
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    return bool(display) and _connects(socket.AF_UNIX, os.path.join(folder, display))


def _connects(family: socket.AddressFamily, address: str | tuple[str, int]) -> bool:
    with socket.socket(family) as connection, suppress(OSError):
        connection.settimeout(1)
        connection.connect(address)
        return True
    return False
