"""The tools that a configuration allows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from voxtui.dialogue.tool_interface import Tool
from voxtui.settings.paths import notes_file
from voxtui.settings.schema import ToolsConfig
from voxtui.tools.clipboard import clipboard_tool
from voxtui.tools.machine import machine_tools
from voxtui.tools.notes import Notes
from voxtui.tools.user_commands import command_tool


def build_tools(config: ToolsConfig) -> tuple[Tool, ...]:
    """Return the tools of the person at this machine. Reads no file."""
    tools = [
        *map(command_tool, config.command),
        *Notes(notes_file(config.notes_file)).tools(),
        *machine_tools(),
        clipboard_tool(),
    ]
    if config.calendar_file:
        from voxtui.tools.calendar import calendar_tool

        tools.append(calendar_tool(Path(config.calendar_file).expanduser()))
    return tuple(replace(tool, shared=tool.name in config.shared) for tool in tools)
