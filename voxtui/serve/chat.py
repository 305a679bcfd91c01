"""`POST /v1/chat/completions`: an answer to texts and sounds, whole or token by token."""

from __future__ import annotations

import secrets
import tempfile
import threading
import time
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio
import msgspec
import numpy as np
from anyio import to_thread
from msgspec import Meta

from voxtui.audio.clips import load_clip
from voxtui.dialogue.data import Token, Utterance
from voxtui.dialogue.protocols import PastTurn, ReplyOptions, TurnRequest
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import InputError, ModelError
from voxtui.serve.access import error_response
from voxtui.serve.openai_types import HttpError, failed
from voxtui.serve.transcriptions import check_model
from voxtui.serve.upload import Disconnected, small_body

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from voxtui.dialogue.protocols import Brain, Past
    from voxtui.serve.metrics import Metrics
    from voxtui.serve.shared_models import ModelSet, Pool
    from voxtui.settings.schema import Config

ENDPOINT = "chat"

MOST_BYTES = 32 * 2**20
"""Two minutes of stereo at 44.1 kHz, in base64."""

LONGEST_TEXT = 4000
"""Characters of all messages. The embedded model reads them in one context."""


class _Sound(msgspec.Struct):
    data: str


class _Part(msgspec.Struct):
    type: str
    text: str = ""
    input_audio: _Sound | None = None


class _Message(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part] | None = None

    @property
    def parts(self) -> list[_Part]:
        return (
            [_Part("text", self.content)] if isinstance(self.content, str) else self.content or []
        )


class _Usage(msgspec.Struct):
    include_usage: bool = False


class Request(msgspec.Struct):
    """The body of a request. Other fields are ignored, as every server does."""

    messages: Annotated[list[_Message], Meta(min_length=1, max_length=500)]
    model: str = ""
    stream: bool = False
    stream_options: _Usage | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    n: int | None = None
    modalities: list[str] | None = None
    tool_choice: Any = None


