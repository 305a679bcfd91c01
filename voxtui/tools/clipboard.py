"""The clipboard. It may hold a password, so reading it needs a key."""

from __future__ import annotations

from threading import Event as Flag

from voxtui.dialogue.tool_interface import Tool, ToolResult
from voxtui.errors import one_line
from voxtui.terminal.text_input import clipboard_text
from voxtui.tools.words import plain, whole_requests

READ_ALOUD = 300
"""characters that are read aloud as they are; the brain words a longer text"""

_READ = whole_requests(
    r"(?:what is|read(?: me| out)?|show me) (?:on|in )?(?:my |the )?clipboard",
    r"what is (?:on|in) (?:my|the) clipboard(?: (?:right )?now)?",
    r"what did i (?:just |last )?copy(?: to (?:my|the) clipboard)?",
    r"(?:sum up|summari[sz]e|explain) (?:my|the) clipboard",
)


def clipboard_tool() -> Tool:
    return Tool(
        "clipboard",
        "the text that the user has copied",
        _read,
        examples=(("Read what I have just copied.", "{}"),),
        triggers=(
            r"\b(?:my|the) clipboard\b",
            r"\bi(?:'ve| have)? just cop(?:y|ied)\b",
        ),
        acts=True,
        rule=lambda words: "{}" if _READ.fullmatch(plain(words)) else None,
    )  # fmt: skip


def _read(arguments: str, cancelled: Flag) -> ToolResult:
    text = clipboard_text()
    said = one_line(text)
    if not said:
        return ToolResult("", "The clipboard holds no text.")
    return ToolResult(text, f"It says: {said}" if len(said) <= READ_ALOUD else "")
