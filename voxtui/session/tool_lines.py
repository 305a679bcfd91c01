"""The sentences about tool calls, the same in every front end."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from voxtui.dialogue.data import ToolCall
from voxtui.dialogue.tool_interface import CallOutcome, CallReport
from voxtui.errors import one_line

LONGEST_LINE = 300
"""Maximum number of characters of a finished call's line; a question shows the whole call."""


def call_text(call: ToolCall) -> str:
    """Return a call as `lights room=kitchen state=off`; unchanged if it is no JSON object."""
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except msgspec.MsgspecError:
        return one_line(f"{call.name} {call.arguments}")
    parts = [
        f"{name}={value}"
        if isinstance(value, str) and "=" not in value  # else it could pass for two arguments
        else f"{name}={json.dumps(value, ensure_ascii=False)}"
        for name, value in arguments.items()
    ]
    return one_line(" ".join((call.name, *parts)))


def call_line(report: CallReport) -> str:
    """Return a line for a finished call, with its time or the reason for which it was not done."""
    text = call_text(report.call)
    text = text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]} …"
    if report.outcome is CallOutcome.DONE:
        return f"{text} · {report.seconds * 1000:.0f} ms"
    outcome = report.outcome.replace("_", " ")
    return f"{text} · {outcome}" + (f": {report.detail}" if report.detail else "")
