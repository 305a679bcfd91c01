"""`voxtui tools`: what voxtui can do, and the tools of MCP servers that the user allows."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

import click

from voxtui.dialogue.tool_interface import Tool
from voxtui.errors import InputError
from voxtui.settings.schema import Config, McpServer
from voxtui.tools.configured_tools import build_server_tools, build_tools
from voxtui.tools.mcp.approvals import (
    MOST_TOOLS,
    AllowedTool,
    ListedTool,
    approvals_file,
    read_approvals,
    write_approvals,
)
from voxtui.tools.mcp.mcp_servers import McpServers
from voxtui.tools.mcp.mcp_tools import is_valid, tool_name
from voxtui.tools.mcp.visible_text import visible, visible_line

CHOICES = {"n": "no", "a": "with a key", "w": "always"}

MANY = 10
"""Number of servers' tools from which the first start takes half a minute to read them."""


def list_tools(config: Config, as_json: bool) -> None:
    """Print each tool, and whether a key must confirm its calls. Raises InputError."""
    tools = build_tools(config.tools, build_server_tools(config)[0])
    for tool in tools if config.tools.enabled else ():
        if as_json:
            fields = {"name": tool.name, "line": tool.line, "key": needs_key(tool)}
            click.echo(json.dumps(fields, ensure_ascii=False))
        else:
            click.echo(f"{tool.name:<28} {'key' if needs_key(tool) else '':<4} {tool.line}")
    if not config.tools.enabled:
        click.echo("Tools are off: tools.enabled.", err=True)
    for server, problem in _problems(config):
        click.echo(f"{server.name}: {problem}: voxtui tools allow {server.name}", err=True)


def at_terminal() -> bool:
    return sys.stdin.isatty()


def needs_key(tool: Tool) -> bool:
    return tool.acts and not tool.trusted


def allow(config: Config, name: str, tools: Sequence[str], always: bool) -> None:
    """Ask about each tool of the server `name`, or allow `tools`. Raises InputError."""
    server = _configured(config, name)
    with closing(McpServers((server,))) as connections:
        click.echo(f"Connecting to {name} ({server.origin}) …", err=True)
        listed = {tool.name: tool for tool in connections.list_tools(name)}
    if unknown := [tool for tool in tools if tool not in listed]:
        raise InputError(
            f"{name} has no tool {', '.join(unknown)}; it has: {', '.join(listed) or 'none'}."
        )
    before = read_approvals(approvals_file())
    allowed = {
        old.tool.name: old for old in before if old.server == name and is_valid(old, server)
    }  # fmt: skip
    asks = not tools and at_terminal()
    if always and not tools:
        raise InputError("--always needs the names of tools.")
    for tool in listed.values():
        if tools and tool.name not in tools:
            continue
        _show(tool)
        if tool.problem:
            click.echo(f"    It cannot be allowed: {tool.problem}.")
            continue
        answer = ""
        if tools:
            answer = "w" if always else "a"
        elif asks:
            answer = _ask(allowed.get(tool.name))
        if answer in ("a", "w"):
            digest = tool.digest(server.origin)
            allowed[tool.name] = AllowedTool(name, tool, digest, answer == "w")
        elif answer:
            allowed.pop(tool.name, None)
    if not (tools or asks):
        click.echo(f"To allow some: voxtui tools allow {name} TOOL... [--always]", err=True)
        return
    current = [tool for tool in allowed.values() if tool.tool.name in listed]
    others = [old for old in before if old.server != name]
    if len(others) + len(current) > MOST_TOOLS:
        raise InputError(f"At most {MOST_TOOLS} tools of servers can be allowed at once.")
    write_approvals(approvals_file(), (*others, *current))
    _report(name, current)
    if len(current) > MANY:
        click.echo(
            f"More than {MANY} tools make the first start slow on a small machine.", err=True
        )


def forbid(config: Config, name: str, tools: Sequence[str]) -> None:
    """Remove approvals of the server `name`. Raises InputError."""
    before = read_approvals(approvals_file())
    mine = [old for old in before if old.server == name]
    if not mine:
        _configured(config, name)
    if unknown := [tool for tool in tools if tool not in {old.tool.name for old in mine}]:
        raise InputError(f"{name}: {', '.join(unknown)} was not allowed.")
    current = [old for old in mine if tools and old.tool.name not in tools]
    write_approvals(approvals_file(), (*(old for old in before if old.server != name), *current))
    _report(name, current)


def _configured(config: Config, name: str) -> McpServer:
    for server in config.mcp.server:
        if server.name == name:
            return server
    known = ", ".join(server.name for server in config.mcp.server)
    raise InputError(
        f"There is no MCP server {name} in your configuration" + (f": {known}." if known else "."),
        "" if known else "docs/tools.md shows how to add one.",
    )


def _problems(config: Config) -> Iterable[tuple[McpServer, str]]:
    approvals = read_approvals(approvals_file())
    for server in config.mcp.server:
        mine = [old for old in approvals if old.server == server.name]
        if not mine:
            yield server, "no tool of this server is allowed yet"
        elif not all(is_valid(old, server) for old in mine):
            yield server, "its command or address has changed since you allowed its tools"


def _show(tool: ListedTool) -> None:
    """Print what the user approves: the whole description, and the arguments."""
    click.echo(
        f"\n{visible_line(tool.name)}{'  (says that it only reads)' if tool.read_only else ''}"
    )
    for line in visible(tool.description).strip().splitlines():
        click.echo(f"    {line.rstrip()}")
    if tool.problem:
        return
    schema: Mapping[str, Any] = json.loads(tool.schema)
    for name, about in schema.get("properties", {}).items():
        kind = visible_line(str(about.get("type", "value")))
        optional = "" if name in schema.get("required", ()) else ", optional"
        text = visible_line(str(about.get("description", "")))
        click.echo(f"    - {name} ({kind}{optional}) {text}".rstrip())
        _show_rest(name, about, ("type", "description"))
    _show_rest(f"{tool.name}arguments", schema, ("type", "properties", "required"))


def _show_rest(name: str, about: Mapping[str, Any], shown: Sequence[str]) -> None:
    """Print what a model reads besides; not the titles that libraries make of a name."""
    rest = {key: value for key, value in about.items() if key not in shown}
    if str(rest.get("title")).lower().replace(" ", "_") == name.lower():
        del rest["title"]
    if rest:
        click.echo(f"      {visible_line(json.dumps(rest, ensure_ascii=False))}")


def _ask(allowed: AllowedTool | None) -> str:
    before = "n" if allowed is None else "w" if allowed.always else "a"
    answer: str = click.prompt(
        "  Allow? n: no, a: ask for a key each time, w: always",
        type=click.Choice([*CHOICES]), default=before, show_choices=False,
    )  # fmt: skip
    return answer


def _report(name: str, allowed: Sequence[AllowedTool]) -> None:
    if not allowed:
        click.echo(f"\nNo tool of {name} is allowed.")
        return
    click.echo("\nAllowed:")
    for tool in allowed:
        how = CHOICES["w" if tool.always else "a"]
        click.echo(f"  {tool_name(name, tool.tool.name)}: {how}")
