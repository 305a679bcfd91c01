"""One HTTP request and its answer: errors, disconnection and event streams of all endpoints."""

from __future__ import annotations

import asyncio
import errno
import threading
from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.datastructures import Headers

from voxtui.serve.access import error_response
from voxtui.serve.openai_types import SERVER, HttpError, failed
from voxtui.serve.upload import Disconnected

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from voxtui.serve.metrics import Metrics
    from voxtui.serve.shared_models import Pool
    from voxtui.settings.schema import Config

EVENTS = "text/event-stream; charset=utf-8"


class Exchange:
    """A request and its answer. Used by the event loop's thread, except `cancelled`."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers = Headers(scope=scope)
        self.receive = receive
        self.client = client_of(scope, self.headers)
        self.cancelled = threading.Event()
        """the event that is set once nobody needs the answer; work on any thread then ends"""
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """the future that is done once the client has disconnected"""
        self.answer_headers: dict[str, str] = {}
        self.begun = False
        self._scope = scope
        self._send = send

    def leave(self) -> None:
        """End all work on the answer."""
        self.cancelled.set()
        if not self.left.done():
            self.left.set_result(None)

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Watch for a disconnection of the client inside the context. The body must be read before.

        Raises Disconnected at the end if the client has disconnected.
        """
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.wait((watch,))
        if self.cancelled.is_set():
            raise Disconnected

    async def _watch(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.leave()

    async def begin(self, media: str, headers: dict[str, str] | None = None) -> None:
        self.begun = True
        pairs = {"content-type": media, **self.answer_headers, **(headers or {})}
        encoded = [(name.encode(), value.encode()) for name, value in pairs.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": encoded})

    async def send(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def event(self, event: dict[str, Any] | bytes) -> None:
        """Send a server-sent event. The first one begins the response."""
        if not self.begun:
            await self.begin(EVENTS, {"cache-control": "no-cache"})
        data = event if isinstance(event, bytes) else msgspec.json.encode(event)
        await self.send(b"data: " + data + b"\n\n")

    async def end(self, data: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": data})

    async def refuse(self, refusal: HttpError) -> None:
        """Respond with an error; within a stream it is the last event."""
        if not self.begun:
            refusal.headers = {**self.answer_headers, **refusal.headers}
            await error_response(refusal)(self._scope, self.receive, self._send)
            return
        await self.event({"error": refusal.error})
        await self.end()


class Endpoint(ABC):
    """An ASGI endpoint with shared models. Starlette's own would read the rest of an upload."""

    name: str
    """the value of the label `endpoint` in the metrics"""

    def __init__(self, pool: Pool, config: Config, models: Sequence[str], metrics: Metrics) -> None:
        self.pool = pool
        self.config = config
        self.models = models
        """the names of the loaded models: the recogniser, the chat model and the voice"""
        self.metrics = metrics

    @abstractmethod
    async def answer(self, exchange: Exchange) -> None:
        """Answer a request. Raises HttpError, Disconnected and OSError."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        try:
            with self.pool.admitted(exchange.client):
                await self.answer(exchange)
        except HttpError as refusal:
            await self._refuse(exchange, refusal)
        except Disconnected:
            self.metrics.answered(self.name, 499)
        except CancelledError:  # the server stops, and its time for this request is over
            await self._refuse(exchange, HttpError(503, "The server stops.", kind=SERVER))
        except OSError as error:
            why = error.strerror or str(error)
            refusal = failed(f"The server failed: {why}.")
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                message = f"The server cannot store the sound: {why}. Try again later."
                refusal = HttpError(507, message, kind=SERVER, code="disk_full")
            await self._refuse(exchange, refusal)
        finally:
            exchange.leave()

    async def _refuse(self, exchange: Exchange, refusal: HttpError) -> None:
        self.metrics.answered(self.name, refusal.status)
        await exchange.refuse(refusal)


def client_of(scope: Scope, headers: Headers) -> str:
    """Return the address of the client.

    A proxy on this machine names the address that it saw last in X-Forwarded-For. The address only
    decides whose turn it is, so a false one opens nothing.
    """
    host = (scope.get("client") or ("", 0))[0]
    if host not in ("", "127.0.0.1", "::1"):
        return host
    return headers.get("x-forwarded-for", "").rpartition(",")[2].strip() or host
