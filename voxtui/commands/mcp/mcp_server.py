"""The tools of `voxtui mcp`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing

from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, TextContent

from voxtui import __version__
from voxtui.commands.mcp.ears_and_voice import ANSWER_SECONDS, EarsAndVoice
from voxtui.dialogue.protocols import StopFlag
from voxtui.errors import VoxtuiError

INSTRUCTIONS = (
    "The user hears and answers by voice. Use converse to ask something, speak to report without "
    "waiting. Write one or two short sentences of plain text: no Markdown, no code, no paths."
)


async def in_thread(call: Callable[[StopFlag], str]) -> CallToolResult:
    """Run `call` on a thread. Its argument is set if the client cancels."""
    cancelled = threading.Event()
    try:
        text, failed = await asyncio.to_thread(call, cancelled), False
    except VoxtuiError as error:
        text, failed = str(error), True
    finally:
        cancelled.set()
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)


def build_server(ears_and_voice: EarsAndVoice) -> MCPServer[None]:
    """Return the server, which closes `ears_and_voice` at its end."""

    @asynccontextmanager
    async def lifespan(server: MCPServer[None]) -> AsyncGenerator[None]:
        with closing(ears_and_voice):
            yield

    server = MCPServer(
        "voxtui",
        instructions=INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
        lifespan=lifespan,
    )

    @server.tool()
    async def speak(text: str) -> CallToolResult:
        """Say plain text to the user aloud; return when they have heard it."""
        return await in_thread(lambda stopped: ears_and_voice.speak(text, stopped))

    @server.tool()
    async def listen(seconds: float = ANSWER_SECONDS) -> CallToolResult:
        """Open the microphone after a cue; return the user's words when they pause.

        seconds: the longest time that the microphone is open, up to 60.
        """
        return await in_thread(lambda stopped: ears_and_voice.listen(seconds, stopped))

    @server.tool()
    async def converse(text: str) -> CallToolResult:
        """Say plain text to the user aloud, then return the words of their spoken answer."""
        return await in_thread(lambda stopped: ears_and_voice.converse(text, stopped))

    return server
