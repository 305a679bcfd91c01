"""A server that speaks OpenAI's protocol: one warm connection, measured, and left at any moment."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import urlsplit

from voxtui.dialogue.prefetch import TICK_SECONDS
from voxtui.errors import RemoteError, how_to_install
from voxtui.settings.urls import is_loopback

if TYPE_CHECKING:
    import httpx2

KEY = "VOXTUI_API_KEY"
"""The environment variable that holds the key; nothing else does."""

CONNECT_SECONDS = 5.0

IN_THE_WAY_SECONDS = 1.0
"""How long an earlier request is waited for before another connection is made."""

LISTED = 5
"""Models that are named where another was asked for."""

KEPT_SECONDS = 60.0
"""A connection that was idle for longer may have been forgotten by something in between."""

LARGEST_EVENT = 1 << 20
LARGEST_ANSWER = 1 << 24
"""Bytes. More than any answer is: a server that goes on for ever is left."""

SHOWN = 200
"""Characters of a server's own words that are shown."""

LESS = "A new conversation sends less of what was said before; so does a smaller history.turns."

UNREADY = (502, 503, 504)
"""What a server, or the proxy before it, says while there is no model to ask."""

_TOO_LONG = re.compile(r"context (?:length|size|window)", re.IGNORECASE)
"""How servers say that the model has no room for all of it."""

Json: TypeAlias = "dict[str, Any]"


class Refused(RemoteError):
    """The server answered, with a status that is no success. `said`: its own words."""

    def __init__(self, message: str, hint: str, status: int, said: str) -> None:
        super().__init__(message, hint)
        self.status = status
        self.said = said


class EndedEarly(RemoteError):
    """The connection broke before the answer was complete."""


@dataclass(slots=True)
class Timing:
    """What one request, or several after each other, took of the network."""

    sent_at: float | None = None
    """when the first request had been handed to the network"""
    network_s: float = 0.0
    """connecting, sending, and one round trip of each: at least so much, as the system's buffers
    hide the end of an upload"""


