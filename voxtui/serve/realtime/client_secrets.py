"""`POST /v1/realtime/client_secrets`: make a short-lived key for one session of a browser."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from voxtui.serve.openai_types import LIMIT, HttpError, decoded
from voxtui.serve.realtime.protocol import new_id

if TYPE_CHECKING:
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


def new_secret(body: bytes, keys: ClientKeys, default: Settings, vad: VadConfig) -> dict[str, Any]:
    """Make a key for `default` with the client's changes. Raises HttpError."""
    request = decoded(body or b"{}", _Request)
    settings = default.updated(request.session)
    if len(keys) >= MOST_KEYS:
        raise HttpError(429, f"{MOST_KEYS} client secrets are valid already.", kind=LIMIT)
    value = f"ek_{secrets.token_urlsafe(24)}"
    seconds = request.expires_after.seconds
    keys.add(value, seconds, settings)
    expires_at = int(time.time()) + seconds
    shown = settings.as_json(new_id("sess"), expires_at, vad)
    return {"value": value, "expires_at": expires_at, "session": shown}
