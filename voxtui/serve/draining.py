"""Read what a client still sends after its answer, as the lingering close of nginx does.

A connection that is closed over unread bytes is reset. A client that is still sending then gets the
reset instead of the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.types import Message, Receive, Send

LINGER_SECONDS = 2.0
"""Maximum time for the rest of a request. A slower sender gets a reset."""


def lingering(headers: Headers, receive: Receive, send: Send) -> tuple[Receive, Send]:
    """Wrap `receive` and `send` of a request, so that its body is read before the answer ends.

    The whole answer is sent before that. `headers` are those of the request.
    """
    unread = "content-length" in headers or "transfer-encoding" in headers

    async def receive_some() -> Message:
        nonlocal unread
        message = await receive()
        unread = unread and message.get("more_body", False)  # of a disconnect: none
        return message

    async def send_some(message: Message) -> None:
        ends = message["type"] == "http.response.body" and not message.get("more_body", False)
        if not (ends and unread):
            await send(message)
            return
        await send({**message, "more_body": True})
        with anyio.move_on_after(LINGER_SECONDS):
            while unread:
                await receive_some()
        await send({"type": "http.response.body"})

    return receive_some, send_some
