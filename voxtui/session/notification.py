"""Notify the user by the terminal or the desktop when a timer rings."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from voxtui.errors import strip_control_characters

BELL = "\a"

# The terminal says in the environment who it is. Any other gets only the bell, because one that
# does not know a sequence may print it.
_OSC_99 = ("KITTY_WINDOW_ID",)
_OSC_9 = ("ITERM_SESSION_ID",)
_OSC_777 = ("GHOSTTY_RESOURCES_DIR", "WEZTERM_PANE", "VTE_VERSION")
_TERMS_777 = ("foot", "xterm-ghostty", "wezterm")


def notification(title: str, text: str, environment: Mapping[str, str]) -> str:
    """Return the bytes that ring the bell and, if the terminal can, show a notification."""
    osc = _osc(strip_control_characters(title), strip_control_characters(text), environment)
    if osc and environment.get("TMUX"):
        escaped = osc.replace("\x1b", "\x1b\x1b")
        osc = f"\x1bPtmux;{escaped}\x1b\\"
    return BELL + osc


def notify_desktop(title: str, text: str, environment: Mapping[str, str]) -> None:
    """Show a notification by the desktop if the terminal cannot. Returns at once."""
    if _osc(title, text, environment):
        return
    command = _desktop_command(title, strip_control_characters(text), environment)
    if command is not None:
        threading.Thread(target=_run, args=(command,), name="voxtui-notify", daemon=True).start()


def _desktop_command(title: str, text: str, environment: Mapping[str, str]) -> Sequence[str] | None:
    if "SSH_CONNECTION" in environment:
        return None  # nobody sits in front of this machine's desktop
    if shutil.which("notify-send") and "DBUS_SESSION_BUS_ADDRESS" in environment:
        return ["notify-send", "--app-name=voxtui", "--", title, text]
    if shutil.which("osascript"):
        script = "on run argv\ndisplay notification (item 1 of argv) with title (item 2 of argv)"
        return ["osascript", "-e", f"{script}\nend run", text, title]
    return None


def _run(command: Sequence[str]) -> None:
    quiet = subprocess.DEVNULL
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=10, check=False)


def _osc(title: str, text: str, environment: Mapping[str, str]) -> str:
    term = environment.get("TERM", "")
    if any(name in environment for name in _OSC_99) or term == "xterm-kitty":
        return f"\x1b]99;i=voxtui:d=0;{title}\x1b\\\x1b]99;i=voxtui:p=body;{text}\x1b\\"
    if any(name in environment for name in _OSC_777) or term.startswith(_TERMS_777):
        return f"\x1b]777;notify;{title};{text.replace(';', ',')}\x1b\\"
    if any(name in environment for name in _OSC_9):
        return f"\x1b]9;{title}: {text}\x1b\\"
    return ""
