"""`GET /v1/realtime`: a session over a WebSocket, with an engine of its own on lent parts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace
from starlette.websockets import WebSocket, WebSocketDisconnect

from voxtui.dialogue.engine import Engine
from voxtui.serve.guard import refused, token_of
from voxtui.serve.lent import LentBrain, LentVoice
from voxtui.serve.realtime.line import WireMicrophone, WireSpeaker
from voxtui.serve.realtime.session import Session, SessionEvent
from voxtui.serve.realtime.settings import SESSION_SECONDS, Json, Settings
from voxtui.serve.shapes import Refusal
from voxtui.serve.transcriptions import check_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from voxtui.dialogue.events import Event
    from voxtui.dialogue.marks import Turn
    from voxtui.serve.guard import ClientKeys
    from voxtui.serve.metrics import Metrics
    from voxtui.serve.pool import Pool, WarmParts
    from voxtui.settings.schema import Config

ENDPOINT = "realtime"

IDLE_SECONDS = 300.0
"""A client that sends nothing for so long is given up."""

DRAIN_SECONDS = 8.0
"""After a request to stop, an answer that has begun gets so long. uvicorn waits 10 s in all."""

NORMAL, GOING_AWAY, INTERNAL_ERROR, TRY_AGAIN = 1000, 1001, 1011, 1013
"""Codes of RFC 6455 and its registry."""

PROTOCOL = "realtime"
"""The subprotocol that browsers offer. The one with the key is never echoed."""

Out: TypeAlias = bytes | int
"""A message, or the code that closes the connection."""


class Realtime:
    """An endpoint. `default`: the session of a client that sets nothing."""

    def __init__(
        self,
        pool: Pool,
        config: Config,
        default: Settings,
        client_keys: ClientKeys[Settings],
        metrics: Metrics,
    ) -> None:
        self._pool = pool
        self._config = config
        self._default = default
        self._client_keys = client_keys
        self._metrics = metrics
        self._connections: set[Connection] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        websocket = WebSocket(scope, receive, send)
        try:
            settings = self._settings(websocket)
        except Refusal as refusal:
            self._metrics.answered(ENDPOINT, refusal.status)
            await websocket.send_denial_response(refused(refusal))
            return
        protocol = PROTOCOL if PROTOCOL in scope.get("subprotocols", ()) else None
        try:
            if not self._pool.has_brains:
                raise Refusal(404, "No chat model is loaded here.", code="model_not_found")
            async with self._pool.lend() as parts:
                await websocket.accept(protocol)
                connection = Connection(websocket, parts, self._config, settings, self._answered)
                self._connections.add(connection)
                try:
                    await connection.run()
                finally:
                    self._connections.discard(connection)
            self._metrics.answered(ENDPOINT, 101)
        except Refusal as refusal:  # a browser cannot read the answer to a refused upgrade
            self._metrics.answered(ENDPOINT, refusal.status)
            await websocket.accept(protocol)
            error = {"type": "error", "event_id": "event_refused", "error": refusal.error}
            with suppress(WebSocketDisconnect):
                await websocket.send_text(msgspec.json.encode(error).decode())
                await websocket.close(TRY_AGAIN)

    async def drain(self) -> None:
        """Let each answer end, then close each connection. No new answer begins."""
        waiting = [connection.drained() for connection in self._connections]
        await asyncio.gather(*waiting)

    def _settings(self, websocket: WebSocket) -> Settings:
        name = websocket.query_params.get("model", "")
        check_model(name, self._default.model)
        key = token_of(websocket.scope, websocket.headers)
        settings = self._client_keys.get(key) or self._default
        if websocket.query_params.get("intent") == "transcription":
            settings = replace(settings, type="transcription")
        return replace(settings, model=name or settings.model)

    def _answered(self, turn: Turn) -> None:
        stages = {
            "first_token": turn.ttft_ms, "total": turn.total_ms, "hidden": turn.speculative_s * 1000
        }  # fmt: skip
        took = {name: ms / 1000 for name, ms in stages.items() if ms is not None}
        self._metrics.took(ENDPOINT, 0.0, **took)


class Connection:
    """One client: reads its messages, and writes what the session sends."""

    def __init__(
        self,
        websocket: WebSocket,
        parts: WarmParts,
        config: Config,
        settings: Settings,
        answered: Callable[[Turn], object],
    ) -> None:
        self._websocket = websocket
        self._loop = asyncio.get_running_loop()
        self._out: asyncio.Queue[Out] = asyncio.Queue()
        self._waiting = 0
        """bytes of it"""
        self._begun = asyncio.Event()
        """the engine is ready, or has failed"""
        self._drained = asyncio.Event()
        self._draining = False
        self._session = Session(
            lambda emit: engine(config, parts, emit, self._deliver, lambda: self._waiting),
            config, settings, self._send, self._deliver, self._failed, answered,
        )  # fmt: skip

    async def run(self) -> None:
        """Serve until either side closes. The parts are free again afterwards."""
        self._session.start()
        writer = asyncio.create_task(self._write())
        try:
            async with asyncio.timeout(SESSION_SECONDS):
                await self._read()
        except WebSocketDisconnect:
            pass
        except TimeoutError:
            self._session.expire()
            self._out.put_nowait(NORMAL)
            await writer
        finally:
            writer.cancel()
            self._drained.set()
            await asyncio.to_thread(self._session.close)

    async def drained(self) -> None:
        """Close the connection once no answer is in progress, or after DRAIN_SECONDS."""
        self._draining = True
        if not self._session.answering:
            self._out.put_nowait(GOING_AWAY)
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._drained.wait()

    async def _read(self) -> None:
        """Take messages. Raises WebSocketDisconnect and TimeoutError.

        Some clients send before `session.created`. The connection keeps that until then.
        """
        await self._begun.wait()
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    message = await self._websocket.receive()
            except TimeoutError:
                if self._session.answering:
                    continue
                raise
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code", NORMAL))
            if not self._draining:
                self._session.take_message(message.get("text") or message.get("bytes") or "")

    async def _write(self) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):
            while isinstance(out := await self._out.get(), bytes):
                await self._websocket.send_text(out.decode())
                self._waiting -= len(out)
            await self._websocket.close(out)
        self._drained.set()

    def _send(self, event: Json) -> None:
        out = msgspec.json.encode(event)
        self._waiting += len(out)
        self._out.put_nowait(out)
        self._begun.set()
        if self._draining and event["type"] == "response.done":
            self._out.put_nowait(GOING_AWAY)

    def _failed(self, why: str) -> None:
        self._begun.set()
        self._out.put_nowait(INTERNAL_ERROR)

    def _deliver(self, event: SessionEvent) -> None:
        """Take an event of any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._session.take_event, event)


def engine(
    config: Config,
    parts: WarmParts,
    emit: Callable[[Event], object],
    deliver: Callable[[SessionEvent], object],
    waiting: Callable[[], int],
) -> Engine:
    """Return an engine on lent parts, with the wire as its microphone and speaker."""
    assert parts.brain is not None
    return Engine(
        microphone=WireMicrophone(),
        speaker=WireSpeaker(deliver, waiting),
        detector=parts.detector,
        brain=LentBrain(parts.brain),
        voice=LentVoice(parts.voice) if parts.voice is not None else None,
        config=replace(config, vad=replace(config.vad, hands_free=False,
                                           listen_while_speaking=False)),
        emit=emit,
        overhearing=parts.overhearing,
        local=False,
        captions=True,
    )  # fmt: skip
