"""DictationEndpoint over a WebSocket: 16-bit PCM at 16 kHz in, words out at each pause.

The messages are those of https://github.com/HorizonXP/voxtral.c, `web/PROTOCOL.md`.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from voxtui.audio.pcm import PcmStream
from voxtui.errors import VoxtuiError
from voxtui.serve.access import error_response
from voxtui.serve.endpoints.recognition import Recognition
from voxtui.serve.openai_types import HttpError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from voxtui.commands.transcribe import TranscriptSegment
    from voxtui.serve.metrics import Metrics
    from voxtui.serve.shared_models import Pool
    from voxtui.settings.schema import VadConfig

ENDPOINT = "dictation"

IDLE_SECONDS = 300.0
"""Time without data after which the connection is closed."""

CLOSED, INTERNAL_ERROR = 1000, 1011
"""Codes of RFC 6455."""


class _ClientMessage(msgspec.Struct):
    type: str


class DictationEndpoint:
    def __init__(self, pool: Pool, vad: VadConfig, metrics: Metrics) -> None:
        self._pool = pool
        self._vad = vad
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        websocket = WebSocket(scope, receive, send)
        try:
            texts: list[str] = []

            async def add(segment: TranscriptSegment) -> None:
                delta = f" {segment.text}" if texts else segment.text
                texts.append(segment.text)
                with suppress(WebSocketDisconnect):  # `_hear` is told of it too
                    await _send(websocket, type="transcript.delta", text=delta)

            async with self._pool.lend() as parts:
                with Recognition(parts, self._vad, add) as recognition:
                    await websocket.accept()
                    began = time.monotonic()
                    with suppress(WebSocketDisconnect):
                        await _send(websocket, type="session.created")
                        await self._hear(websocket, recognition)
                        if recognition.error is None:
                            await _send(websocket, type="transcript.done", text=" ".join(texts))
                            await websocket.close(CLOSED)
                        else:
                            await _send(websocket, type="error", message=str(recognition.error))
                            await websocket.close(INTERNAL_ERROR)
                    self._metrics.took(
                        ENDPOINT,
                        recognition.seconds,
                        infer=recognition.infer_seconds,
                        total=time.monotonic() - began,
                    )
                    self._metrics.answered(ENDPOINT, 101)
        except HttpError as refusal:
            self._metrics.answered(ENDPOINT, refusal.status)
            await websocket.send_denial_response(error_response(refusal))

    async def _hear(self, websocket: WebSocket, recognition: Recognition) -> None:
        """Feed the recogniser until `stop`. Raises WebSocketDisconnect."""
        gone: WebSocketDisconnect | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(recognition.run)
            try:
                pcm = PcmStream()
                while (data := await _next(websocket)) is not None:
                    samples = pcm.feed(data)
                    if len(samples) and recognition.error is None:
                        with suppress(VoxtuiError):  # told at the end
                            await recognition.feed(samples)
            except WebSocketDisconnect as error:
                gone = error
                recognition.abandon()
            recognition.end()
        if gone is not None:
            raise gone


async def _next(websocket: WebSocket) -> bytes | None:
    """Return the next bytes of sound; None after `stop`, or after a long silence.

    Messages of another type are ignored. A text that is no JSON counts as its own type.
    """
    while True:
        try:
            with anyio.fail_after(IDLE_SECONDS):
                message = await websocket.receive()
        except TimeoutError:
            return None
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", CLOSED))
        if (data := message.get("bytes")) is not None:
            return data
        text = message.get("text") or ""
        try:
            kind = msgspec.json.decode(text, type=_ClientMessage).type
        except msgspec.DecodeError:
            kind = text.strip()
        if kind == "stop":
            return None


async def _send(websocket: WebSocket, **message: str) -> None:
    """Send a message. Raises WebSocketDisconnect."""
    try:
        await websocket.send_text(msgspec.json.encode(message).decode())
    except RuntimeError as closed:  # what a second message after the close raises
        raise WebSocketDisconnect(CLOSED) from closed
