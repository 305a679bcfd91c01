"""`POST /v1/realtime/client_secrets`: make a short-lived key for one session of a browser."""

from __future__ import annotations

import secrets
from time import monotonic, time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from voxtui.serve.openai_types import LIMIT, HttpError, decoded
from voxtui.serve.realtime.protocol import new_id

if TYPE_CHECKING:
    from voxtui.serve.realtime.session_settings import Settings
    from voxtui.settings.schema import VadConfig

MOST_BYTES = 256 * 1024

MOST_KEYS = 1000


class ClientKeys:
    """Short-lived keys, each for a session. Used by the event loop's thread."""

    def __init__(self) -> None:
        self._keys: dict[str, tuple[float, Settings]] = {}

    def __len__(self) -> int:
        now = monotonic()
        self._keys = {key: kept for key, kept in self._keys.items() if kept[0] > now}
        return len(self._keys)

    def add(self, key: str, seconds: float, value: Settings) -> None:
        self._keys[key] = monotonic() + seconds, value

    def get(self, key: str) -> Settings | None:
        """Return the settings of `key`, or None if it is unknown or expired."""
        expires, value = self._keys.get(key, (0.0, None))
        return value if expires > monotonic() else None


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
    expires_at = int(time()) + seconds
    shown = settings.as_json(new_id("sess"), expires_at, vad)
    return {"value": value, "expires_at": expires_at, "session": shown}
