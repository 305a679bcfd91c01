"""`GET /v1/realtime`: a session over a WebSocket."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from voxtui.serve.access import error_response
from voxtui.serve.openai_types import HttpError
from voxtui.serve.realtime.connection import ENDPOINT, TRY_AGAIN
from voxtui.serve.upload import Disconnected

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from voxtui.serve.realtime.connection import Sessions

PROTOCOL = "realtime"
"""The subprotocol that browsers offer. The one with the key is never echoed."""


class Realtime:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        websocket = WebSocket(scope, receive, send)
        answered = self._sessions.metrics.answered
        try:
            settings = self._sessions.settings(websocket)
        except HttpError as refusal:
            answered(ENDPOINT, refusal.status)
            await websocket.send_denial_response(error_response(refusal))
            return
        protocol = PROTOCOL if PROTOCOL in scope.get("subprotocols", ()) else None
        try:
            async with self._sessions.lend() as parts:
                await websocket.accept(protocol)
                await self._sessions.run(_Transport(websocket), parts, settings)
            answered(ENDPOINT, 101)
        except HttpError as refusal:  # a browser cannot read the answer to a refused upgrade
            answered(ENDPOINT, refusal.status)
            await websocket.accept(protocol)
            error = {"type": "error", "event_id": "event_refused", "error": refusal.error}
            with suppress(WebSocketDisconnect):
                await websocket.send_text(msgspec.json.encode(error).decode())
                await websocket.close(TRY_AGAIN)


class _Transport:
    output = None

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def receive(self) -> str | bytes:
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise Disconnected
        return message.get("text") or message.get("bytes") or ""

    async def send(self, message: str) -> None:
        try:
            await self._websocket.send_text(message)
        except (WebSocketDisconnect, RuntimeError) as gone:
            raise Disconnected from gone

    async def close(self, code: int, reason: str) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):
            await self._websocket.close(code, reason)
