"""Check the Host, the Origin and the key of each request."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import Response

from voxtui.serve.draining import lingering
from voxtui.serve.openai_types import HttpError
from voxtui.serve.page import PAGE_PATHS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATHS = ("/healthz", *PAGE_PATHS)
"""Paths that need no key, because their answers hold no secret. The page asks for the key."""

KEY_PROTOCOL = "openai-insecure-api-key."
"""The prefix of a subprotocol with the key: a browser cannot set a header on a WebSocket."""

REALTIME_PATH = "/v1/realtime"

CLIENT_KEY_PATHS = (REALTIME_PATH, f"{REALTIME_PATH}/calls")
"""The only paths that accept the short-lived key of a browser."""


class AccessControl:
    """ASGI middleware: checks keys and hosts. Without `token` no key is needed.

    A page of any site can send requests to localhost. A browser then sends an Origin that is not
    ours, or, by DNS rebinding, a Host that is not ours. `client_key` returns None for all but the
    short-lived keys.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        hosts: frozenset[str],
        client_key: Callable[[str], object],
    ) -> None:
        self._app = app
        self._token = token
        self._client_key = client_key
        self._hosts = hosts | {"localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http":
            receive, send = lingering(Headers(scope=scope), receive, send)
        try:
            self._check(scope)
        except HttpError as refusal:
            if scope["type"] == "websocket":
                await receive()  # websocket.connect
            await error_response(refusal)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_ours(host):
            raise HttpError(403, f"The host name {host!r} is not allowed.", code="host_not_allowed")
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise HttpError(
                403, f"Requests from pages of {origin} are not allowed.", code="origin_not_allowed"
            )
        if self._token is None or scope["path"] in OPEN_PATHS:
            return
        given = token_of(scope, headers)
        if not given:
            raise HttpError(401, "The API key is missing.", code="missing_api_key")
        if scope["path"] in CLIENT_KEY_PATHS and self._client_key(given) is not None:
            return
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            raise HttpError(401, "The API key is wrong.", code="invalid_api_key")

    def _is_ours(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name.lower() in self._hosts:
            return True
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True


def token_of(scope: Scope, headers: Headers) -> str:
    """Return the key of a request, or ""."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    if scope["type"] != "websocket":
        return ""
    for protocol in scope.get("subprotocols", ()):
        if protocol.startswith(KEY_PROTOCOL):
            return protocol.removeprefix(KEY_PROTOCOL)
    query = parse_qs(scope["query_string"].decode("latin-1"))
    return query.get("access_token", [""])[0]


def error_response(refusal: HttpError) -> Response:
    """Return the response to a refused request or WebSocket."""
    return Response(
        refusal.body,
        refusal.status,
        {"connection": "close", **refusal.headers},
        media_type="application/json",
    )
