"""The clipboard. It may hold a password, so reading it needs a key."""

from __future__ import annotations

from threading import Event as Flag

from voxtui.dialogue.tool_interface import Tool, ToolResult
from voxtui.errors import one_line
from voxtui.terminal.clipboard import clipboard_text
from voxtui.tools.words import tool, without_arguments

READ_ALOUD = 300
"""Maximum characters that are read aloud unchanged; the brain words a longer text."""


def clipboard_tool() -> Tool:
    return tool("clipboard", _read, without_arguments("clipboard"), acts=True)


def _read(arguments: str, cancelled: Flag) -> ToolResult:
    text = clipboard_text()
    said = one_line(text)
    if not said:
        return ToolResult("", "The clipboard holds no text.")
    return ToolResult(text, f"It says: {said}" if len(said) <= READ_ALOUD else "")
