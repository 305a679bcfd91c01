from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from voxtui.dialogue.tool_interface import Tool
from voxtui.settings.paths import notes_file, user_path
from voxtui.settings.schema import Config, ToolsConfig
from voxtui.tools.clipboard import clipboard_tool
from voxtui.tools.machine import machine_tools
from voxtui.tools.notes import Notes
from voxtui.tools.user_commands import command_tool

if TYPE_CHECKING:
    from voxtui.tools.mcp.mcp_servers import McpServers


def build_tools(config: ToolsConfig, servers: Iterable[Tool] = ()) -> tuple[Tool, ...]:
    """Return the tools of the person at this machine, then those of servers. Reads no file.

    Of equal names the first is kept, because a call names its tool.
    """
    tools = [
        *map(command_tool, config.command),
        *Notes(notes_file(config.notes_file)).tools(),
        *machine_tools(),
        clipboard_tool(),
    ]
    if config.calendar_file:
        from voxtui.tools.calendar import calendar_tool

        tools.append(calendar_tool(user_path(config.calendar_file)))
    named: dict[str, Tool] = {}
    for tool in (*tools, *servers):
        named.setdefault(tool.name, replace(tool, shared=tool.name in config.shared))
    return tuple(named.values())


def build_server_tools(config: Config) -> tuple[tuple[Tool, ...], McpServers]:
    """Return the allowed tools of MCP servers, and the connections that call them.

    Reads one file; starts no server. Raises InputError.
    """
    from voxtui.tools.mcp.approvals import approvals_file, read_approvals
    from voxtui.tools.mcp.mcp_servers import McpServers
    from voxtui.tools.mcp.mcp_tools import mcp_tools

    servers = McpServers(config.mcp.server)
    return mcp_tools(config.mcp.server, read_approvals(approvals_file()), servers), servers
