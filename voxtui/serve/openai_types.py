"""OpenAI's formats of an error, a transcript and a request for speech.

Fields as in https://platform.openai.com/docs/api-reference (openai 3.54, `types/audio`).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

T = TypeVar("T")

INVALID, SERVER, LIMIT = "invalid_request_error", "server_error", "rate_limit_error"

MOST_SPOKEN = 4096
"""Maximum characters of a text to speak, by OpenAI's limit."""


class ErrorDetail(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True):
    error: ErrorDetail


class Transcript(msgspec.Struct, frozen=True):
    text: str
    usage: dict[str, Any]


class HttpError(Exception):
    """A request that is answered by an error. `headers` are added to the response."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str = INVALID,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.status = status
        self.headers = headers or {}
        self.error = {"message": message, "type": kind, "param": param, "code": code}
        super().__init__(message)

    @property
    def body(self) -> bytes:
        return msgspec.json.encode({"error": self.error})


NOT_JSON = msgspec.DecodeError, UnicodeDecodeError, RecursionError
"""Exceptions of `msgspec.json.decode`; the last one for too many levels."""


def failed(message: str) -> HttpError:
    """Return the error for a request that failed here. A client should not retry it."""
    return HttpError(500, message, kind=SERVER, headers={"x-should-retry": "false"})


def decoded(body: bytes, kind: type[T]) -> T:
    """Decode a JSON `body` as the struct type `kind`. Raises HttpError (400)."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        where = re.search(r"`\$\.(\w+)", str(error)) or re.search(r"field `(\w+)`", str(error))
        raise HttpError(400, f"{error}.", param=where[1] if where else None) from error
    except NOT_JSON as error:
        raise HttpError(400, f"The body is not JSON in UTF-8: {error}.") from error


class SpeechRequest(msgspec.Struct, frozen=True):
    """The body of a request for speech. Fields that OpenAI does not have are ignored."""

    input: Annotated[str, Meta(min_length=1, max_length=MOST_SPOKEN)]
    model: str = ""
    voice: str | dict[str, Any] = ""
    response_format: str = "wav"
    """a key of speech.MEDIA"""
    speed: Annotated[float, Meta(ge=0.25, le=4)] | None = None
    stream_format: Literal["audio", "sse"] | None = None
    instructions: str | None = None
    """a description of the style, without effect because a voice has only one"""


class Segment(msgspec.Struct, frozen=True):
    """A segment of `verbose_json`. Numbers that the recogniser does not have are zero."""

    id: int
    start: float
    end: float
    text: str
    seek: int = 0
    tokens: tuple[int, ...] = ()
    temperature: float = 0.0
    avg_logprob: float = 0.0
    compression_ratio: float = 0.0
    no_speech_prob: float = 0.0


def usage(seconds: float) -> dict[str, Any]:
    return {"type": "duration", "seconds": round(seconds, 3)}
