"""`voxtui mcp`: another program speaks and listens, by the official client over real stdio."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import numpy as np
import pytest
from click.testing import CliRunner

import voxtui.cli
from tests.audio.sounds import find, question
from tests.deadline import SECONDS
from tests.ui.pseudo_terminal import until
from tests.virtual_audio import RATE
from voxtui.audio.chime import cue
from voxtui.commands.mcp import mcp_command
from voxtui.errors import InputError

COMMAND = [sys.executable, "-P", "-m", "voxtui", "mcp"]


def test_it_says_how_it_is_started_and_what_it_needs(monkeypatch):
    def run():
        CliRunner().invoke(voxtui.cli.cli, ["mcp"], catch_exceptions=False)

    monkeypatch.setattr(mcp_command, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs mcp.*make setup EXTRAS=mcp"):
        run()
    monkeypatch.setattr(mcp_command, "find_spec", lambda name: True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    with pytest.raises(InputError, match="claude mcp add"):
        mcp_command.run(None, ())


@pytest.fixture(autouse=True)
def no_daemon_left(request):
    """End the process that keeps the recogniser, by an order with other settings."""
    yield
    if "virtual_audio" in request.fixturenames:
        environ = request.getfixturevalue("virtual_audio").environ
        order = [sys.executable, "-P", "-m", "voxtui", "dictate", "--stop", "--quiet"]
        subprocess.run([*order, "--set", "audio.input=none"], env=environ, check=False)
        sockets = Path(environ["XDG_RUNTIME_DIR"])
        until(lambda: not [*sockets.rglob("dictate.sock")])


def with_marks(test):
    for mark in (pytest.mark.audio, pytest.mark.slow, pytest.mark.models):
        test = mark(test)
    return test


@asynccontextmanager
async def client(audio, *arguments):
    mcp = pytest.importorskip("mcp")
    command, *rest = [*COMMAND, *arguments]
    server = mcp.StdioServerParameters(command=command, args=rest, env=audio.environ)
    async with mcp.Client(server) as connected:
        yield Calls(connected)


class Calls:
    def __init__(self, connected):
        self.client = connected

    async def __call__(self, name, **arguments):
        """Return whether the call failed, and its text."""
        result = await self.client.call_tool(name, arguments)
        return result.is_error, result.content[0].text


async def cued(recorder) -> None:
    """Wait until the cue has sounded."""
    with anyio.fail_after(SECONDS):
        while not has_cue(recorder.samples):
            await anyio.sleep(0.05)


def has_cue(samples) -> bool:
    sound = cue(RATE).samples
    return len(samples) > len(sound) and find(sound, samples)[1] > 0.8


@with_marks
async def test_an_assistant_speaks_listens_and_converses(virtual_audio):
    async with client(virtual_audio) as call:
        tools = (await call.client.list_tools()).tools
        assert [tool.name for tool in tools] == ["speak", "listen", "converse"]
        with virtual_audio.record() as recorder:
            assert await call("speak", text="The tests are green.") == (False, "Spoken.")
            assert np.abs(recorder.samples).max() > 0.05
            assert not has_cue(recorder.samples)  # the microphone did not open
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:  # one after the other
                tasks.start_soon(lambda: call("speak", text="Hello."))
                assert (await call("speak", text="Hello."))[0] is False
        for tool, arguments in (("listen", {}), ("converse", {"text": "Which one?"})):
            with virtual_audio.record() as recorder:
                results = []

                async def ask(tool=tool, arguments=arguments, results=results):
                    results.append(await call(tool, **arguments))

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(ask)
                    await cued(recorder)
                    virtual_audio.say(question("capital-of-france")).wait()
                assert results == [(False, "What is the capital of France?")]


@with_marks
async def test_silence_and_a_missing_voice_are_errors_of_one_sentence(virtual_audio):
    async with client(virtual_audio) as call:
        virtual_audio.echo(60)  # the cue is no speech
        failed, text = await call("listen", seconds=3)
        virtual_audio.echo(0)
        assert failed and text.startswith("Nothing was heard.") and "\n" not in text
    async with client(virtual_audio, "--set", "voice.engine=none") as call:
        failed, text = await call("speak", text="Hello.")
        assert (failed, text) == (True, "There is no voice: voice.engine is none.")


@with_marks
async def test_a_cancelled_call_and_a_killed_server_close_the_microphone(virtual_audio):
    async with client(virtual_audio) as call:
        with virtual_audio.record() as recorder:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call, "listen")
                    await cued(recorder)
                    assert virtual_audio.captures() == 1
                    scope.cancel()
            await closed(virtual_audio)
        assert (await call("listen", seconds=1))[0]  # the next call listens
    server = subprocess.Popen(
        COMMAND, env=virtual_audio.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with server, virtual_audio.record() as recorder:
        for message in session(("listen", {})):
            server.stdin.write(json.dumps(message).encode() + b"\n")
            server.stdin.flush()
        await cued(recorder)
        assert virtual_audio.captures() == 1
        server.kill()
    await closed(virtual_audio)


async def closed(audio):
    with anyio.fail_after(SECONDS):
        while audio.captures():
            await anyio.sleep(0.05)


def session(*calls):
    params = {"protocolVersion": "2025-06-18", "capabilities": {},
              "clientInfo": {"name": "test", "version": "1"}}  # fmt: skip
    yield {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    yield {"jsonrpc": "2.0", "method": "notifications/initialized"}
    for number, (name, arguments) in enumerate(calls, 1):
        call = {"name": name, "arguments": arguments}
        yield {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}


@with_marks
def test_stdout_carries_protocol_only(virtual_audio):
    """A native library prints to fd 1, and somebody calls `print`."""
    noisy = (
        "import os; import voxtui.commands.mcp.ears_and_voice as ears; load = ears.load_voice; "
        "ears.load_voice = lambda *a: (os.write(1, b'noise'), print('noise'), load(*a))[2]; "
        "from voxtui.__main__ import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", noisy, "mcp"],
        env=virtual_audio.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as server:
        for message in session(("speak", {"text": "Hello."}), ("listen", {"seconds": 1})):
            server.stdin.write(json.dumps(message).encode() + b"\n")
            server.stdin.flush()
        server.stdin.write(b"this is not JSON\n")
        server.stdin.flush()
        lines = []
        while not {1, 2} <= {line.get("id") for line in lines}:
            line = server.stdout.readline()
            assert line, "the server ended"
            lines.append(json.loads(line))
        server.stdin.close()
        rest = server.stdout.read()
        assert server.wait(SECONDS) == 0
    assert rest == b""
    assert all(line["jsonrpc"] == "2.0" for line in lines)