class Server:
    """The server at `url`. `setting` is where the configuration speaks of it.

    For a server on this machine no proxy is used. A redirect is never followed.
    """

    def __init__(self, url: str, timeout_s: float, setting: str = "brain.remote.url") -> None:
        self.host = urlsplit(url).netloc
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._setting = setting
        self._key = api_key()
        self._verify: ssl.SSLContext | None = None
        self._connection: Connection | None = None
        self._asked_at = -math.inf
        self._models: list[str] | None = None

    @property
    def in_the_open(self) -> bool:
        """Whether what is sent can be read by others on the way."""
        return self._url.startswith("http:") and not is_loopback(self._url)

    def ask(
        self, method: str, path: str, timing: Timing | None = None, **content: Any
    ) -> Generator[Json | None, None, None]:
        """The JSON objects of the answer as they come, and None every 20 ms until then.

        Closing the generator closes the connection that is under way. A connection that was kept
        and turns out to be dead is replaced once; nothing else is sent twice. Raises RemoteError.
        """
        try:
            for fresh in (False, True):
                yield from self._until_free()
                connection = self._connection = self._free_connection(fresh)
                exchange = Exchange(connection, method, f"{self._url}/{path}", content)
                self._asked_at = time.monotonic()
                try:
                    yield from self._answer(exchange, timing)
                    return
                except (connection.http.NetworkError, connection.http.RemoteProtocolError):
                    if fresh or not exchange.found_dead:
                        raise
        except RemoteError:
            raise
        except Exception as error:
            raise self._explained(error) from error

    def _answer(
        self, exchange: Exchange, timing: Timing | None
    ) -> Generator[Json | None, None, None]:
        first = True
        for item in exchange.items(self._timeout_s):
            if isinstance(item, ErrorResponse):
                raise self._refusal(item)
            if first and item is not None and timing is not None and exchange.sent_at is not None:
                first = False
                timing.sent_at = timing.sent_at or exchange.sent_at
                timing.network_s += exchange.sending_s + exchange.connection.round_trip
            yield item

    def warm(self) -> None:
        """Have a connection by the time there is something to ask. Returns at once.

        What goes wrong is told when something is asked.
        """
        connection = self._connection
        if connection is None or connection.free or connection.left:
            self._asked_at = time.monotonic()
            with suppress(RemoteError):
                self._connection = connection = self._free_connection(False)
                Exchange(connection, "GET", f"{self._url}/models", {})

    @property
    def idle_s(self) -> float:
        """Seconds since something was asked."""
        return time.monotonic() - self._asked_at

    def models(self) -> Generator[None, None, list[str] | None]:
        """The names of the models there are; None where the server does not tell."""
        try:
            for item in self.ask("GET", "models"):
                if item is not None:
                    self._models = [on_one_line(str(entry["id"])) for entry in item["data"]]
                    return self._models
                yield
        except Refused as refusal:
            if refusal.status not in (404, 405):
                raise
        except (KeyError, TypeError):
            pass
        return None

    @property
    def offer(self) -> str:
        """Which models there are, as a sentence."""
        match self._models:
            case None:
                where = f" {self._ending}" if self.may_lack_v1 else ""
                return f"{self.host} does not say which models it has.{where}"
            case []:
                return f"{self.host} has no model."
            case models:
                more = f" and {len(models) - LISTED} more" if len(models) > LISTED else ""
                return f"{self.host} has {', '.join(models[:LISTED])}{more}."

    @property
    def may_lack_v1(self) -> bool:
        return not self._url.endswith("/v1")

    @property
    def _ending(self) -> str:
        return f"{self._setting} usually ends with /v1."

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.leave()

    # The connection.

    def _until_free(self) -> Iterator[None]:
        until = time.monotonic() + IN_THE_WAY_SECONDS
        connection = self._connection
        while (
            connection is not None
            and not connection.free
            and not connection.left
            and time.monotonic() < until
        ):
            connection.over.wait(TICK_SECONDS)
            yield

    def _free_connection(self, fresh: bool) -> Connection:
        connection = self._connection
        if connection is not None and connection.free and not fresh:
            return connection
        if connection is not None:
            connection.leave()
        return self._connected()

    def _connected(self) -> Connection:
        http = library()
        if self._verify is None:
            # Where there is no TLS, a tenth of a second is not spent on reading certificates.
            tls = self._url.startswith("https:")
            empty = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._verify = http.create_ssl_context() if tls else empty
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            client = http.Client(
                headers=headers | {"Accept-Encoding": "identity", "User-Agent": "voxtui"},
                verify=self._verify,
                timeout=http.Timeout(self._timeout_s, connect=CONNECT_SECONDS),
                limits=http.Limits(max_connections=1, keepalive_expiry=KEPT_SECONDS),
                trust_env=not is_loopback(self._url),
            )
        except (ImportError, ValueError, http.InvalidURL) as error:
            raise RemoteError(
                f"The proxy that the environment names cannot be used: {str(error).rstrip('.')}.",
                "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY say which is used for what.",
            ) from error
        return Connection(http, client)

    # In words.

    def _explained(self, error: Exception) -> Exception:
        """`error` as one sentence; itself if it is a bug."""
        http = library()
        where = f"{self._setting} says where it is; `voxtui doctor` tries it."
        match error:
            case http.ConnectTimeout() if "handshake" in str(error):
                what = f"{self.host} did not begin TLS within {CONNECT_SECONDS:g} s."
                where = self._plain
            case http.ConnectTimeout():
                what = f"{self.host} accepts no connection within {CONNECT_SECONDS:g} s."
            case http.ConnectError():
                return self._not_connected(error, where)
            case http.InvalidURL() | UnicodeError() if not isinstance(error, UnicodeDecodeError):
                what = f"{self.host} is no address: {error}."
            case http.ProxyError():
                what = f"The proxy on the way to {self.host} refuses: {self.shown(str(error))}."
                where = "HTTPS_PROXY and NO_PROXY say which proxy is used for what."
            case TimeoutError() | http.TimeoutException():
                what = f"{self.host} sent nothing for {self._timeout_s:g} s."
                where = "brain.remote.timeout_s waits longer, for one that loads its model first."
            case http.SSEError() | http.DecodingError() | http.LocalProtocolError() | ValueError():
                what = f"{self.host} sent something that is no answer."
            case http.TransportError():
                return EndedEarly(f"The connection to {self.host} broke.", "Ask again.")
            case _:
                return error
        return RemoteError(what, where)

    def _not_connected(self, error: Exception, where: str) -> RemoteError:
        why: BaseException | None = error
        while why is not None:
            match why:
                case ssl.SSLCertVerificationError():
                    return RemoteError(
                        f"The certificate of {self.host} is not trusted: {why.verify_message}.",
                        "One of your own: SSL_CERT_FILE=/path/to/ca.pem",
                    )
                case ssl.SSLError():
                    what = f"{self.host} does not speak TLS."
                    return RemoteError(what, self._plain)
                case socket.gaierror():
                    return RemoteError(f"There is no host {urlsplit(self._url).hostname}.", where)
                case ConnectionRefusedError():
                    return RemoteError(f"Nothing listens at {self.host}.", where)
                case _:
                    why = why.__cause__ or why.__context__
        return RemoteError(f"{self.host} cannot be reached: {error}.", where)

    @property
    def _plain(self) -> str:
        return f"Does {self._setting} begin with http:// there?"

    def _refusal(self, answer: ErrorResponse) -> Refused:
        said = self.shown(complaint(answer.body) or "")
        quoted = f": “{said}”" if said else "."
        match answer.status:
            case 401 | 403 if self._key:
                what, hint = f"{self.host} refuses the key{quoted}", f"{KEY} holds it."
            case 401 | 403:
                what, hint = f"{self.host} wants a key{quoted}", f"{KEY} is where to put it."
            case 404 | 405:
                what = f"{self.host} has no such model or address{quoted}"
                where = self._ending if self.may_lack_v1 else f"{self._setting} says where it is."
                hint = self.offer if self._models else where
            case 413:
                what = f"What was said is too long for {self.host}{quoted}"
                hint = LESS
            case 429:
                again = f"Try again in {answer.retry_after} s." if answer.retry_after else ""
                what, hint = f"{self.host} has had enough for now{quoted}", again
            case status if 300 <= status < 400:
                what = f"{self.host} sends requests on to {answer.location or 'another address'}."
                hint = f"If you trust it, set {self._setting} to that."
            case status if status >= 500:
                what = f"{self.host} failed with {status}{quoted}"
                hint = "Is its model still loading? Try again." if status in UNREADY else ""
            case status:
                what = f"{self.host} refused with {status}{quoted}"
                hint = LESS if _TOO_LONG.search(said) else ""
        return Refused(what, hint, answer.status, said)

    def shown(self, said: str) -> str:
        """What the server says, on one line, and never the key."""
        if self._key:
            said = said.replace(self._key, "…")
        return on_one_line(said)


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """A status that is no success."""

    status: int
    body: str
    retry_after: str
    location: str


