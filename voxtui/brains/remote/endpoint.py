"""An OpenAI-compatible server: one warm connection, and its errors as single sentences."""

from __future__ import annotations

import math
import os
import re
import ssl
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from voxtui.brains.remote.http_connection import (
    ErrorResponse,
    HttpConnection,
    HttpRequest,
    Json,
    error_text,
)
from voxtui.dialogue.prefetch import TICK_SECONDS
from voxtui.errors import RemoteError, how_to_install
from voxtui.settings.urls import is_loopback

KEY = "VOXTUI_API_KEY"
"""The environment variable with the API key, which comes from nowhere else."""

CONNECT_SECONDS = 5.0

BUSY_SECONDS = 1.0
"""Maximum wait for an earlier request before another connection is opened."""

LISTED = 5
"""Maximum number of models named in a message."""

KEPT_SECONDS = 60.0
"""Maximum idle time of a connection. Routers may forget older ones."""

SHOWN = 200
"""Maximum characters of a server's message that are shown."""

SEND_LESS = "Start a new conversation, or set a smaller history.turns."

LOADING = (502, 503, 504)
"""Status codes of a server, or of its proxy, whose model is not ready."""

_TOO_LONG = re.compile(r"context (?:length|size|window)", re.IGNORECASE)


class StatusError(RemoteError):
    """The server answered with an HTTP error. `text` is its own message."""

    def __init__(self, message: str, hint: str, status: int, text: str) -> None:
        super().__init__(message, hint)
        self.status = status
        self.text = text


@dataclass(slots=True)
class NetworkTimes:
    sent_at: float | None = None
    """the monotonic time at which the first request was sent"""
    network_s: float = 0.0
    """the seconds for connecting, sending, and one round trip per request; a lower bound, because
    the system's buffers hide the end of an upload"""


