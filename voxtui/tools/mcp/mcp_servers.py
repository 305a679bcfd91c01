"""Connections to MCP servers: each is opened by its first call, and stays open.

The SDK takes over a second to import, so that happens on the loop's thread, at the first call.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from voxtui.dialogue.tool_interface import LONGEST_RESULT, ToolResult
from voxtui.errors import InputError, how_to_install
from voxtui.settings.schema import McpServer
from voxtui.tools.mcp.approvals import AllowedTool, ListedTool
from voxtui.tools.mcp.visible_text import visible, visible_line

if TYPE_CHECKING:
    from voxtui.tools.mcp.mcp_session import Session

CONNECT_SECONDS = 30.0
"""Maximum time for the start of a server before a call."""

INSTALL_SECONDS = 180.0
"""Maximum time for a start in which `npx` or `uvx` may install the server."""

CALL_SECONDS = 30.0

CLOSE_SECONDS = 1.0
"""Maximum wait for the end of all servers. They get 0.2 s before they are killed."""

TICK_SECONDS = 0.02

READ_ALOUD = 200
"""Maximum characters of a result that is spoken unchanged."""

LONGEST_ERROR = 200

T = TypeVar("T")

NEVER = threading.Event()


class McpServers:
    """The servers of a configuration, and the thread that talks to them. Any thread may call."""

    def __init__(self, servers: Sequence[McpServer]) -> None:
        self._servers = {server.name: server for server in servers}
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def list_tools(self, name: str, cancelled: threading.Event = NEVER) -> tuple[ListedTool, ...]:
        """Connect to the server `name` and return its list of tools. Raises InputError."""
        loop = self._running_loop()
        return self._wait(asyncio.run_coroutine_threadsafe(self._list(name), loop), cancelled)

    def call(self, allowed: AllowedTool, arguments: str, cancelled: threading.Event) -> ToolResult:
        """Call an allowed tool if its description is unchanged. Raises InputError."""
        try:
            values = msgspec.json.decode(arguments, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise InputError(f"{allowed.tool.name}: the arguments are no JSON object.") from error
        loop = self._running_loop()
        called = asyncio.run_coroutine_threadsafe(self._call(allowed, values), loop)
        return self._wait(called, cancelled)

    def close(self) -> None:
        """End the servers and the thread. May be called twice, and without a call before."""
        with self._lock:
            self._closed = True
            loop, thread, self._thread = self._loop, self._thread, None
        if loop is not None and thread is not None:
            ended = asyncio.run_coroutine_threadsafe(self._end(), loop)
            with suppress(TimeoutError):
                ended.result(CLOSE_SECONDS)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(CLOSE_SECONDS)

    # Any thread.

    def _wait(self, future: Future[T], cancelled: threading.Event) -> T:
        while True:
            try:
                return future.result(TICK_SECONDS)
            except TimeoutError:
                if cancelled.is_set() or self._closed:
                    future.cancel()
                    raise InputError("The call was cancelled.") from None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if find_spec("mcp") is None:
            raise InputError("MCP servers need mcp, which is not installed.", how_to_install("mcp"))
        with self._lock:
            if self._closed:
                raise InputError("voxtui is ending.")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="voxtui-mcp", daemon=True
                )
                self._thread.start()
            return self._loop

    # The loop's thread.

    async def _list(self, name: str) -> tuple[ListedTool, ...]:
        return tuple((await self._connected(name, INSTALL_SECONDS)).listed.values())

    async def _call(self, allowed: AllowedTool, values: dict[str, Any]) -> ToolResult:
        server, name = self._servers[allowed.server], allowed.tool.name
        session = await self._connected(allowed.server, CONNECT_SECONDS)
        listed = session.listed.get(name)
        if listed is None or listed.digest(server.origin) != allowed.digest:
            what = "no longer offers" if listed is None else "describes in another way"
            raise InputError(
                f"The server {server.name} {what} the tool {name}, so it was not called.",
                f"To look at it and allow it again: voxtui tools allow {server.name}",
            )
        try:
            async with asyncio.timeout(CALL_SECONDS):
                text, failed = await session.call(name, values)
        except TimeoutError:
            session.end()  # the next call begins with a fresh one
            raise InputError(
                f"{server.name} did not answer within {CALL_SECONDS:.0f} seconds."
            ) from None
        text = visible(text[: 2 * LONGEST_RESULT]).strip()[:LONGEST_RESULT]
        if failed:
            reason = visible_line(text)[:LONGEST_ERROR] or "it does not say why"
            raise InputError(f"{server.name} could not do it: {reason}")
        return ToolResult(text, _sentence(text))

    async def _connected(self, name: str, seconds: float) -> Session:
        """Return the open connection to a server, or open a new one. Raises InputError."""
        if name not in self._servers:
            known = ", ".join(self._servers) or "none is configured"
            raise InputError(f"There is no MCP server {name}; known are: {known}.")
        from voxtui.tools.mcp.mcp_session import Session  # 1.2 s of a core

        if self._closed:
            raise InputError("voxtui is ending.")
        session = self._sessions.get(name)
        if session is None or session.ended:
            session = self._sessions[name] = Session(self._servers[name])
        try:
            async with asyncio.timeout(seconds):
                await session.ready()
        except TimeoutError:
            session.end()
            raise InputError(
                f"{name} did not answer within {seconds:.0f} seconds.", session.last_error
            ) from None
        return session

    async def _end(self) -> None:
        sessions = [*self._sessions.values()]
        for session in sessions:
            session.end()
        await asyncio.gather(*(session.closed() for session in sessions))


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    unfinished = asyncio.all_tasks(loop)
    for task in unfinished:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*unfinished, return_exceptions=True))
    loop.close()


def _sentence(text: str) -> str:
    """Return `text` as the answer if it is short prose, which no brain needs to word."""
    if not text:
        return "Done."
    is_prose = len(text) <= READ_ALOUD and not re.search(r"[{}\[\]<>|\n*_=]|://", text)
    return f"It says: {text.rstrip('.')}." if is_prose else ""
