"""Calls to real MCP servers, on pipes and over HTTP, that behave well and badly."""

import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

import voxtui.cli
from tests.dialogue.talking import talking
from tests.dialogue.turn.test_tools import WithTools
from tests.fakes import ScriptedBrain
from tests.ui.pseudo_terminal import until
from voxtui.commands import tools_command
from voxtui.dialogue.data import ToolCall
from voxtui.dialogue.engine_commands import SendText
from voxtui.dialogue.events import ToolEnded
from voxtui.dialogue.tool_interface import LONGEST_RESULT, CallOutcome
from voxtui.errors import InputError
from voxtui.settings.schema import McpServer
from voxtui.tools.mcp import mcp_servers
from voxtui.tools.mcp.approvals import AllowedTool, ListedTool, approvals_file, read_approvals
from voxtui.tools.mcp.mcp_servers import McpServers
from voxtui.tools.mcp.mcp_tools import mcp_tools

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("stdio_server.py")
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ECHO = ListedTool("echo", "Return a text.", json.dumps(SCHEMA), read_only=False)


def server(mode: str, **fields) -> McpServer:
    return McpServer("test", sys.executable, (str(SCRIPT), mode), **fields)


@contextmanager
def connected(mode: str, **fields):
    """Yield a function that calls `echo`, and the connections."""
    configured = server(mode, **fields)
    allowed = AllowedTool("test", ECHO, ECHO.digest(configured.origin), True)
    with closing(McpServers((configured,))) as connections:

        def call(text: str = "hello", cancelled: threading.Event = mcp_servers.NEVER):
            return connections.call(allowed, json.dumps({"text": text}), cancelled)

        yield call, connections


def test_a_tool_is_called_and_short_prose_needs_no_brain():
    with connected("good") as (call, connections):
        assert connections.list_tools("test") == (ECHO,)
        assert call("12 degrees, rain").sentence == "It says: 12 degrees, rain."
        assert call('{"temperature": 12}') == type(call())('{"temperature": 12}', "")
        began = time.monotonic()
        call()
        assert time.monotonic() - began < 1  # the connection stays open


def test_the_servers_of_the_sdk_are_understood(tmp_path):
    script = tmp_path / "server.py"
    script.write_text(
        "from mcp.server.mcpserver import MCPServer\n"
        "s = MCPServer('sdk')\n"
        "@s.tool()\n"
        "def add(a: int, b: int) -> int:\n    'Add two numbers.'\n    return a + b\n"
        "s.run()\n"
    )
    configured = McpServer("sdk", sys.executable, (str(script),))
    with closing(McpServers((configured,))) as connections:
        (add,) = connections.list_tools("sdk")
        assert (add.description, add.problem) == ("Add two numbers.", "")
        allowed = AllowedTool("sdk", add, add.digest(configured.origin), False)
        result = connections.call(allowed, '{"a": 2, "b": 3}', mcp_servers.NEVER)
        assert result.text == "5"
        with pytest.raises(InputError, match="sdk could not do it: "):
            connections.call(allowed, '{"a": "x"}', mcp_servers.NEVER)


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("changed", "describes in another way the tool echo.*voxtui tools allow test"),
        ("none", "no longer offers the tool echo"),
        ("ends at once", "has ended.*Its last message: No module named cheese"),
        ("dies", "has ended.*out of cheese"),
        ("fails", r"could not do it: no such place: hello\[31m$"),
    ],
)
def test_each_failure_is_a_sentence(mode, words):
    with connected(mode) as (call, _), pytest.raises(InputError, match=words):
        call()


def test_a_description_that_changes_while_connected_is_refused():
    with connected("changes later") as (call, _):
        call()

        def refused() -> bool:
            try:
                call()
            except InputError as error:
                return "in another way" in str(error)
            return False

        until(refused)


def test_a_server_that_died_is_started_again():
    with connected("dies") as (call, _):
        for _ in range(2):
            with pytest.raises(InputError, match="out of cheese"):
                call()


def test_garbage_on_stdout_is_dropped():
    with connected("garbage") as (call, _):
        assert call().text == "hello"


def test_a_long_result_is_cut_and_an_endless_one_refused():
    with connected("huge") as (call, _):
        assert call("1000000").text == "x" * LONGEST_RESULT
        with pytest.raises(InputError, match="has ended"):
            call("5000000")


def test_a_result_is_not_checked_by_the_servers_own_schema():
    with connected("slow output schema") as (call, _):
        assert call("rain").sentence == "It says: rain."


def test_a_picture_is_named_only():
    with connected("picture") as (call, _):
        assert call().text == "(image)"


