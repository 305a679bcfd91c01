"""A client of `/v1/realtime` that speaks, requests an answer, and times its arrival."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from voxtui.errors import RemoteError, how_to_install

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

RATE = 24_000
"""Sample rate of the protocol in Hz."""

PIECE_SECONDS = 0.04
"""Seconds of sound in each message."""

PATIENCE_SECONDS = 120.0

ANSWERED = ("completed", "incomplete")
"""Final states of an answer; the second one means that it reached its maximum length."""

PUSH_TO_TALK = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}


class Busy(Exception):
    """All sessions of the server are in use."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Milliseconds from the commit, at the client."""

    first_text_ms: float | None
    first_sound_ms: float | None
    total_ms: float


def messages(samples: Samples) -> list[bytes]:
    """Return the messages that carry `samples` (float32 at RATE), each with PIECE_SECONDS."""
    pcm = (np.clip(samples, -1, 1) * 32767).astype("<i2")
    size = round(PIECE_SECONDS * RATE)
    return [
        _encoded(
            type="input_audio_buffer.append", audio=b64encode(pcm[i : i + size].tobytes()).decode()
        )
        for i in range(0, len(pcm), size)
    ]


def _encoded(**event: Any) -> bytes:
    return json.dumps(event).encode()


ASK = [_encoded(type="input_audio_buffer.commit"), _encoded(type="response.create")]


class Line:
    """A session. Used by one task."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from wsproto import ConnectionType, WSConnection

        self._reader = reader
        self._writer = writer
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._events: deque[dict[str, Any]] = deque()
        self._text = ""
        """the beginning of a message"""
        self._ended = ""
        """the reason for which no event follows; empty if one may"""

    @classmethod
    async def open(cls, url: str) -> Line:
        """Open a session of push to talk. Raises Busy and RemoteError."""
        try:
            from wsproto.events import Request
        except ImportError as error:
            raise RemoteError("No WebSocket library.", how_to_install("serve")) from error
        parts = urlsplit(url)
        assert parts.hostname
        try:
            line = cls(*await asyncio.open_connection(parts.hostname, parts.port))
        except OSError as error:
            raise RemoteError(f"{parts.netloc}: cannot connect: {error.strerror}.") from error
        line._write(line._protocol.send(Request(parts.netloc, f"{parts.path}/realtime")))
        try:
            await line._until("session.created")
            await line.send(_encoded(type="session.update", session=PUSH_TO_TALK))
            await line._until("session.updated")
        except BaseException:
            line.close()
            raise
        return line

    async def turn(self, spoken: list[bytes]) -> Answer:
        """Speak in real time, request the answer, and receive it. Raises RemoteError."""
        began = time.monotonic()
        for count, message in enumerate(spoken, 1):
            await asyncio.sleep(began + count * PIECE_SECONDS - time.monotonic())
            await self.send(message)
        asked = time.monotonic()
        await self.send(*ASK)
        first: dict[str, float] = {}
        while True:
            event = await self._next()
            at = (time.monotonic() - asked) * 1000
            first.setdefault(event["type"], at)
            if event["type"] == "response.done":
                response = event["response"]
                if response["status"] not in ANSWERED:
                    reason = (response["status_details"] or {}).get("error", {})
                    raise RemoteError(f"{response['status']}: {reason.get('message', '')}")
                break
        text = first.get("response.output_audio_transcript.delta")
        if text is None:
            raise RemoteError("The server heard nothing, or answered without words.")
        return Answer(text, first.get("response.output_audio.delta"), at)

    async def keep_open(self) -> None:
        """Answer the pings of the server, until this task is cancelled."""
        while True:
            await self._next()

    async def send(self, *texts: bytes) -> None:
        from wsproto.events import TextMessage

        for text in texts:
            self._write(self._protocol.send(TextMessage(text.decode())))
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        """Disconnect without a message, as a killed client does."""
        self._writer.transport.abort()

    def _write(self, data: bytes) -> None:
        self._writer.write(data)

    async def _until(self, kind: str) -> None:
        while (await self._next())["type"] != kind:
            pass

    async def _next(self) -> dict[str, Any]:
        """Return the next event. Raises Busy and RemoteError."""
        while not self._events:
            if self._ended:
                raise RemoteError(self._ended)
            async with asyncio.timeout(PATIENCE_SECONDS):
                data = await self._reader.read(65536)
            self._protocol.receive_data(data or None)
            for event in self._protocol.events():
                self._take(event)
        event = self._events.popleft()
        if event["type"] == "error":
            if event["error"]["code"] == "session_limit_reached":
                raise Busy
            raise RemoteError(f"The server refused: {event['error']['message']}")
        return event

    def _take(self, event: object) -> None:
        from wsproto import events

        match event:
            case events.TextMessage(data=text, message_finished=finished):
                self._text += text
                if finished:
                    self._events.append(json.loads(self._text))
                    self._text = ""
            case events.Ping():
                self._write(self._protocol.send(event.response()))
            case events.RejectConnection(status_code=status):
                self._ended = f"The server refused the session (HTTP {status})."
            case events.CloseConnection(code=code):
                self._ended = f"The server closed the session ({code})."
            case _:
                pass
