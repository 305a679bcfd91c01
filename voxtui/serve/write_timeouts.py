"""uvicorn's protocols, which also drop a client that takes nothing of what it is sent.

uvicorn waits for such a client without a limit: after a missed ping too, it closes the connection
only once all is sent. Meanwhile the client keeps the parts that it was lent. The limit is that of
nginx (`send_timeout`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

if TYPE_CHECKING:
    Base = asyncio.Protocol
else:
    Base = object

STALL_SECONDS = 60.0


class _DropsStalled(Base):
    """Aborts a connection of which nothing was sent for STALL_SECONDS, although something waits."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _timer: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        self._stop()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        self._timer = self.loop.call_later(STALL_SECONDS, self._check, unsent)

    def _check(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._watch()
        else:
            self.transport.abort()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class HttpProtocol(_DropsStalled, H11Protocol): ...


class WebSocketProtocol(_DropsStalled, WSProtocol): ...
