"""The tools of MCP servers that the user has allowed, in a private file.

The start of voxtui reads this file, so it needs neither the SDK nor a server.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from voxtui.errors import InputError
from voxtui.settings.files import file_errors, read_file, write_file
from voxtui.settings.paths import user_folders

FILE_BYTES = 4_000_000

LONGEST_DESCRIPTION = 20_000
"""Maximum characters of a tool's description and schema. A longer one cannot be allowed."""

MOST_TOOLS = 30
"""Maximum number of allowed tools, because a model reads each of them."""

_NAME = r"[\w./$@ -]{1,64}"
"""Matches names of tools and arguments. A line break in one could fake a line of a prompt."""


class ListedTool(msgspec.Struct, frozen=True):
    """A tool as its server describes it. All of it is unverified."""

    name: str
    description: str
    schema: str
    """the JSON schema of its arguments"""
    read_only: bool
    """whether the server claims that it changes nothing"""

    def digest(self, origin: str) -> str:
        """Return the hash of what the user approves: this description, from this origin."""
        schema = msgspec.json.encode(msgspec.json.decode(self.schema), order="deterministic")
        fields = (origin, self.name, self.description, schema.decode(), self.read_only)
        return hashlib.sha256(msgspec.json.encode(fields)).hexdigest()

    @property
    def problem(self) -> str:
        """The reason for which it cannot be offered to a model; empty if it can."""
        if not re.fullmatch(_NAME, self.name):
            return "its name is not valid in the protocol"
        if len(self.description) + len(self.schema) > LONGEST_DESCRIPTION:
            return "its description is too long"
        try:
            msgspec.json.decode(self.schema, type=_Schema)
        except msgspec.MsgspecError:
            return "its arguments are not described as the protocol demands"
        return ""


class _Schema(msgspec.Struct):
    type: str = "object"
    properties: dict[str, dict[str, Any]] = {}
    required: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.type != "object" or not all(re.fullmatch(_NAME, name) for name in self.properties):
            raise ValueError


class AllowedTool(msgspec.Struct, frozen=True):
    """A tool that a brain may call."""

    server: str
    """the name of its server in the configuration"""
    tool: ListedTool
    digest: str
    always: bool
    """whether calls need no key"""


def approvals_file() -> Path:
    return user_folders().user_data_path / "mcp_tools.json"


def read_approvals(path: Path) -> tuple[AllowedTool, ...]:
    """Return the approvals, none if the file is missing. Raises InputError."""
    with file_errors(path, "read"):
        data = read_file(path, FILE_BYTES, missing=b"[]")
    try:
        return msgspec.json.decode(data, type=tuple[AllowedTool, ...])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(
            f"{path}: is damaged, so no tool of a server is allowed.",
            "Remove it, and allow the tools again: voxtui tools allow SERVER",
        ) from error


def write_approvals(path: Path, approvals: Iterable[AllowedTool]) -> None:
    """Replace the file by one that only the user can read. Raises InputError."""
    data = msgspec.json.format(msgspec.json.encode(tuple(approvals)), indent=1)
    with file_errors(path, "written"):
        write_file(path, data + b"\n")
