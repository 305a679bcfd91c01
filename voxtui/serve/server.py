"""A uvicorn server that says when it listens, and lets WebSockets finish when it stops."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Coroutine

import uvicorn
from anyio import to_thread


class AnnouncingServer(uvicorn.Server):
    """Calls `announce` once it accepts connections, and awaits `drain` before it closes them.

    uvicorn itself lets an HTTP answer end, but closes a WebSocket at once.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        announce: Callable[[], None],
        drain: Callable[[], Coroutine[object, object, None]],
    ) -> None:
        super().__init__(config)
        self._announce = announce
        self._drain = drain

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # The pool limits the requests. With anyio's 40 threads the 41st stream would wait.
        to_thread.current_default_thread_limiter().total_tokens = math.inf
        await super().startup(sockets=sockets)
        if self.started:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()  # accept no more connections
        await self._drain()
        await super().shutdown(sockets=sockets)