class RemoteEndpoint:
    """The server at `url`. `setting` is the config key or the option of the URL.

    `key_variable` is the environment variable with the API key; empty for no key. Uses no proxy for
    a server on this machine. Follows no redirect.
    """

    def __init__(
        self, url: str, timeout_s: float, setting: str = "brain.remote.url", key_variable: str = KEY
    ) -> None:
        self.host = urlsplit(url).netloc
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._setting = setting
        self._key_variable = key_variable
        self._key = api_key(key_variable)
        self._verify: ssl.SSLContext | None = None
        self._connection: HttpConnection | None = None
        self._requested_at = -math.inf
        self._models: list[str] | None = None

    @property
    def unencrypted(self) -> bool:
        """Return True if others on the network can read the requests."""
        return self._url.startswith("http:") and not is_loopback(self._url)

    def request(
        self, method: str, path: str, timing: NetworkTimes | None = None, **content: Any
    ) -> Generator[Json | None, None, None]:
        """Yield the JSON objects of the answer as they arrive, and None every 20 ms until then.

        Closing the generator aborts the connection. It sends the request again only if a stored
        connection turns out to be closed. Raises RemoteError.
        """
        request: HttpRequest | None = None
        try:
            for fresh in (False, True):
                yield from self._until_free()
                connection = self._connection = self._free_connection(fresh)
                request = HttpRequest(connection, method, f"{self._url}/{path}", content)
                self._requested_at = time.monotonic()
                try:
                    yield from self._answer(request, timing)
                    return
                except (connection.http.NetworkError, connection.http.RemoteProtocolError):
                    if fresh or not request.was_stale:
                        raise
        except RemoteError:
            raise
        except Exception as error:
            raise self._explained(error, request) from error

    def _answer(
        self, request: HttpRequest, timing: NetworkTimes | None
    ) -> Generator[Json | None, None, None]:
        first = True
        for item in request.items(self._timeout_s):
            if isinstance(item, ErrorResponse):
                raise self._status_error(item)
            if first and item is not None and timing is not None and request.sent_at is not None:
                first = False
                timing.sent_at = timing.sent_at or request.sent_at
                timing.network_s += request.sending_s + request.connection.round_trip
            yield item

    def warm(self) -> None:
        """Open a connection in the background. Returns at once; the next request reports errors."""
        connection = self._connection
        if connection is None or connection.free or connection.abandoned:
            self._requested_at = time.monotonic()
            with suppress(RemoteError):
                self._connection = connection = self._free_connection(False)
                HttpRequest(connection, "GET", f"{self._url}/models", {})

    @property
    def idle_s(self) -> float:
        return time.monotonic() - self._requested_at

    def models(self) -> Generator[None, None, list[str] | None]:
        """Return the server's models, or None if it does not list them. Yields while waiting."""
        try:
            for item in self.request("GET", "models"):
                if item is not None:
                    self._models = [on_one_line(str(entry["id"])) for entry in item["data"]]
                    return self._models
                yield
        except StatusError as error:
            if error.status not in (404, 405):
                raise
        except (KeyError, TypeError):
            pass
        return None

    @property
    def model_list(self) -> str:
        match self._models:
            case None:
                hint = f" {self._v1_hint}" if self.may_lack_v1 else ""
                return f"{self.host} does not list its models.{hint}"
            case []:
                return f"{self.host} has no model."
            case models:
                more = f" and {len(models) - LISTED} more" if len(models) > LISTED else ""
                return f"{self.host} has {', '.join(models[:LISTED])}{more}."

    @property
    def may_lack_v1(self) -> bool:
        return not self._url.endswith("/v1")

    @property
    def _v1_hint(self) -> str:
        return f"{self._setting} usually ends with /v1."

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon()

    # The connection.

    def _until_free(self) -> Iterator[None]:
        until = time.monotonic() + BUSY_SECONDS
        connection = self._connection
        while (
            connection is not None
            and not connection.free
            and not connection.abandoned
            and time.monotonic() < until
        ):
            connection.idle.wait(TICK_SECONDS)
            yield

    def _free_connection(self, fresh: bool) -> HttpConnection:
        connection = self._connection
        if connection is not None and connection.free and not fresh:
            return connection
        if connection is not None:
            connection.abandon()
        return self._connect()

    def _connect(self) -> HttpConnection:
        http = library()
        if self._verify is None:
            # Reading the certificates takes 100 ms, which plain HTTP does not need.
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
                f"{self.host}: cannot use the proxy of the environment: {_sentence(str(error))}",
                "Check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY.",
            ) from error
        return HttpConnection(http, client)

    # Errors.

    def _explained(self, error: Exception, request: HttpRequest | None) -> Exception:
        """Return `error` as a RemoteError, or `error` itself if it is a bug."""
        http = library()
        status = request.status if request else None
        if status not in (None, 200) and isinstance(error, http.TransportError | TimeoutError):
            return self._status_error(ErrorResponse(status))  # the body did not arrive
        match error:
            case http.ConnectTimeout():
                return self._cannot_connect(f"no answer within {CONNECT_SECONDS:g} s")
            case http.ConnectError() | http.ProxyError():
                return self._cannot_connect(self.shown(_reason(error)))
            case http.InvalidURL() | UnicodeError() if not isinstance(error, UnicodeDecodeError):
                return self._cannot_connect(f"invalid address: {error}")
            case TimeoutError() | http.TimeoutException():
                return RemoteError(
                    f"{self.host}: no data for {self._timeout_s:g} s.",
                    "A larger brain.remote.timeout_s waits for a server that loads its model.",
                )
            case http.SSEError() | http.DecodingError() | http.LocalProtocolError() | ValueError():
                return self.invalid_response(status)
            case http.TransportError():
                return RemoteError(
                    f"{self.host}: connection lost: {_sentence(self.shown(_reason(error)))}",
                    "Ask again.",
                )
            case _:
                return error

    def _cannot_connect(self, reason: str) -> RemoteError:
        again = "; `voxtui doctor` tries again" if self._setting.startswith("brain.") else ""
        return RemoteError(
            f"{self.host}: cannot connect: {_sentence(reason)}",
            f"Check {self._setting}, the proxy variables and, for a certificate of your own, "
            f"SSL_CERT_FILE{again}.",
        )

    def invalid_response(self, status: int | None = 200) -> RemoteError:
        code = f" (HTTP {status})" if status else ""
        return RemoteError(f"Invalid response from {self.host}{code}.")

    def _status_error(self, answer: ErrorResponse) -> StatusError:
        text = self.shown(error_text(answer.body) or "")
        code = f"(HTTP {answer.status})"
        hint = ""
        match answer.status:
            case 401 | 403 if self._key:
                what, hint = (
                    f"{self.host} rejected the API key {code}",
                    f"Check {self._key_variable}.",
                )
            case 401 | 403:
                what, hint = f"{self.host} requires an API key {code}", f"Set {self._key_variable}."
            case 404 | 405:
                what = f"{self.host}: model or address not found {code}"
                where = self._v1_hint if self.may_lack_v1 else f"Check {self._setting}."
                hint = self.model_list if self._models else where
            case 413:
                what, hint = f"Request too large for {self.host} {code}", SEND_LESS
            case 429:
                what = f"{self.host}: rate limit exceeded {code}"
                seconds = answer.retry_after
                hint = f"Try again in {seconds} s." if seconds else "Try again later."
            case status if 300 <= status < 400:
                what = f"{self.host} redirects to {answer.location or 'another address'} {code}"
                hint = f"If you trust it, set {self._setting} to it."
            case status if status >= 500:
                what = f"{self.host}: server error {code}"
                hint = "Its model may still be loading. Try again." if status in LOADING else ""
            case _:
                what = f"{self.host} refused the request {code}"
                hint = SEND_LESS if _TOO_LONG.search(text) else ""
        message = f"{what}: “{text}”." if text else f"{what}."
        return StatusError(message, hint, answer.status, text)

    def shown(self, text: str) -> str:
        """Return a server's text on one line, without the API key."""
        return on_one_line(text.replace(self._key, "…") if self._key else text)


def on_one_line(text: str) -> str:
    """Return a server's text, shortened, without control characters and line breaks."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}…"


def _reason(error: BaseException) -> str:
    """Return the system's message and error number of the innermost cause."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None:
            return f"{cause.strerror} (errno {cause.errno})"
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _sentence(text: str) -> str:
    return f"{text.rstrip('.')}."


def api_key(variable: str = KEY) -> str:
    """Return the API key in `variable`, or "". Raises RemoteError if no header can carry it."""
    key = os.environ.get(variable, "").strip() if variable else ""
    if not re.fullmatch(r"[!-~]*", key):
        raise RemoteError(
            f"{variable} contains characters that are not allowed in a key.", "Copy it again."
        )
    return key


def library() -> Any:
    """Import the HTTP library, which takes 0.2 s. Raises RemoteError if it is not installed."""
    try:
        import httpx2
    except ImportError as error:
        hint = how_to_install("remote")
        raise RemoteError("The remote brain is not installed.", hint) from error
    return httpx2
