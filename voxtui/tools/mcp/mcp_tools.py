"""Tools of MCP servers, from the approvals. Imports no SDK and starts no server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice

from voxtui.dialogue.tool_interface import Tool
from voxtui.settings.schema import McpExample, McpServer
from voxtui.tools.mcp.approvals import MOST_TOOLS, AllowedTool
from voxtui.tools.mcp.mcp_servers import CALL_SECONDS, CONNECT_SECONDS, McpServers
from voxtui.tools.mcp.visible_text import visible_line
from voxtui.tools.words import COMMON_WORDS, stem

LONGEST_LINE = 100
"""Maximum characters of a description that a model reads."""

LONGEST_NAME = 64

_SAY_NOTHING = COMMON_WORDS | set(
    re.findall(
        r"\w+",
        "what which who how when where why are was is there any can could would you tell give does"
        " did have has about this that get list read write create update delete remove add search"
        " find query call execute edit move copy send open close current new info tool",
    )
)
"""Words in names of tools and in requests that do not identify a tool."""


def mcp_tools(
    servers: Sequence[McpServer], approvals: Iterable[AllowedTool], connections: McpServers
) -> tuple[Tool, ...]:
    """Return the tools allowed for the present command or address of a configured server."""
    configured = {server.name: server for server in servers}
    known = ((allowed, configured.get(allowed.server)) for allowed in approvals)
    valid = ((allowed, server) for allowed, server in known if server and is_valid(allowed, server))
    return tuple(_tool(*pair, connections) for pair in islice(valid, MOST_TOOLS))


def is_valid(allowed: AllowedTool, server: McpServer) -> bool:
    """Return True if the approval is for the present command or address of `server`."""
    return not allowed.tool.problem and allowed.digest == allowed.tool.digest(server.origin)


def tool_name(server: str, name: str) -> str:
    """Return the name of a tool for models, the configuration and the user."""
    return re.sub(r"\W", "_", f"{server}_{name}", flags=re.ASCII).lower()[:LONGEST_NAME]


def _tool(allowed: AllowedTool, server: McpServer, connections: McpServers) -> Tool:
    examples = [example for example in server.examples if example.tool == allowed.tool.name]
    return Tool(
        tool_name(server.name, allowed.tool.name),
        _line(allowed.tool.description) or allowed.tool.name.replace("_", " "),
        partial(connections.call, allowed),
        allowed.tool.schema,
        tuple((example.say, _arguments(example)) for example in examples),
        (_trigger(allowed.tool.name, examples),),
        acts=not (allowed.always and allowed.tool.read_only),
        trusted=allowed.always,
        quoted=True,
        timeout_s=CONNECT_SECONDS + CALL_SECONDS + 1,  # after the limits that have a sentence
        bridge="One moment.",
    )


def _arguments(example: McpExample) -> str:
    # `str` for the dates and times of TOML
    return json.dumps(example.arguments, ensure_ascii=False, default=str)


def _line(description: str) -> str:
    """Return the first sentence of a description, on one line."""
    text = re.split(r"(?<=[a-z)])[.:;] ", visible_line(description), maxsplit=1)[0].rstrip(".")
    return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE].rsplit(' ', 1)[0]} …"


def _trigger(name: str, examples: Sequence[McpExample]) -> str:
    """Return a pattern of requests that may mean the tool: words of its name and its examples."""
    named = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    words = {word.lower() for word in named}
    said = {
        word
        for example in examples
        for word in re.findall(r"[^\W\d_]{3,}", example.say.lower())
        if word not in _arguments(example).lower()
    }
    telling = (words | said) - _SAY_NOTHING or words
    return rf"\b(?:{'|'.join(sorted(map(stem, telling)))})"
