"""The client's functions as tools: their descriptions, as chat and Realtime send them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from voxtui.dialogue.data import ToolCall
from voxtui.dialogue.tool_interface import NO_ARGUMENTS, Tool
from voxtui.serve.openai_types import HttpError

MOST_TOOLS = 32

LONGEST_TOOLS = 8000
"""Maximum characters of all descriptions. The embedded model reads them with the conversation."""

Name = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class Function(msgspec.Struct, frozen=True):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None


def tools_of(functions: Sequence[Function], choice: str) -> tuple[tuple[Tool, ...], str]:
    """Return `functions` as tools that the client runs, and `choice` for a brain.

    `choice` is none, auto, required or the name of a function. Raises HttpError.
    """
    if choice == "none":
        return (), "auto"
    if len(functions) > MOST_TOOLS or len(msgspec.json.encode(functions)) > LONGEST_TOOLS:
        raise HttpError(
            400, f"There may be {MOST_TOOLS} tools with {LONGEST_TOOLS} characters.", param="tools"
        )
    tools = tuple(_tool(function) for function in functions)
    if len({tool.name for tool in tools}) < len(tools):
        raise HttpError(400, "Two tools have the same name.", param="tools")
    if choice not in ("auto", "required", *(function.name for function in functions)):
        raise HttpError(400, f"There is no tool {choice!r}.", param="tool_choice")
    return tools, tool_name(choice)


def _tool(function: Function) -> Tool:
    schema = function.parameters or msgspec.json.decode(NO_ARGUMENTS)
    if schema.get("type", "object") != "object":
        raise HttpError(400, f"The parameters of {function.name} are no object.", param="tools")
    line = " ".join((function.description or function.name.replace("_", " ")).split())
    return Tool(tool_name(function.name), line, schema=msgspec.json.encode(schema).decode())


def tool_name(name: str) -> str:
    """Return the name by which a model calls a function."""
    return re.sub(r"\W", "_", name)


def function_name(call: ToolCall, functions: Sequence[Function]) -> str:
    names = [f.name for f in functions if tool_name(f.name) == call.name]
    return names[0] if names else call.name


def call_id(call: ToolCall) -> str:
    return call.id or f"call_{secrets.token_hex(10)}"
