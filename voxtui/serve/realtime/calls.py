"""`POST /v1/realtime/calls`: begin a session over WebRTC. HTTP carries the offer and its answer."""

from __future__ import annotations

import asyncio
import ipaddress
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from starlette.responses import Response

from voxtui.serve.openai_types import SERVER, HttpError, decoded
from voxtui.serve.realtime.connection import ENDPOINT
from voxtui.serve.realtime.protocol import new_id
from voxtui.serve.upload import Disconnected, form, small_body

if TYPE_CHECKING:
    from starlette.requests import Request

    from voxtui.serve.realtime.connection import Sessions
    from voxtui.serve.realtime.session_settings import Settings
    from voxtui.serve.realtime.webrtc import Call
    from voxtui.serve.shared_models import ModelSet

CALLS_PATH = "/v1/realtime/calls"

SDP = "application/sdp"

MOST_BYTES = 64 * 1024
"""Maximum bytes of an offer. A browser's has 2 to 8 KiB."""

HANG_UP_SECONDS = 2.0
"""Maximum time for the calls to close after a request to stop."""


class Calls:
    """An endpoint. `address` is where the server listens, which decides the addresses of a call."""

    def __init__(self, sessions: Sessions, address: str) -> None:
        self._sessions = sessions
        self._addresses = addresses(address)
        self._calls: dict[str, tuple[Call, asyncio.Task[None]]] = {}

    async def begin(self, request: Request) -> Response:
        """Answer an offer. Raises HttpError and Disconnected."""
        answered = self._sessions.metrics.answered
        try:
            name, answer = await self._call(request)
        except (HttpError, Disconnected) as error:
            answered(ENDPOINT, error.status if isinstance(error, HttpError) else 499)
            raise
        answered(ENDPOINT, 201)
        headers = {"location": f"{CALLS_PATH}/{name}"}
        return Response(answer, 201, headers, media_type=SDP)

    async def hang_up(self, request: Request) -> Response:
        """Answer `POST /v1/realtime/calls/{call_id}/hangup`."""
        found = self._calls.get(request.path_params["call_id"])
        if found is None:
            raise HttpError(404, "There is no such call.", code="call_not_found")
        found[0].leave()
        return Response()

    async def drain(self) -> None:
        """End all sessions, then wait until their calls are closed."""
        await self._sessions.drain()
        if running := [task for _, task in self._calls.values()]:
            await asyncio.wait(running, timeout=HANG_UP_SECONDS)

    async def _call(self, request: Request) -> tuple[str, str]:
        """Begin a call. Returns its id and the answer to its offer. Raises HttpError."""
        settings = self._sessions.settings(request)
        offer, session = await _offer(request)
        if session is not None:
            settings = settings.updated(session)
            settings = self._sessions.of_model(settings, settings.model)
        make_call = await to_thread.run_sync(_load)  # takes a second, once
        async with AsyncExitStack() as stack:
            parts = await stack.enter_async_context(self._sessions.lend())
            call = make_call(self._addresses)
            stack.push_async_callback(call.close)
            answer = await call.answer(offer)
            name = new_id("rtc")
            lent = stack.pop_all()
        task = asyncio.create_task(self._converse(name, call, parts, settings, lent))
        self._calls[name] = call, task
        return name, answer

    async def _converse(
        self, name: str, call: Call, parts: ModelSet, settings: Settings, lent: AsyncExitStack
    ) -> None:
        try:
            async with lent:
                await self._sessions.run(call, parts, settings)
        finally:
            del self._calls[name]


def addresses(listening: str) -> list[str] | None:
    """Return the addresses for a call to a server at `listening`; None: all of this machine."""
    return None if ipaddress.ip_address(listening).is_unspecified else [listening]


async def _offer(request: Request) -> tuple[str, dict[str, Any] | None]:
    """Return the offer and the session of a request. Raises HttpError and Disconnected."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == SDP:
        return (await small_body(request.receive, MOST_BYTES)).decode(errors="replace"), None
    if kind != "multipart/form-data":
        raise HttpError(
            400, f"The body must be {SDP}, or a form with the fields `sdp` and `session`.",
        )  # fmt: skip
    fields: dict[str, str] = {}
    async for part in form(request.headers, request.receive):
        if not isinstance(part, bytes):
            fields[part[0]] = part[1]
    if "sdp" not in fields:
        raise HttpError(400, "The form has no field `sdp`.", param="sdp")
    if "session" not in fields:
        return fields["sdp"], None
    return fields["sdp"], decoded(fields["session"].encode(), dict[str, Any])


def _load() -> type[Call]:
    """Import the WebRTC libraries. Raises HttpError."""
    try:
        from voxtui.serve.realtime.webrtc import Call
    except ImportError as error:
        raise HttpError(
            501,
            f"WebRTC is not installed on the server ({error.name}). In its clone of voxtui: "
            "make setup EXTRAS=webrtc",
            kind=SERVER, code="webrtc_not_installed",
        ) from error  # fmt: skip
    return Call
