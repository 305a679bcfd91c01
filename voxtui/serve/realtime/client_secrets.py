"""`POST /v1/realtime/client_secrets`: make a short-lived key for one session of a browser."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from voxtui.serve.openai_types import LIMIT, HttpError, decoded
from voxtui.serve.realtime.protocol import new_id
from voxtui.serve.upload import small_body

if TYPE_CHECKING:
    from starlette.requests import Request

    from voxtui.serve.access import ClientKeys
    from voxtui.serve.realtime.session_settings import Settings
    from voxtui.settings.schema import VadConfig

MOST_BYTES = 256 * 1024

MOST_KEYS = 1000


class _Expiry(msgspec.Struct, frozen=True):
    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[int, Meta(ge=10, le=7200)] = 600


class _Request(msgspec.Struct):
    expires_after: _Expiry = _Expiry()
    session: dict[str, Any] = {}


class ClientSecrets:
    """An endpoint. `default` is the session of a client without settings; `vad` its detection."""

    def __init__(self, keys: ClientKeys[Settings], default: Settings, vad: VadConfig) -> None:
        self._vad = vad
        self._keys = keys
        self._default = default

    async def create(self, request: Request) -> Response:
        """Answer with a key. Raises HttpError and Disconnected."""
        answer = self._make(await small_body(request.receive, MOST_BYTES))
        return Response(msgspec.json.encode(answer), media_type="application/json")

    def _make(self, body: bytes) -> dict[str, Any]:
        """Make a key. Raises HttpError."""
        request = decoded(body or b"{}", _Request)
        settings = self._default.updated(request.session)
        if len(self._keys) >= MOST_KEYS:
            raise HttpError(429, f"{MOST_KEYS} client secrets are valid already.", kind=LIMIT)
        value = f"ek_{secrets.token_urlsafe(24)}"
        seconds = request.expires_after.seconds
        self._keys.add(value, seconds, settings)
        expires_at = int(time.time()) + seconds
        shown = settings.as_json(new_id("sess"), expires_at, self._vad)
        return {"value": value, "expires_at": expires_at, "session": shown}
