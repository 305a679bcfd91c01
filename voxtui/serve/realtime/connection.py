"""A session over any transport, with its own engine on shared models."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np
from anyio import to_thread
from msgspec.structs import replace

from voxtui.dialogue.components.components import Models
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.dialogue import FrontEnd
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.events import StateChanged
from voxtui.serve.access import token_of
from voxtui.serve.endpoints.transcriptions import check_model
from voxtui.serve.openai_types import SERVER, HttpError
from voxtui.serve.realtime.output_buffer import TRACK_RATE
from voxtui.serve.realtime.protocol import new_id
from voxtui.serve.realtime.realtime_session import RealtimeSession, SessionEvent
from voxtui.serve.realtime.session_settings import RATE, SESSION_SECONDS, Settings
from voxtui.serve.realtime.wire_audio import MOST_WAITING, WireMicrophone, WireSpeaker
from voxtui.serve.upload import Disconnected

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import HTTPConnection

    from voxtui.dialogue.data import Samples
    from voxtui.dialogue.timestamps import Turn
    from voxtui.serve.metrics import Metrics
    from voxtui.serve.realtime.client_secrets import ClientKeys
    from voxtui.serve.realtime.output_buffer import OutputBuffer
    from voxtui.serve.shared_models import ModelSet, Pool
    from voxtui.settings.schema import Config

ENDPOINT = "realtime"

IDLE_SECONDS = 300.0
"""Time without a word of either side after which a session is closed."""

DRAIN_SECONDS = 5.0
"""Maximum time for an answer in progress after a request to stop. The system then takes two or
three seconds, on a busy machine more, to free the memory; a service has ten seconds in all."""

NORMAL, GOING_AWAY, TOO_SLOW, INTERNAL_ERROR, TRY_AGAIN = 1000, 1001, 1008, 1011, 1013
"""Close codes of RFC 6455 and its registry. 1008 is for a violation without a code of its own."""

MOST_QUEUED = 2 * MOST_WAITING
"""Maximum bytes of messages that wait for a slow client. Speech alone stays below half of it."""


class Transport(Protocol):
    """Carries messages, and perhaps sound. Each method may raise Disconnected."""

    @property
    def output(self) -> OutputBuffer | None:
        """The buffer that plays the answers over a track; None if sound is sent in messages."""

    async def receive(self) -> str | bytes | Samples:
        """Return the next message, or the next sound of the track."""
        ...

    async def send(self, message: str) -> None: ...

    async def close(self, code: int, reason: str) -> None: ...


class Sessions:
    """The sessions in progress. `default` are the settings of a client that sets nothing."""

    def __init__(
        self,
        pool: Pool,
        config: Config,
        default: Settings,
        client_keys: ClientKeys,
        metrics: Metrics,
    ) -> None:
        self.metrics = metrics
        self._pool = pool
        self.config = config
        self._default = default
        self._client_keys = client_keys
        self._connections: set[Connection] = set()
        self.draining = False

    def settings(self, request: HTTPConnection) -> Settings:
        """Return the settings from the key and the query of a request. Raises HttpError."""
        name = request.query_params.get("model", "")
        key = token_of(request.scope, request.headers)
        settings = self._client_keys.get(key) or self._default
        if request.query_params.get("intent") == "transcription":
            settings = replace(settings, type="transcription")
        return self.of_model(settings, name)

    def of_model(self, settings: Settings, name: str) -> Settings:
        """Return `settings` for the model that a client names. Raises HttpError."""
        check_model(name, self._default.model)
        return replace(settings, model=name or settings.model)

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[ModelSet]:
        if not self._pool.has_brains:
            raise HttpError(404, "No chat model is loaded here.", code="model_not_found")
        if self.draining:
            raise HttpError(503, "The server is stopping.", kind=SERVER, code="server_stopping")
        async with self._pool.lend() as parts:
            yield parts

    async def run(self, transport: Transport, parts: ModelSet, settings: Settings) -> None:
        """Serve a client until either side closes. The models are free again afterwards."""
        connection = Connection(transport, parts, settings, self)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def drain(self) -> None:
        """End each answer, then close each connection. No new answer begins."""
        self.draining = True
        waiting = [connection.drained() for connection in self._connections]
        await asyncio.gather(*waiting)


class Connection:
    """One client: reads its messages, and writes those of the session."""

    def __init__(
        self, transport: Transport, parts: ModelSet, settings: Settings, sessions: Sessions
    ) -> None:
        self.output = transport.output
        self._sessions = sessions
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._active_at = self._loop.time()
        self._out: asyncio.Queue[bytes | tuple[int, str]] = asyncio.Queue()
        """messages, and at the end the code and the reason with which the connection is closed"""
        self._queued = 0
        self._begun = asyncio.Event()
        self._drained = asyncio.Event()
        self._closed = False
        self._engine = self._made_engine(parts)
        self._session = RealtimeSession(self._engine, sessions.config, settings, self)

    async def run(self) -> None:
        self._engine.start()
        writer = asyncio.create_task(self._write())
        try:
            async with asyncio.timeout(SESSION_SECONDS):
                await self._read()
        except Disconnected:
            pass
        except TimeoutError:
            idle = self._loop.time() >= self._active_at + IDLE_SECONDS
            why = f"A session lasts {SESSION_SECONDS // 60} min."
            if idle:
                why = f"Neither side has said anything for {IDLE_SECONDS / 60:g} min."
            self._session.report_error(why, "session_expired")
            self._close(NORMAL)
            await writer
        finally:
            writer.cancel()
            self._drained.set()
            await to_thread.run_sync(self._engine.close)

    async def drained(self) -> None:
        """Close the connection once each answer is generated and played, or after DRAIN_SECONDS."""
        if not self._speaking:
            self._close(GOING_AWAY)
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._drained.wait()

    async def _read(self) -> None:
        """Handle messages, from `session.created` on. Raises Disconnected and TimeoutError."""
        await self._begun.wait()
        while True:
            try:
                async with asyncio.timeout_at(self._active_at + IDLE_SECONDS):
                    received = await self._transport.receive()
            except TimeoutError:
                if self._session.answering:
                    self._active_at = self._loop.time()
                if self._loop.time() < self._active_at + IDLE_SECONDS:
                    continue
                raise
            if self._sessions.draining:
                continue
            if isinstance(received, np.ndarray):
                self._session.take_sound(received)
            else:
                self._active_at = self._loop.time()
                self._session.take_message(received)

    async def _write(self) -> None:
        with suppress(Disconnected):
            while isinstance(out := await self._out.get(), bytes):
                await self._transport.send(out.decode())
                self._queued -= len(out)
            await self._transport.close(*out)
        self._drained.set()

    def _close(self, code: int, reason: str = "") -> None:
        """Close the connection after the queued messages. Nothing is sent afterwards."""
        if not self._closed:
            self._closed = True
            self._out.put_nowait((code, reason))

    @property
    def _speaking(self) -> bool:
        return self._session.answering or (self.output is not None and self.output.playing)

    @property
    def waiting(self) -> int:
        return self._queued if self.output is None else self.output.waiting

    def send(self, type: str, **fields: object) -> None:  # noqa: A002 (a field of the protocol)
        if self._closed:
            return
        out = msgspec.json.encode({"type": type, "event_id": new_id("event"), **fields})
        if self._queued + len(out) > MOST_QUEUED:
            while not self._out.empty():
                self._out.get_nowait()
            self._close(TOO_SLOW, "The client reads too slowly.")
            return
        self._queued += len(out)
        self._out.put_nowait(out)
        self._active_at = self._loop.time()
        self._begun.set()
        if self._sessions.draining and not self._speaking:
            self._close(GOING_AWAY)

    def answered(self, turn: Turn) -> None:
        stages = {
            "first_token": turn.ttft_ms, "total": turn.total_ms, "hidden": turn.speculative_s * 1000
        }  # fmt: skip
        took = {name: ms / 1000 for name, ms in stages.items() if ms is not None}
        self._sessions.metrics.took(ENDPOINT, 0.0, **took)

    def failed(self) -> None:
        self._begun.set()
        self._close(INTERNAL_ERROR)

    def deliver(self, event: SessionEvent) -> None:
        """Schedule `take_event` on the event loop. Any thread.

        Events that the protocol does not show, such as states after the start, are dropped, because
        each event that wakes the loop takes the interpreter from the turn.
        """
        if isinstance(event, StateChanged) and self._begun.is_set():
            return
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._session.take_event, event)

    def _made_engine(self, parts: ModelSet) -> Engine:
        """Return an engine on shared models, with the wire as its microphone and speaker."""
        assert parts.brain is not None
        config = self._sessions.config
        vad = replace(config.vad, hands_free=False, listen_while_speaking=False, name="")
        models = Models(parts.detector, parts.brain, parts.voice, parts.overhearing, owned=False)
        speaker = WireSpeaker(self, RATE if self.output is None else TRACK_RATE)
        devices, front_end = Devices(WireMicrophone(), speaker), FrontEnd(captions=True)
        return Engine(models, replace(config, vad=vad), self.deliver, devices, front_end=front_end)
