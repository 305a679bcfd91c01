"""uvicorn's HTTP, which also refuses a client whose headers take too long.

A client that does not read what it is sent is dropped by the system (`serve_command.bound`).
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from voxtui.serve.openai_types import HttpError

HEADER_SECONDS = 15.0
"""Maximum time from the start of a connection, or of a later request, to the end of its headers."""


class HttpProtocol(H11Protocol):
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
