"""One HTTP connection to a server: timed requests, which can be aborted at once."""

from __future__ import annotations

import json
import math
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import urlsplit

from voxtui.dialogue.prefetch import TICK_SECONDS

if TYPE_CHECKING:
    import httpx2

LARGEST_EVENT = 1 << 20
LARGEST_STREAM = 1 << 24
LARGEST_ERROR = 1 << 16
"""Maximum bytes of one event, of a stream or whole answer, and of the body of an error."""

LONGEST_RETRY = 3600
"""Maximum seconds of a Retry-After header that are shown."""

Json: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    status: int
    body: str = ""
    retry_after: int | None = None
    """the seconds of a sensible Retry-After header"""
    location: str = ""
    """the host and port of a redirect"""


class HttpConnection:
    """An HTTP client with one connection, opened by the first request. One request at a time."""

    def __init__(self, http: Any, client: httpx2.Client) -> None:
        self.http = http
        self.client = client
        self.round_trip = math.inf
        """the seconds of the fastest handshake or answer so far"""
        self.stream: Any = None
        self.abandoned = False
        self.idle = threading.Event()
        """the event that is set while no request is running"""
        self.idle.set()

    @property
    def free(self) -> bool:
        return self.idle.is_set() and not self.abandoned

    def abandon(self) -> None:
        """Close the connection, even during a request. Any thread."""
        self.abandoned = True
        self.abort_socket()
        if self.idle.is_set():
            self.client.close()

    def abort_socket(self) -> None:
        sock = self.stream.get_extra_info("socket") if self.stream is not None else None
        if sock is not None:
            with suppress(OSError):
                # The base class: shutdown() of a TLS socket would change the reader's TLS state.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


Item: TypeAlias = "Json | ErrorResponse | BaseException | None"


class HttpRequest:
    """A request and its answer. A thread of its own makes all network calls."""

    def __init__(self, connection: HttpConnection, method: str, url: str, content: Json) -> None:
        self.connection = connection
        self.sent_at: float | None = None
        self.sending_s = 0.0
        """the seconds for connecting, if necessary, and sending"""
        self.status: int | None = None
        self._began_at: float | None = None
        self._open = partial(connection.client.stream, method, url, **content)
        self._reused = True
        """whether the connection was already open"""
        self._answered = False
        self._step_at = 0.0
        self._items: SimpleQueue[tuple[Item, bool]] = SimpleQueue()
        """the items that arrived, each with True if it is the last one"""
        connection.idle.clear()
        threading.Thread(target=self._run, name="voxtui-remote", daemon=True).start()

    @property
    def was_stale(self) -> bool:
        """Return True if the server had closed the connection before it saw this request."""
        return self._reused and not self._answered

    def items(self, patience_s: float) -> Iterator[Json | ErrorResponse | None]:
        """Yield arriving items, and None every 20 ms. Raises TimeoutError and network errors."""
        waited, last = 0.0, False
        try:
            while not last:
                try:
                    item, last = self._items.get(timeout=TICK_SECONDS)
                except Empty:
                    # Counts ticks, because the clock goes on while voxtui is suspended (Ctrl+Z).
                    # None while a body is sent, which the client's time-out of each write limits.
                    if self.sent_at is not None or self.connection.stream is None:
                        waited += TICK_SECONDS
                    if waited > patience_s:
                        raise TimeoutError from None
                    yield None
                    continue
                if isinstance(item, BaseException):
                    raise item
                if item is not None:
                    yield item
                waited = 0.0
        finally:
            if not last:
                self.connection.abandon()

    # On the request's own thread.

    def _run(self) -> None:
        try:
            with self._open(extensions={"trace": self._trace}) as response:
                self._read(response)
        except BaseException as error:  # noqa: BLE001 - raised again by items()
            self._items.put((error, True))
        self.connection.idle.set()
        if self.connection.abandoned:
            self.connection.client.close()

    def _read(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        if response.status_code != 200:
            self._items.put((_error_response(response), True))
        elif response.headers.get("content-type", "").startswith("text/event-stream"):
            self._read_events(response)
        else:
            body = _body(response, LARGEST_STREAM)
            if len(body) > LARGEST_STREAM:
                raise ValueError("the answer is too large")
            self._items.put((_object(body), True))

    def _read_events(self, response: httpx2.Response) -> None:
        response.encoding = "utf-8"  # the standard of server-sent events, whatever the header says
        size = 0
        for event in self.connection.http.EventSource(response, LARGEST_EVENT):
            size += len(event.data)
            if size > LARGEST_STREAM:
                raise ValueError("the stream is too large")
            if event.data == "[DONE]":
                # Read on to the end, because only then can the connection be reused.
                self._items.put((None, True))
            elif event.data:
                self._items.put((_object(event.data), False))
        self._items.put((None, True))

    def _trace(self, name: str, info: Json) -> None:
        now = time.monotonic()
        connection = self.connection
        if self._began_at is None:
            self._began_at = now
        match name.partition(".")[2]:
            case "connect_tcp.started" | "start_tls.started":
                self._reused, self._step_at = False, now
            case "connect_tcp.complete" | "start_tls.complete":
                connection.stream = info["return_value"]
                connection.round_trip = min(connection.round_trip, now - self._step_at)
                if connection.abandoned:
                    connection.abort_socket()
            case "send_request_body.complete":
                self.sent_at, self.sending_s = now, now - self._began_at
            case "receive_response_headers.complete":
                self._answered = True
                if self.sent_at is not None:
                    connection.round_trip = min(connection.round_trip, now - self.sent_at)
            case _:
                pass


def _error_response(response: httpx2.Response) -> ErrorResponse:
    headers = response.headers
    retry = headers.get("retry-after", "")
    seconds = int(retry) if re.fullmatch(r"[0-9]{1,9}", retry) else 0
    return ErrorResponse(
        response.status_code,
        _body(response, LARGEST_ERROR)[:LARGEST_ERROR].decode(errors="replace"),
        seconds if 0 < seconds <= LONGEST_RETRY else None,
        urlsplit(headers.get("location", "")).netloc.rpartition("@")[2],
    )


def _body(response: httpx2.Response, limit: int) -> bytes:
    """Return the body, reading at most a block more than `limit` bytes."""
    body = b""
    for block in response.iter_bytes():
        body += block
        if len(body) > limit:
            break
    return body


def _object(text: str | bytes) -> Json:
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return cast("Json", found)


def error_text(answer: Json | str) -> str | None:
    """Return the message of an error object, or of a plain text that is not HTML."""
    if isinstance(answer, str):
        try:
            return error_text(_object(answer))
        except ValueError:
            return None if "<" in answer else answer.strip()
    error: Any = answer.get("error") or answer.get("detail") or answer.get("message")
    if isinstance(error, dict):
        inner = cast("Json", error)
        error = inner.get("message") or inner
    return error if isinstance(error, str | None) else json.dumps(error) if error else None