class Chat:
    def __init__(self, pool: Pool, config: Config, model: str, metrics: Metrics) -> None:
        self._pool = pool
        self._config = config
        self._model = model
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Answer(send)
        try:
            request = self._checked(await small_body(receive, MOST_BYTES))
            async with self._pool.lend() as parts:
                if parts.brain is None:
                    raise HttpError(404, "No chat model is loaded here.", code="model_not_found")
                await self._answer(request, parts, parts.brain, answer, receive)
        except HttpError as refusal:
            self._metrics.answered(ENDPOINT, refusal.status)
            if answer.begun:
                await answer.event({"error": refusal.error})
                await answer.end()
            else:
                await error_response(refusal)(scope, receive, send)
        except Disconnected:
            self._metrics.answered(ENDPOINT, 499)

    def _checked(self, body: bytes) -> Request:
        """Return the request. Raises HttpError."""
        try:
            request = msgspec.json.decode(body, type=Request)
        except msgspec.ValidationError as error:
            raise HttpError(400, f"{error}.") from error
        except msgspec.DecodeError as error:
            raise HttpError(400, f"The body is not JSON: {error}.") from error
        check_model(request.model, self._model)
        if request.n not in (None, 1):
            raise HttpError(400, "n must be 1.", param="n")
        if request.modalities is not None and "audio" in request.modalities:
            raise HttpError(400, "Answers are text; /v1/audio/speech speaks.", param="modalities")
        if request.tool_choice == "required" or isinstance(request.tool_choice, dict):
            raise HttpError(400, "Tools are never called here.", param="tool_choice")
        if request.messages[-1].role != "user":
            raise HttpError(400, "The last message must be the user's.", param="messages")
        parts = [part for message in request.messages for part in message.parts]
        if unknown := {part.type for part in parts} - {"text", "input_audio"}:
            raise HttpError(400, f"{min(unknown)!r} is not supported.", param="messages")
        if sum(len(part.text) for part in parts) > LONGEST_TEXT:
            raise HttpError(
                400, f"The messages have more than {LONGEST_TEXT} characters.", param="messages",
                code="context_length_exceeded",
            )  # fmt: skip
        return request

    async def _answer(
        self,
        request: Request,
        parts: ModelSet,
        brain: Brain,
        answer: _Answer,
        receive: Receive,
    ) -> None:
        """Answer on a thread of the pool, until the client is gone. Raises HttpError."""
        timestamps, cancelled = Timestamps(), threading.Event()
        timestamps.record(Milestone.RELEASED)
        most = request.max_completion_tokens or request.max_tokens
        limit = ReplyOptions(max_new_tokens=most).limit(
            self._config.generation.sampling().max_new_tokens
        )
        texts: list[str] = []
        answer.describe(self._model)

        def tokens() -> Iterator[str]:
            past, said, told = self._heard(request, parts)
            options = ReplyOptions(told, most, voice="none")
            with closing(
                brain.reply(TurnRequest(past, said, timestamps, cancelled, options))
            ) as items:
                yield from (item.text for item in items if isinstance(item, Token))

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            cancelled.set()

        async def work() -> None:
            reply = tokens()
            while (text := await to_thread.run_sync(next, reply, None)) is not None:
                if cancelled.is_set():
                    break
                timestamps.record(Milestone.FIRST_TOKEN)
                texts.append(text)
                if request.stream:
                    await answer.delta(text)

        failure: HttpError | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            try:
                await work()
            except InputError as error:
                failure = HttpError(400, str(error), param="messages")
            except ModelError as error:
                failure = failed(str(error))
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if cancelled.is_set():
            raise Disconnected
        timestamps.record(Milestone.LAST_TOKEN)
        since = timestamps.since_release()
        first = (
            {"first_token": since[Milestone.FIRST_TOKEN]} if Milestone.FIRST_TOKEN in since else {}
        )
        self._metrics.took(ENDPOINT, 0.0, total=since[Milestone.LAST_TOKEN], **first)
        usage = {"prompt_tokens": 0, "completion_tokens": len(texts), "total_tokens": len(texts)}
        reason = "length" if len(texts) >= limit else "stop"
        self._metrics.answered(ENDPOINT, 200)
        if request.stream:
            options = request.stream_options
            await answer.finish(reason, usage if options and options.include_usage else None)
        else:
            await answer.whole("".join(texts), reason, usage)

    def _heard(self, request: Request, parts: ModelSet) -> tuple[Past, Utterance | str, str | None]:
        """Return the past, the user's part, and the instruction. Runs on a thread.

        A sound alone goes to the brain as it is; one beside a text goes as its words. Raises
        InputError and ModelError.
        """
        told: list[str] = []
        past: list[PastTurn] = []
        *earlier, last = request.messages
        for message in earlier:
            text = self._words(message, parts)
            if message.role in ("system", "developer"):
                told.append(text)
            elif message.role == "user":
                past.append(PastTurn(text, None, ()))
            else:
                past.append(PastTurn("", None, (Token(text),)))
        sounds = [part.input_audio for part in last.parts if part.input_audio is not None]
        only = len(last.parts) == 1 and len(sounds) == 1
        said = self._utterance(sounds[0]) if only else self._words(last, parts)
        if said == "":
            raise InputError("The last message is empty.")
        return past, said, "\n\n".join(told) or None

    def _words(self, message: _Message, parts: ModelSet) -> str:
        words = [
            part.text
            if part.input_audio is None
            else parts.recognise(self._utterance(part.input_audio).samples)
            for part in message.parts
        ]
        return "\n".join(text for text in words if text.strip())

    def _utterance(self, sound: _Sound) -> Utterance:
        """Decode a sound. Raises InputError."""
        try:
            data = b64decode(sound.data, validate=True)
        except NotBase64 as error:
            raise InputError("The input_audio is not base64.") from error
        with tempfile.NamedTemporaryFile(prefix="voxtui-") as file:
            file.write(data)
            file.flush()
            try:
                clip = load_clip(Path(file.name), self._config.audio.max_utterance_s)
            except InputError as error:
                raise InputError(str(error).replace(f"{file.name}:", "The input_audio")) from error
        samples = np.ascontiguousarray(clip.samples)
        return Utterance(samples, ((0.0, clip.seconds),), time.monotonic())


class _Answer:
    """Writes an answer in the shapes of a completion and of its chunks."""

    def __init__(self, send: Send) -> None:
        self.begun = False
        self._send = send
        self._common: dict[str, Any] = {}

    def describe(self, model: str) -> None:
        name = f"chatcmpl-{secrets.token_hex(12)}"
        self._common = {"id": name, "created": int(time.time()), "model": model}

    async def delta(self, text: str) -> None:
        role = {} if self.begun else {"role": "assistant"}
        await self._chunk({**role, "content": text}, None)

    async def finish(self, reason: str, usage: dict[str, int] | None) -> None:
        """End a stream. `usage` None: the client did not ask for it."""
        await self._chunk({}, reason)
        if usage is not None:
            kind = {"object": "chat.completion.chunk"}
            await self.event({**self._common, **kind, "choices": [], "usage": usage})
        await self._data(b"data: [DONE]\n\n")
        await self.end()

    async def whole(self, text: str, reason: str, usage: dict[str, int]) -> None:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        body = {**self._common, "object": "chat.completion", "choices": [choice], "usage": usage}
        await self._begin(b"application/json")
        await self._send({"type": "http.response.body", "body": msgspec.json.encode(body)})

    async def event(self, event: dict[str, Any]) -> None:
        await self._data(b"data: " + msgspec.json.encode(event) + b"\n\n")

    async def end(self) -> None:
        await self._send({"type": "http.response.body"})

    async def _chunk(self, delta: dict[str, str], reason: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        await self.event({**self._common, "object": "chat.completion.chunk", "choices": [choice]})

    async def _data(self, data: bytes) -> None:
        if not self.begun:
            await self._begin(b"text/event-stream; charset=utf-8")
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _begin(self, media: bytes) -> None:
        self.begun = True
        headers = [(b"content-type", media), (b"cache-control", b"no-cache")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