class Connection:
    """Made when it is first used; one request at a time."""

    def __init__(self, http: Any, client: httpx2.Client) -> None:
        self.http = http
        self.client = client
        self.round_trip = math.inf
        """seconds; the fastest that has been seen: of handshakes, and of answers"""
        self.stream: Any = None
        self.left = False
        self.over = threading.Event()
        """nothing is under way"""
        self.over.set()

    @property
    def free(self) -> bool:
        return self.over.is_set() and not self.left

    def leave(self) -> None:
        """Give up the connection, whatever is under way on it."""
        self.left = True
        self.hang_up()
        if self.over.is_set():
            self.client.close()

    def hang_up(self) -> None:
        sock = self.stream.get_extra_info("socket") if self.stream is not None else None
        if sock is not None:
            with suppress(OSError):
                # Not the method of a TLS socket, which takes its state from under the reader.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


Item: TypeAlias = "Json | ErrorResponse | BaseException | None"


class Exchange:
    """A request and its answer, on a thread of its own, which alone waits for the network."""

    def __init__(self, connection: Connection, method: str, url: str, content: Json) -> None:
        self.connection = connection
        self.sent_at: float | None = None
        self.sending_s = 0.0
        """connecting where that was needed, and handing the request over; not what made it ready"""
        self._began_at: float | None = None
        self._asked = partial(connection.client.stream, method, url, **content)
        self._kept = True
        """the connection was there before"""
        self._answered = False
        self._step_at = 0.0
        self._items: SimpleQueue[tuple[Item, bool]] = SimpleQueue()
        """what came, and whether it is the last"""
        connection.over.clear()
        threading.Thread(target=self._run, name="voxtui-remote", daemon=True).start()

    @property
    def found_dead(self) -> bool:
        """Whether the server had closed the connection before it saw this request."""
        return self._kept and not self._answered

    def items(self, patience_s: float) -> Iterator[Json | ErrorResponse | None]:
        """What comes, and None every 20 ms. Raises what went wrong, and TimeoutError."""
        waited, last = 0.0, False
        try:
            while not last:
                try:
                    item, last = self._items.get(timeout=TICK_SECONDS)
                except Empty:
                    waited += TICK_SECONDS  # the clock goes on while we are suspended (Ctrl+Z)
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
                self.connection.leave()

    # On its own thread.

    def _run(self) -> None:
        try:
            with self._asked(extensions={"trace": self._trace}) as response:
                self._read(response)
        except BaseException as error:  # noqa: BLE001 - raised again where the answer is read
            self._items.put((error, True))
        self.connection.over.set()
        if self.connection.left:
            self.connection.client.close()

    def _read(self, response: httpx2.Response) -> None:
        if response.status_code != 200:
            head = response.headers
            body = _body(response).decode(errors="replace")
            location = urlsplit(head.get("location", "")).hostname or ""
            seconds = re.sub(r"\D.*", "", head.get("retry-after", ""))[:6]
            self._items.put((ErrorResponse(response.status_code, body, seconds, location), True))
        elif response.headers.get("content-type", "").startswith("text/event-stream"):
            self._read_events(response)
        else:
            self._items.put((_object(_body(response)), True))

    def _read_events(self, response: httpx2.Response) -> None:
        response.encoding = "utf-8"  # whatever it says: events are UTF-8
        size = 0
        for event in self.connection.http.EventSource(response, LARGEST_EVENT):
            size += len(event.data)
            if size > LARGEST_ANSWER:
                raise ValueError("an answer without end")
            if event.data == "[DONE]":
                # And read on to the very end: only then can the connection be kept.
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
                self._kept, self._step_at = False, now
            case "connect_tcp.complete" | "start_tls.complete":
                connection.stream = info["return_value"]
                connection.round_trip = min(connection.round_trip, now - self._step_at)
                if connection.left:
                    connection.hang_up()
            case "send_request_body.complete":
                self.sent_at, self.sending_s = now, now - self._began_at
            case "receive_response_headers.complete":
                self._answered = True
                if self.sent_at is not None:
                    connection.round_trip = min(connection.round_trip, now - self.sent_at)
            case _:
                pass


