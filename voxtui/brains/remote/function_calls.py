"""Tools in OpenAI's API: the offered ones, a call in a stream, and its result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from voxtui.brains.remote.http_connection import Json
from voxtui.dialogue.data import FinishedCall, ToolCall
from voxtui.dialogue.protocols import ReplyOptions
from voxtui.errors import strip_control_characters

LONGEST_ARGUMENTS = 10_000
"""Maximum characters of a call. A longer one is cut, and is then invalid JSON."""


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _CallPiece(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class StreamedCall:
    """The first call of a stream, whose pieces arrive one after the other."""

    def __init__(self) -> None:
        self._id = self._name = self._arguments = ""

    def add(self, pieces: Any) -> None:
        """Add the `tool_calls` of an event. Raises msgspec.ValidationError."""
        for piece in msgspec.convert(pieces or (), tuple[_CallPiece, ...]):
            if piece.index or piece.function is None:
                continue  # one call a turn
            self._id = self._id or piece.id or ""
            self._name = self._name or piece.function.name or ""
            room = LONGEST_ARGUMENTS - len(self._arguments)
            self._arguments += (piece.function.arguments or "")[:room]

    @property
    def call(self) -> ToolCall | None:
        # Half a surrogate pair, for one, could not be sent back.
        parts = (self._name, self._arguments or "{}", self._id)
        return ToolCall(*map(strip_control_characters, parts)) if self._name else None


def tool_fields(options: ReplyOptions, calls: Sequence[FinishedCall], host: str) -> Json:
    """Return the fields of a request to `host` that offers tools.

    After a call no tool is offered, because a result must not cause calls.
    """
    offered = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.line,
                "parameters": json.loads(tool.schema),
            },
        }
        for tool in options.offered(host)
    ]
    if not offered:
        return {}
    choice: str | Json = "none" if calls else options.tool_choice
    if choice not in ("none", "auto", "required"):
        choice = {"type": "function", "function": {"name": choice}}
    return {"tools": offered, "tool_choice": choice}


def call_messages(calls: Sequence[FinishedCall]) -> list[Json]:
    messages: list[Json] = []
    for number, finished in enumerate(calls):
        call, name = finished.call, finished.call.id or f"call_{number:05}"
        function = {"name": call.name, "arguments": call.arguments}
        called = {"id": name, "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [called]},
            {"role": "tool", "tool_call_id": name, "content": finished.result},
        ]
    return messages
