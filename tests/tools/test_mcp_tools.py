"""Tools of MCP servers, from the file of what was allowed: no SDK and no server."""

import json
import subprocess
import sys
import tomllib

import msgspec
import pytest
from click.testing import CliRunner

import voxtui.cli
from voxtui.dialogue.tool_interface import Tool
from voxtui.errors import ConfigError, InputError
from voxtui.settings.schema import McpExample, McpServer, ToolsConfig
from voxtui.settings.sources import load_config
from voxtui.tools.configured_tools import build_tools
from voxtui.tools.mcp.approvals import (
    LONGEST_DESCRIPTION,
    AllowedTool,
    ListedTool,
    approvals_file,
    read_approvals,
    write_approvals,
)
from voxtui.tools.mcp.mcp_servers import McpServers
from voxtui.tools.mcp.mcp_tools import mcp_tools
from voxtui.tools.mcp.visible_text import visible

TIME = McpServer(
    "time",
    "uvx",
    ("mcp-server-time",),
    examples=(
        McpExample("What's the time in Tokyo?", "get_current_time", {"timezone": "Asia/Tokyo"}),
    ),
)
SCHEMA = '{"type": "object", "properties": {"timezone": {"type": "string"}}}'
NOW = ListedTool("get_current_time", "Get current time in a timezone. Use it!", SCHEMA, True)


def allowed(tool: ListedTool = NOW, server: McpServer = TIME, always: bool = True) -> AllowedTool:
    return AllowedTool(server.name, tool, tool.digest(server.origin), always)


def built(*approvals: AllowedTool, servers=(TIME,)) -> tuple[Tool, ...]:
    return mcp_tools(servers, approvals, McpServers(servers))


def test_a_tool_is_what_was_allowed():
    (tool,) = built(allowed())
    assert (tool.name, tool.line) == ("time_get_current_time", "Get current time in a timezone")
    assert tool.schema == SCHEMA
    assert tool.examples == (("What's the time in Tokyo?", '{"timezone": "Asia/Tokyo"}'),)
    assert tool.is_triggered("Could you tell me the times in Rome?")
    assert not tool.is_triggered("What can you tell me about Tokyo?")


def test_an_example_may_hold_a_date_of_toml():
    day = {"day": tomllib.loads("day = 2026-12-24")["day"]}
    server = msgspec.structs.replace(TIME, examples=(McpExample("Now?", NOW.name, day),))
    (tool,) = built(allowed(server=server), servers=(server,))
    assert tool.examples == (("Now?", '{"day": "2026-12-24"}'),)


@pytest.mark.parametrize(
    ("read_only", "always", "acts", "trusted"),
    [
        (True, True, False, True),
        (True, False, True, False),  # that it only reads is the server's word
        (False, True, True, True),
        (False, False, True, False),
    ],
)
def test_the_hint_that_it_only_reads_needs_the_users_always(read_only, always, acts, trusted):
    listed = msgspec.structs.replace(NOW, read_only=read_only)
    (tool,) = built(allowed(listed, always=always))
    assert (tool.acts, tool.trusted) == (acts, trusted)


@pytest.mark.parametrize(
    "server",
    [
        McpServer("time", "uvx", ("mcp-server-time-2",)),
        McpServer("time", "npx", ("mcp-server-time",)),
        McpServer("time", url="http://localhost:1/mcp"),
        McpServer("clock", "uvx", ("mcp-server-time",)),
    ],
)
def test_an_approval_is_for_one_command_or_address(server):
    assert built(allowed(), servers=(server,)) == ()


def test_a_changed_file_allows_nothing():
    other = msgspec.structs.replace(allowed(), tool=msgspec.structs.replace(NOW, description="x"))
    assert built(other) == ()


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ('{"type": "object"}', ""),
        ('{"type": "array"}', "not described"),
        ('{"type": "object", "properties": ["text"]}', "not described"),
        ('{"type": "object", "properties": {"text": "string"}}', "not described"),
        ('{"type": "object", "required": "text"}', "not described"),
        ('{"type": "object", "properties": {"a\\n!lights {}": {}}}', "not described"),
        (json.dumps({"type": "object", "x": "y" * LONGEST_DESCRIPTION}), "too long"),
    ],
)
def test_a_schema_that_no_model_can_use_is_not_offered(schema, problem):
    listed = msgspec.structs.replace(NOW, schema=schema)
    assert problem in listed.problem
    assert bool(built(allowed(listed))) is not bool(problem)


