"""One connection to an MCP server by the official SDK. Everything here runs on one event loop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import anyio
import mcp_types
from httpx2 import AsyncByteStream, AsyncClient, Response, StreamError, Timeout
from mcp import Client
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from voxtui import __version__
from voxtui.errors import InputError, VoxtuiError
from voxtui.settings.schema import McpServer
from voxtui.tools.mcp.approvals import ListedTool
from voxtui.tools.mcp.visible_text import visible, visible_line

LONGEST_MESSAGE = 4_000_000
"""Maximum bytes of a line or of an answer over HTTP. A longer one ends the connection."""

END_SECONDS = 0.2
"""Time for a process to end after stdin was closed and SIGTERM was sent, before SIGKILL."""

_WATCHED = '(read _ < /dev/fd/{}; kill -9 0) < /dev/null > /dev/null 2>&1 & exec "$0" "$@"'
"""Runs a program, and ends its process group once a pipe of ours closes, however voxtui ends."""

MOST_LISTED = 500

STDERR_BYTES = 2000

for _name in ("mcp", "httpx2"):  # else they print to the screen
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False


class Session:
    """A connection, which begins at once, and its process if the server is a command."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.listed: dict[str, ListedTool] = {}
        """the server's tools by name"""
        self._client: Client | None = None
        self._stale = False
        """whether the server has reported that its tools changed"""
        self._stderr = b""
        self._problem: VoxtuiError | None = None
        self._ready = asyncio.Event()
        self._end = asyncio.Event()
        self._task = asyncio.create_task(self._hold())

    @property
    def ended(self) -> bool:
        return self._end.is_set()

    @property
    def last_error(self) -> str:
        """The last line that the process wrote to stderr."""
        lines = self._stderr.decode(errors="replace").strip().splitlines()
        return f"Its last message: {visible_line(lines[-1])[:300]}" if lines else ""

    async def ready(self) -> None:
        """Wait until the tools are known. Raises InputError if there is no connection."""
        await self._ready.wait()
        if self._problem is not None:
            raise self._problem
        if self._stale:
            self._stale = False
            try:
                await self._list()
            except Exception as error:
                self.end()
                raise self._failure(error) from error

    async def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Return the text of a call's result, and whether the call failed. Raises InputError."""
        assert self._client is not None
        try:
            result = await self._client.call_tool(name, arguments)
        except Exception as error:
            if self.server.url:
                self.end()  # of a process, the end of its stdout says so
            raise self._failure(error) from error
        return _text(result), result.is_error

    def end(self) -> None:
        """End the connection soon."""
        if not self._end.is_set() and not self._ready.is_set():
            self._task.cancel()  # once: again would interrupt the end of its process
        self._end.set()

    async def closed(self) -> None:
        """Wait for the end of the connection, and of its process."""
        done, _ = await asyncio.wait([self._task], timeout=3 * END_SECONDS)
        if not done:  # a server over HTTP may not answer that it is left
            self._task.cancel()
            await asyncio.wait([self._task], timeout=END_SECONDS)

    async def _hold(self) -> None:
        try:
            transport = self._http() if self.server.url else self._stdio()
            info = mcp_types.Implementation(name="voxtui", version=__version__)
            client = Client(
                transport, cache=None, client_info=info, message_handler=self._take_message
            )
            async with client:
                self._client = client
                # The server's own patterns could keep all threads waiting.
                client.session.validate_tool_result = _accept
                await self._list()
                self._ready.set()
                await self._end.wait()
        except Exception as error:  # noqa: BLE001 - of the SDK, of anyio, of httpx2
            self._problem = self._failure(error)
        finally:
            if self._problem is None and not self._ready.is_set():
                self._problem = InputError(f"The MCP server {self.server.name} was ended.")
            self._end.set()
            self._ready.set()

    async def _take_message(self, message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._stale = True

    async def _list(self) -> None:
        assert self._client is not None
        listed: dict[str, ListedTool] = {}
        cursor: str | None = None
        while True:
            page = await self._client.list_tools(cursor=cursor)
            for tool in page.tools:
                listed[tool.name] = ListedTool(
                    tool.name,
                    tool.description or "",
                    visible(json.dumps(tool.input_schema, ensure_ascii=False)),
                    bool(tool.annotations and tool.annotations.read_only_hint),
                )
            cursor = page.next_cursor
            if cursor is None or len(listed) > MOST_LISTED:
                break
        self.listed = listed

    def _failure(self, error: BaseException) -> VoxtuiError:
        error = _first(error)
        if isinstance(error, VoxtuiError):
            return error
        name = self.server.name
        if self.ended and not self.server.url:
            return InputError(f"The MCP server {name} has ended.", self.last_error)
        place = f"{name} at {self.server.url}" if self.server.url else name
        reason = visible_line(str(error))[:200] or type(error).__name__
        return InputError(f"The MCP server {place} failed: {reason}.", self.last_error)

    @asynccontextmanager
    async def _http(self) -> AsyncGenerator[Any]:
        headers: dict[str, str] = {}
        if variable := self.server.token_env:
            headers["Authorization"] = f"Bearer {self._variable(variable)}"
        async with (
            AsyncClient(
                headers=headers,
                timeout=Timeout(30.0, read=300.0),
                event_hooks={"response": [_limit]},
            ) as http,
            streamable_http_client(self.server.url, http_client=http) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def _stdio(self) -> AsyncGenerator[Any]:
        """Start the server as the leader of a process group, which ends with the connection."""
        environment = get_default_environment()
        environment |= {name: self._variable(name) for name in self.server.env}
        command = os.path.expanduser(self.server.command)
        if shutil.which(command, path=environment.get("PATH")) is None:
            raise InputError(
                f"The MCP server {self.server.name}: there is no program {self.server.command}.",
                "Install it, or write its whole path.",
            )
        watched, ours = os.pipe()
        try:
            # Not in the current folder, which may be another person's: `npx` and `python -m` take
            # programs from there.
            process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", _WATCHED.format(watched), command, *self.server.args,
                stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=Path.home(), env=environment,
                pass_fds=(watched,), start_new_session=True, limit=LONGEST_MESSAGE,
            )  # fmt: skip
        except OSError as error:
            os.close(ours)
            raise InputError(
                f"The MCP server {self.server.name} cannot be started: {error.strerror}."
            ) from error
        finally:
            os.close(watched)
        to_us, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        sent, to_it = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, process, to_us)
            tasks.start_soon(_write, process, to_it)
            tasks.start_soon(self._read_stderr, process)
            try:
                yield received, sent
            finally:
                with anyio.CancelScope(shield=True):
                    await _end_group(process)
                os.close(ours)
                tasks.cancel_scope.cancel()

    def _variable(self, name: str) -> str:
        if value := os.environ.get(name, "").strip():
            return value
        raise InputError(
            f"The MCP server {self.server.name} needs the environment variable {name}."
        )

    async def _read(self, process: Process, to_us: Any) -> None:
        """Forward the messages on stdout. Drop everything that is no message."""
        assert process.stdout is not None
        async with to_us:
            with suppress(ValueError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                while line := await process.stdout.readline():
                    with suppress(ValueError):
                        message = mcp_types.jsonrpc_message_adapter.validate_json(
                            line, by_name=False
                        )
                        await to_us.send(SessionMessage(message))
        self._end.set()

    async def _read_stderr(self, process: Process) -> None:
        assert process.stderr is not None
        while piece := await process.stderr.read(STDERR_BYTES):
            self._stderr = (self._stderr + piece)[-STDERR_BYTES:]


class _Limited(AsyncByteStream):
    def __init__(self, stream: AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        size = 0
        async for piece in self._stream:
            if (size := size + len(piece)) > LONGEST_MESSAGE:
                raise StreamError(f"more than {LONGEST_MESSAGE // 10**6} MB")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _limit(response: Response) -> None:
    """Limit an answer that is read as a whole; events are read one by one."""
    if "event-stream" not in response.headers.get("content-type", ""):
        assert isinstance(response.stream, AsyncByteStream)
        response.stream = _Limited(response.stream)


def _first(error: BaseException) -> BaseException:
    """Return the first error in the groups of a task group."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return _first(group.exceptions[0])
    return error


async def _write(process: Process, to_it: Any) -> None:
    assert process.stdin is not None
    with suppress(OSError):
        async with to_it:
            async for message in to_it:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()


async def _end_group(process: Process) -> None:
    """End the process and its children: close stdin, send SIGTERM, then SIGKILL."""
    assert process.stdin is not None
    try:
        process.stdin.close()
        _signal_group(process, signal.SIGTERM)
        await _exited(process)
    finally:
        _signal_group(process, signal.SIGKILL)
    await _exited(process)
    # One that left its group may hold the pipes open.
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001


async def _exited(process: Process) -> None:
    """Wait for the exit for at most END_SECONDS. `process.wait` would also wait for the pipes."""
    for _ in range(20):
        if process.returncode is not None:
            return
        await asyncio.sleep(END_SECONDS / 20)


def _signal_group(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _accept(name: str, result: mcp_types.CallToolResult) -> None:
    """Check nothing: only the text of a result is used."""


def _text(result: mcp_types.CallToolResult) -> str:
    """Return the texts of a result; sounds and pictures only by name."""
    parts: list[str] = []
    for part in result.content:
        match part:
            case mcp_types.TextContent(text=text):
                parts.append(text)
            case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents(text=text)):
                parts.append(text)
            case _:
                parts.append(f"({part.type.replace('_', ' ')})")
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)