@pytest.mark.parametrize("mode", ["hangs", "silent"])
def test_a_server_that_hangs_is_left_at_once_and_has_a_limit(mode, monkeypatch):
    with connected(mode) as (call, _):
        cancelled = threading.Event()
        threading.Timer(0.3, cancelled.set).start()
        with pytest.raises(InputError, match="cancelled"):
            call(cancelled=cancelled)
        monkeypatch.setattr(mcp_servers, "CALL_SECONDS", 0.5)
        monkeypatch.setattr(mcp_servers, "CONNECT_SECONDS", 2 if mode == "hangs" else 0.5)
        with pytest.raises(InputError, match="test did not answer within"):
            call()


def test_a_missing_program_is_named():
    configured = McpServer("test", "no-such-program")
    with (
        closing(McpServers((configured,))) as connections,
        pytest.raises(InputError, match="test: there is no program no-such-program"),
    ):
        connections.list_tools("test")


def test_the_environment_is_passed_by_name(monkeypatch):
    monkeypatch.setenv("A_TOKEN", "secret")
    monkeypatch.setenv("ANOTHER_TOKEN", "secret")
    with connected("environment", env=("A_TOKEN",)) as (call, _):
        names = json.loads(call().text)
        assert names["A_TOKEN"] == "secret"
        assert "PATH" in names and "ANOTHER_TOKEN" not in names
    monkeypatch.delenv("A_TOKEN")
    with (
        connected("good", env=("A_TOKEN",)) as (call, _),
        pytest.raises(InputError, match="needs the environment variable A_TOKEN"),
    ):
        call()


def test_a_server_does_not_run_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with connected("folder") as (call, _):
        assert call().text == str(Path.home())


def test_the_end_takes_all_processes_of_a_server_along():
    with connected("children") as (call, _):
        pids = [int(pid) for pid in call().text.split()]
        began = time.monotonic()
    assert time.monotonic() - began < 1
    until(lambda: not any(map(runs, pids)))