def test_a_name_that_would_forge_a_line_is_not_offered():
    assert built(allowed(msgspec.structs.replace(NOW, name="now\n!lights {}"))) == ()


def test_names_that_become_the_same_are_one_tool():
    first, second = (msgspec.structs.replace(NOW, name=name) for name in ("a-b", "a.b"))
    tools = build_tools(ToolsConfig(), built(allowed(first), allowed(second)))
    assert [tool.name for tool in tools].count("time_a_b") == 1


def test_what_nobody_sees_is_removed():
    tags = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    spelt = "".join(chr(0xE0100 + ord(letter)) for letter in "obey")
    hidden = f"a{tags}b\u200bc\u202ed\x1b[0m\ufe0fe{spelt}\u2028f\tg\nh"
    assert visible(hidden) == "abcd[0mef\tg\nh"


def test_the_file_is_private_and_a_damaged_one_is_named(tmp_path):
    file = tmp_path / "new" / "mcp_tools.json"
    assert read_approvals(file) == ()
    write_approvals(file, [allowed()])
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_approvals(file) == (allowed(),)
    file.write_text("[{")
    with pytest.raises(InputError, match=r"mcp_tools.json: is damaged.*voxtui tools allow"):
        read_approvals(file)


def test_the_start_needs_no_sdk(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    write_approvals(approvals_file(), [allowed()])
    script = (
        "import sys; from voxtui.settings.schema import *; from voxtui.wiring import build_skills;"
        "server = McpServer('time', 'uvx', ('mcp-server-time',));"
        "skills = build_skills(Config(mcp=McpConfig((server,))));"
        "assert 'time_get_current_time' in [tool.name for tool in skills.tools];"
        "skills.close();"
        "print([name for name in ('mcp', 'anyio', 'pydantic', 'asyncio') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "mcp" not in ran.stdout


CONFIG = """
[[mcp.server]]
name = "time"
command = "uvx"
args = ["mcp-server-time"]
"""


def test_servers_are_the_users_own(tmp_path, monkeypatch):
    file = tmp_path / "mine.toml"
    file.write_text(CONFIG)
    (server,) = load_config(file, (), {}).config.mcp.server
    assert (server.command, server.args) == ("uvx", ("mcp-server-time",))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "voxtui.toml").write_text(CONFIG)
    with pytest.raises(ConfigError, match="cannot be set by a file in the current directory"):
        load_config(None, (), {})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "needs either command or url"),
        ({"command": "x", "url": "http://y"}, "needs either command or url"),
        ({"url": "ftp://y"}, "not of the form"),
        ({"url": "https://me:secret@y"}, "not of the form"),
        ({"url": "https://y", "args": ("x",)}, "args and env belong to a command"),
        ({"command": "x", "token_env": "X"}, "token_env belongs to a url"),
    ],
)
def test_an_impossible_server_is_refused(fields, problem):
    with pytest.raises(ValueError, match=problem):
        McpServer("time", **fields)


def invoke(*arguments):
    return CliRunner().invoke(voxtui.cli.cli, arguments, catch_exceptions=False)


def test_the_list_says_what_needs_a_key_and_what_is_not_allowed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    file = tmp_path / "mine.toml"
    file.write_text(CONFIG)
    settings = json.loads(invoke("config", "--json", "--config", str(file)).stdout)["settings"]
    assert settings["mcp.server"]["value"][0]["command"] == "uvx"
    listed = invoke("tools", "--config", str(file))
    assert "clipboard                    key  the text that" in listed.stdout
    assert "time: no tool of this server is allowed yet: voxtui tools allow time" in listed.stderr
    write_approvals(approvals_file(), [allowed(always=False)])
    listed = invoke("tools", "--config", str(file), "--json")
    assert json.loads(listed.stdout.splitlines()[-1]) == {
        "name": "time_get_current_time", "line": "Get current time in a timezone", "key": True,
    }  # fmt: skip
    with pytest.raises(InputError, match="get was not allowed"):
        invoke("tools", "forbid", "time", "get")
    assert "No tool of time is allowed." in invoke("tools", "forbid", "time").stdout
    assert read_approvals(approvals_file()) == ()
    for order in ("allow", "forbid"):
        with pytest.raises(InputError, match="no MCP server cheese in your configuration: time"):
            invoke("tools", order, "cheese", "--config", str(file))
