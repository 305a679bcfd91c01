"""Notifications of the terminal, for a timer that rings while nobody looks at it."""

from __future__ import annotations

from collections.abc import Mapping

from textual.message import Message

from voxtui.errors import strip_control_characters

BELL = "\a"

# The terminal says in the environment who it is. Any other gets only the bell, because one that
# does not know a sequence may print it.
_OSC_99 = ("KITTY_WINDOW_ID",)
_OSC_9 = ("ITERM_SESSION_ID",)
_OSC_777 = ("GHOSTTY_RESOURCES_DIR", "WEZTERM_PANE", "VTE_VERSION")
_TERMS_777 = ("foot", "xterm-ghostty", "wezterm")


class TerminalNotification(Message):
    """Asks the app to have the terminal notify."""

    def __init__(self, sentence: str) -> None:
        super().__init__()
        self.sentence = sentence


def notification(title: str, text: str, environment: Mapping[str, str]) -> str:
    """Return the bytes that ring the bell and show a notification where the terminal has them."""
    osc = _osc(strip_control_characters(title), strip_control_characters(text), environment)
    if osc and environment.get("TMUX"):
        escaped = osc.replace("\x1b", "\x1b\x1b")
        osc = f"\x1bPtmux;{escaped}\x1b\\"
    return BELL + osc


def _osc(title: str, text: str, environment: Mapping[str, str]) -> str:
    term = environment.get("TERM", "")
    if any(name in environment for name in _OSC_99) or term == "xterm-kitty":
        return f"\x1b]99;i=voxtui:d=0;{title}\x1b\\\x1b]99;i=voxtui:p=body;{text}\x1b\\"
    if any(name in environment for name in _OSC_777) or term.startswith(_TERMS_777):
        return f"\x1b]777;notify;{title};{text.replace(';', ',')}\x1b\\"
    if any(name in environment for name in _OSC_9):
        return f"\x1b]9;{title}: {text}\x1b\\"
    return ""