def _body(response: httpx2.Response) -> bytes:
    body = b""
    for block in response.iter_bytes():
        body += block
        if len(body) > LARGEST_EVENT:
            raise ValueError("an answer without end")
    return body


def _object(text: str | bytes) -> Json:
    """Raises ValueError."""
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return cast("Json", found)


def complaint(answer: Json | str) -> str | None:
    """The words of an error object, in any of the shapes that servers give it."""
    if isinstance(answer, str):
        text = answer.strip()
        try:
            answer = _object(text[1:-1] if text.startswith("[") else text)  # Google's, in a list
        except ValueError:
            return None if "<" in text else text
    if isinstance(answer.get("detail"), dict) and "error" in answer["detail"]:
        answer = cast("Json", answer["detail"])  # an error in OpenAI's shape, raised in FastAPI
    error: Any = answer.get("error") or answer.get("detail") or answer.get("message")
    if isinstance(error, list) and error:
        error = cast("list[Any]", error)[0]
    if isinstance(error, dict):
        found = cast("Json", error)
        error = found.get("message") or _misplaced(found) or found
    if not error:
        return None
    return error if isinstance(error, str) else json.dumps(error)


def _misplaced(error: Json) -> str | None:
    """What FastAPI says of a request: where in it something is wrong, and what."""
    match error:
        case {"loc": [*place], "msg": str(what)}:
            return f"{'.'.join(map(str, place))}: {what}"
        case _:
            return None


def on_one_line(said: str) -> str:
    """What a server says, as it may be shown in a terminal."""
    said = " ".join("".join(c if c.isprintable() else " " for c in said).split())
    return said if len(said) <= SHOWN else f"{said[:SHOWN]}…"


def api_key() -> str:
    """Raises RemoteError for one that no header can carry."""
    key = os.environ.get(KEY, "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise RemoteError(f"{KEY} holds characters that no key has.", "Copy it again.")
    return key


def library() -> Any:
    """The HTTP library. Raises RemoteError where it is not installed."""
    try:
        import httpx2
    except ImportError as error:
        hint = how_to_install("remote")
        raise RemoteError("The remote brain is not installed.", hint) from error
    return httpx2
