"""Read a request's body while it arrives, in bounded memory, and store its file on the disk."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from email.message import Message
from pathlib import Path
from typing import TYPE_CHECKING, Self

import anyio
from multipart import MultipartError, MultipartSegment, PushMultipartParser

from voxtui.serve.openai_types import HttpError

if TYPE_CHECKING:
    from threading import Event as Flag

    from starlette.datastructures import Headers
    from starlette.types import Receive

WINDOW_SECONDS = 30.0
"""Time in which a body must bring LEAST_BYTES."""

LEAST_BYTES = 8192
"""Minimum bytes in that time, a third of what the slowest speech codecs need in real time."""

MOST_FIELDS = 64

LONGEST_FIELD = 64 * 1024
"""Maximum bytes of a field other than the file."""

POLL_SECONDS = 0.1


class Disconnected(Exception):
    """The client has closed the connection."""


async def body(receive: Receive) -> AsyncIterator[bytes]:
    """Yield the pieces of a request's body. Raises HttpError (408) and Disconnected."""
    more, taken, due_at = True, 0, time.monotonic() + WINDOW_SECONDS
    while more:
        try:
            with anyio.fail_after(due_at - time.monotonic()):
                message = await receive()
        except TimeoutError:
            raise HttpError(
                408,
                f"Less than {LEAST_BYTES} bytes arrived within {WINDOW_SECONDS:g} s.",
                code="timeout",
                headers={"x-should-retry": "false"},
            ) from None
        if message["type"] == "http.disconnect":
            raise Disconnected
        more = message.get("more_body", False)
        if data := message.get("body", b""):
            taken += len(data)
            asked_at = time.monotonic()
            yield data
            due_at += time.monotonic() - asked_at  # the time in which we did not read
            if taken >= LEAST_BYTES:
                taken, due_at = 0, time.monotonic() + WINDOW_SECONDS


async def small_body(receive: Receive, most: int) -> bytes:
    """Return a whole body of up to `most` bytes. Raises HttpError (413) and Disconnected."""
    whole = bytearray()
    async for data in body(receive):
        whole += data
        if len(whole) > most:
            raise HttpError(413, f"The request has more than {most} bytes.")
    return bytes(whole)


async def form(headers: Headers, receive: Receive) -> AsyncIterator[tuple[str, str] | bytes]:
    """Yield the fields of a form (name, value) and the bytes of its file `file`, as they arrive.

    Raises HttpError for any other body, and Disconnected.
    """
    content = Message()
    content["content-type"] = headers.get("content-type", "")
    boundary = content.get_boundary("")
    if content.get_content_type() != "multipart/form-data" or not boundary.isascii():
        boundary = ""
    if not boundary:
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
                        yield _field(reading.name or "", value)
                elif reading is not None and _is_file(reading):
                    yield bytes(event)
                else:
                    value += event
                    if len(value) > LONGEST_FIELD:
                        raise HttpError(413, f"A field has more than {LONGEST_FIELD} bytes.")
        parser.close()
    except (MultipartError, UnicodeDecodeError) as error:
        raise HttpError(400, f"The form is damaged: {error}.") from error


def _field(name: str, value: bytes) -> tuple[str, str]:
    try:
        return name, value.decode()
    except UnicodeDecodeError as error:
        raise HttpError(400, f"The field {name!r} is not UTF-8.", param=name) from error


def _is_file(segment: MultipartSegment) -> bool:
    return segment.name == "file"


class Spool:
    """An unnamed file, which no kill leaves behind. One thread writes, another one reads."""

    def __init__(self) -> None:
        """Create the file. Raises OSError."""
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (see __exit__)
        self._size = 0
        self._ended = False
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    @property
    def path(self) -> Path:
        """The path by which this process can open it."""
        return Path(f"/dev/fd/{self._file.fileno()}")

    def write(self, data: bytes) -> None:
        """Append `data`. Raises OSError."""
        at = 0
        while at < len(data):
            at += os.pwrite(self._file.fileno(), data[at:], self._size + at)
        with self._changed:
            self._size += len(data)
            self._changed.notify_all()

    def end(self) -> None:
        """Take note that nothing more will be written."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def read(self, offset: int, most: int, cancelled: Flag) -> bytes:
        """Return up to `most` bytes from `offset`, once there are any; none at the end."""
        with self._changed:
            while self._size <= offset and not self._ended and not cancelled.is_set():
                self._changed.wait(POLL_SECONDS)
        return b"" if cancelled.is_set() else os.pread(self._file.fileno(), most, offset)
