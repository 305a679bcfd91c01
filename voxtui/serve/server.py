"""A uvicorn server that announces when it listens, and ends WebSocket sessions when it stops."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from anyio import to_thread

from voxtui.serve.realtime.connection import DRAIN_SECONDS

if TYPE_CHECKING:
    from voxtui.serve.realtime.calls import Calls

MOST_FILES = 65_536

LAST_SECONDS = 6.0
"""Time after which the process ends, even inside native code."""


class AnnouncingServer(uvicorn.Server):
    """Calls `announce` once it accepts connections, and ends `calls` before it closes them.

    uvicorn itself waits for HTTP answers, but closes a WebSocket at once.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        calls: Calls,
        announce: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._calls = calls
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # The pool limits the requests. With anyio's 40 threads the 41st stream would wait.
        to_thread.current_default_thread_limiter().total_tokens = math.inf
        await super().startup(sockets=sockets)
        if self.started:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()  # accept no more connections
        began = time.monotonic()
        await self._calls.drain()
        left = math.ceil(DRAIN_SECONDS - (time.monotonic() - began))
        self.config.timeout_graceful_shutdown = max(1, left)
        await super().shutdown(sockets=sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after SIGINT or SIGTERM. Main thread."""
        if not self.should_exit:
            # A call into a model cannot be stopped, and Python waits for its thread.
            last = threading.Timer(LAST_SECONDS, end_process)
            last.daemon = True
            last.start()
        super().handle_exit(sig, frame)


def end_process() -> None:
    """End this process, and first those of its chat models, which end with their standard input.

    The system would close that only after it has freed the memory of this process.
    """
    os.closerange(3, MOST_FILES)
    os._exit(0)
