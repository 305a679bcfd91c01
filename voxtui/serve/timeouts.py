"""uvicorn's protocols, which also drop a client that neither sends nor receives.

uvicorn waits for such a client without a limit: even after a missed ping it closes the connection
only once all is sent. Meanwhile the client holds a set of models. The limit is that of nginx
(`send_timeout`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from voxtui.serve.openai_types import HttpError

if TYPE_CHECKING:
    Base = asyncio.Protocol
else:
    Base = object

STALL_SECONDS = 60.0

HEADER_SECONDS = 15.0
"""Maximum time from the start of a connection, or of a later request, to the end of its headers."""


class _DropsStalled(Base):
    """Aborts a connection that sends nothing for STALL_SECONDS although bytes wait."""

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


class HttpProtocol(_DropsStalled, H11Protocol):
    """Also refuses a client whose headers take longer than HEADER_SECONDS."""

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


class WebSocketProtocol(_DropsStalled, WSProtocol): ...
