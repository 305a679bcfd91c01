"""uvicorn's protocols, which also drop clients that do not send their headers or do not read.

uvicorn waits for a reader without a limit, and closes a connection only once all is sent. Such a
client would hold a set of models.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from voxtui.serve.openai_types import HttpError

Base = asyncio.Protocol if TYPE_CHECKING else object

HEADER_SECONDS = 15.0
"""Maximum time from the start of a connection, or of a later request, to the end of its headers."""


STALL_SECONDS = 60.0
"""Time after which a client that takes no byte is dropped, as by nginx's `send_timeout`."""


class DropsStalled(Base):
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _stalls: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # pauses for each byte that waits

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch(math.inf)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalls is not None:
            self._stalls.cancel()

    def _watch(self, before: float) -> None:
        waiting = self.transport.get_write_buffer_size()
        if waiting < before:
            self._stalls = self.loop.call_later(STALL_SECONDS, self._watch, waiting)
        else:
            self.transport.abort()


class WebSocketProtocol(DropsStalled, WSProtocol):
    pass


class HttpProtocol(DropsStalled, H11Protocol):
    _headers: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_headers()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_headers()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        """Limit the time of headers that have begun, and of those of a new connection."""
        if self.conn.their_state is not h11.IDLE:
            self._stop_headers()
        elif self._headers is None and not self.timeout_keep_alive_task:
            self._headers = self.loop.call_later(HEADER_SECONDS, self._refuse)

    def _stop_headers(self) -> None:
        if self._headers is not None:
            self._headers.cancel()
            self._headers = None

    def _refuse(self) -> None:
        message = f"The headers took longer than {HEADER_SECONDS:g} s."
        body = HttpError(408, message, code="timeout").body
        head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        start = f"HTTP/1.1 408 Request Timeout\r\n{head}connection: close\r\n\r\n"
        self.transport.write(start.encode() + body)
        self.transport.close()
