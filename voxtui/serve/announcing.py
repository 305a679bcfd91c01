"""A uvicorn server that reports when it listens."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn


class Announcing(uvicorn.Server):
    """Calls `announce` once it accepts connections."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._announce()
