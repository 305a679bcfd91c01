"""Read a multipart upload while it arrives, in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from email.message import Message
from typing import TYPE_CHECKING

import anyio
from multipart import MultipartError, MultipartSegment, PushMultipartParser  # pyright: ignore[reportMissingTypeStubs]

from voxtui.serve.openai_types import HttpError

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.types import Receive

IDLE_SECONDS = 30.0
"""Time without data after which the request is refused."""

MOST_FIELDS = 64

LONGEST_FIELD = 64 * 1024
"""Most bytes of a field other than the file."""


class Disconnected(Exception):
    """The client has closed the connection."""


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class FileData:
    """Bytes of the file, in their order."""

    data: bytes


async def body(receive: Receive) -> AsyncIterator[bytes]:
    """Yield the pieces of a request's body. Raises HttpError (408) and Disconnected."""
    more = True
    while more:
        try:
            with anyio.fail_after(IDLE_SECONDS):
                message = await receive()
        except TimeoutError:
            raise HttpError(
                408,
                f"No data arrived for {IDLE_SECONDS:g} s.",
                code="timeout",
                headers={"x-should-retry": "false"},
            ) from None
        if message["type"] == "http.disconnect":
            raise Disconnected
        more = message.get("more_body", False)
        if data := message.get("body", b""):
            yield data


async def small_body(receive: Receive, most: int) -> bytes:
    """Return a whole body of at most `most` bytes. Raises HttpError (413)."""
    whole = bytearray()
    async for data in body(receive):
        whole += data
        if len(whole) > most:
            raise HttpError(413, f"The request has more than {most} bytes.")
    return bytes(whole)


async def form(headers: Headers, receive: Receive) -> AsyncIterator[Field | FileData]:
    """Yield the fields of a form and the bytes of its file `file`, as they arrive.

    Raises HttpError for any other body, and Disconnected.
    """
    content = Message()
    content["content-type"] = headers.get("content-type", "")
    boundary = content.get_boundary("")
    if content.get_content_type() != "multipart/form-data" or not boundary:
        raise HttpError(400, "The body must be multipart/form-data with a field `file`.")
    reading: MultipartSegment | None = None
    value = b""
    files = 0
    parser = PushMultipartParser(boundary, max_segment_count=MOST_FIELDS)
    try:
        async for data in body(receive):
            for event in parser.parse(data):
                if isinstance(event, MultipartSegment):
                    reading, value = event, b""
                    files += _is_file(reading)
                    if files > 1:
                        raise HttpError(400, "The form holds more than one file.", param="file")
                elif event is None:
                    assert reading is not None
                    if not _is_file(reading):
                        yield Field(reading.name or "", value.decode(errors="replace"))
                elif reading is not None and _is_file(reading):
                    yield FileData(bytes(event))
                else:
                    value += event
                    if len(value) > LONGEST_FIELD:
                        raise HttpError(413, f"A field has more than {LONGEST_FIELD} bytes.")
        parser.close()
    except MultipartError as error:
        raise HttpError(400, f"The form is damaged: {error}.") from error


def _is_file(segment: MultipartSegment) -> bool:
    return segment.name == "file"