def test_a_killed_voxtui_takes_its_servers_along():
    script = (
        "import sys, tests.tools.test_mcp_servers as t\n"
        "with t.connected('children') as (call, _):\n"
        "    print(call().text, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as voxtui:
        assert voxtui.stdout is not None
        pids = [int(pid) for pid in voxtui.stdout.readline().split()]
        assert len(pids) == 2 and all(map(runs, pids))
        voxtui.kill()
    until(lambda: not any(map(runs, pids)))


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@contextmanager
def http_server(tmp_path):
    """Start a server of the SDK that demands a token; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = tmp_path / "http_server.py"
    script.write_text(
        "import uvicorn\n"
        "from mcp.server.mcpserver import MCPServer\n"
        "s = MCPServer('sdk')\n"
        "@s.tool()\n"
        "def add(a: int, b: int) -> int:\n    'Add two numbers.'\n    return a + b\n"
        "app = s.streamable_http_app()\n"
        "async def guarded(scope, receive, send):\n"
        "    headers = dict(scope.get('headers', ()))\n"
        "    if scope['type'] == 'http' and headers.get(b'authorization') != b'Bearer secret':\n"
        "        await send({'type': 'http.response.start', 'status': 401, 'headers': []})\n"
        "        await send({'type': 'http.response.body', 'body': b'no'})\n"
        "        return\n"
        "    await app(scope, receive, send)\n"
        f"uvicorn.run(guarded, port={port}, log_level='error')\n"
    )
    with subprocess.Popen([sys.executable, str(script)]) as process:
        try:
            until(lambda: _listens(port))
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_over_http_gets_its_token(tmp_path, monkeypatch):
    with http_server(tmp_path) as url:
        configured = McpServer("sdk", url=url, token_env="A_TOKEN")
        monkeypatch.setenv("A_TOKEN", "wrong")
        with (
            closing(McpServers((configured,))) as connections,
            pytest.raises(InputError, match=f"at {url} failed: "),
        ):
            connections.list_tools("sdk")
        monkeypatch.setenv("A_TOKEN", "secret")
        with closing(McpServers((configured,))) as connections:
            (add,) = connections.list_tools("sdk")
            allowed = AllowedTool("sdk", add, add.digest(configured.origin), False)
            result = connections.call(allowed, '{"a": 2, "b": 3}', mcp_servers.NEVER)
            assert result.text == "5"
    with (
        closing(McpServers((configured,))) as connections,
        pytest.raises(InputError, match=f"at {url} failed: "),
    ):
        connections.list_tools("sdk")


class LongAnswers(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "serverInfo": {"name": "x" * 5_000_000, "version": "1"},
            "tools": [],
        }
        answer = {"jsonrpc": "2.0", "id": request.get("id"), "result": result}
        self.send_response(200 if "id" in request else 202)
        self.send_header("content-type", "application/json")
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(json.dumps(answer).encode() if "id" in request else b"")

    def log_message(self, *about):
        pass


def test_a_long_answer_over_http_is_not_read_to_its_end():
    with ThreadingHTTPServer(("127.0.0.1", 0), LongAnswers) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        configured = McpServer("long", url=f"http://127.0.0.1:{http.server_port}/mcp")
        with (
            closing(McpServers((configured,))) as connections,
            pytest.raises(InputError, match="more than 4 MB"),
        ):
            connections.list_tools("long")
        http.shutdown()


def test_an_end_during_the_first_call_starts_nothing():
    script = (
        "import threading, tests.tools.test_mcp_servers as t\n"
        "with t.connected('children') as (call, connections):\n"
        "    first = threading.Thread(target=call)\n"
        "    first.start()\n"
        "    while 'voxtui-mcp' not in {thread.name for thread in threading.enumerate()}:\n"
        "        pass\n"
        "    connections.close()\n"
        "    first.join()\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "InputError" in ran.stderr and "Task was destroyed" not in ran.stderr


def test_a_closed_client_calls_nothing():
    with connected("good") as (call, connections):
        connections.close()
        with pytest.raises(InputError, match="ending"):
            call()


@pytest.fixture
def allow(tmp_path, monkeypatch):
    """Return a function that runs `voxtui tools allow test` with a server of a mode."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    file = tmp_path / "mine.toml"

    def run(*names, answers="", mode="good"):
        file.write_text(
            f'[[mcp.server]]\nname = "test"\ncommand = "{sys.executable}"\n'
            f'args = ["{SCRIPT}", "{mode}"]\n'
        )
        arguments = ["tools", "allow", "test", *names, "--config", str(file)]
        return CliRunner().invoke(voxtui.cli.cli, arguments, answers, catch_exceptions=False)

    return run


def test_a_person_allows_tools_one_by_one(allow, monkeypatch):
    shown = allow()  # in a script it only shows them
    assert "echo\n    Return a text.\n    - text (string)\n" in shown.stdout
    assert "voxtui tools allow test TOOL" in shown.stderr
    assert read_approvals(approvals_file()) == ()
    with pytest.raises(InputError, match="has no tool cheese; it has: echo"):
        allow("cheese")
    assert "test_echo: always" in allow("echo", "--always").stdout
    monkeypatch.setattr(tools_command, "at_terminal", lambda: True)
    for answer, always in (("\n", True), ("a\n", False), ("w\n", True)):  # Enter: as it is
        allow(answers=answer)
        (approval,) = read_approvals(approvals_file())
        assert (approval.tool, approval.always) == (ECHO, always)
    assert "No tool of test is allowed." in allow(answers="n\n").stdout
    assert read_approvals(approvals_file()) == ()


def test_a_person_sees_all_that_a_model_reads_of_a_tool(allow):
    shown = allow(mode="hidden orders").stdout
    assert '- text (string)\n      {"enum": ["a", "b"]}\n      {"title": "Send notes."}\n' in shown
    with closing(McpServers((server("hidden orders"),))) as connections:
        schema = json.loads(connections.list_tools("test")[0].schema)
    assert schema["properties"]["text"]["enum"] == ["a", "b"]


class WithServer(WithTools):
    """Skills whose tools are those of a server, which ends with them."""

    def __init__(self, mode: str) -> None:
        configured = server(mode)
        allowed = AllowedTool("test", ECHO, ECHO.digest(configured.origin), True)
        self.connections = McpServers((configured,))
        super().__init__(*mcp_tools((configured,), (allowed,), self.connections))

    def close(self) -> None:
        self.connections.close()
        super().close()


@pytest.mark.parametrize("mode", ["good", "hangs"])
def test_a_turn_calls_a_server_and_the_next_words_cancel_the_call(mode):
    brain = ScriptedBrain([ToolCall("test_echo", '{"text": "Rain today"}')], ["Hello."])
    with talking(brain, skills=WithServer(mode)) as t:
        if mode == "good":
            assert t.ask().reply == "One moment. It says: Rain today."
            return
        t.engine.post(SendText("Say it."))
        until(lambda: "voxtui-tool" in {thread.name for thread in threading.enumerate()})
        t.engine.post(SendText("Never mind."))
        ended = t.events.until(ToolEnded)
        assert isinstance(ended, ToolEnded)
        assert ended.report.outcome is CallOutcome.CANCELLED
        assert ended.report.seconds < 30
