"""`POST /v1/chat/completions`: an answer to texts and sounds, whole or token by token."""

from __future__ import annotations

import secrets
import threading
import time
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
from anyio import to_thread
from msgspec import Meta

from voxtui.audio.clips import load_clip
from voxtui.dialogue.data import Token, Utterance
from voxtui.dialogue.protocols import PastTurn, ReplyOptions, TurnRequest
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import InputError, ModelError
from voxtui.serve.exchange import Endpoint, Exchange
from voxtui.serve.openai_types import HttpError, decoded, failed
from voxtui.serve.transcriptions import check_model
from voxtui.serve.upload import Disconnected, Spool, small_body

if TYPE_CHECKING:
    from voxtui.dialogue.protocols import Brain, Past
    from voxtui.serve.metrics import Metrics
    from voxtui.serve.shared_models import ModelSet, Pool
    from voxtui.settings.schema import Config

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


class Chat(Endpoint):
    name = "chat"

    def __init__(self, pool: Pool, config: Config, model: str, metrics: Metrics) -> None:
        super().__init__(pool, metrics)
        self._config = config
        self._model = model

    async def answer(self, exchange: Exchange) -> None:
        request = self._checked(await small_body(exchange.receive, MOST_BYTES))
        async with exchange.watched(), self.pool.lend(exchange) as parts:
            if parts.brain is None:
                raise HttpError(404, "No chat model is loaded here.", code="model_not_found")
            await self._answer(request, parts, parts.brain, exchange)

    def _checked(self, body: bytes) -> Request:
        """Return the request. Raises HttpError."""
        request = decoded(body, Request)
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
        self, request: Request, parts: ModelSet, brain: Brain, exchange: Exchange
    ) -> None:
        """Answer on a thread, until the client has left. Raises HttpError and Disconnected."""
        answer = _Answer(exchange, self._model)
        timestamps = Timestamps()
        timestamps.record(Milestone.RELEASED)
        most = request.max_completion_tokens or request.max_tokens
        limit = ReplyOptions(max_new_tokens=most).limit(
            self._config.generation.sampling().max_new_tokens
        )
        texts: list[str] = []

        def tokens() -> Generator[str]:
            past, said, instructions = self._heard(request, parts, exchange.cancelled)
            options = ReplyOptions(instructions, most, voice="none")
            turn = TurnRequest(past, said, timestamps, exchange.cancelled, options)
            with closing(brain.reply(turn)) as items:
                yield from (item.text for item in items if isinstance(item, Token))

        reply = tokens()
        try:
            while (text := await to_thread.run_sync(next, reply, None)) is not None:
                if exchange.cancelled.is_set():
                    raise Disconnected
                timestamps.record(Milestone.FIRST_TOKEN)
                texts.append(text)
                if request.stream:
                    await answer.delta(text)
        except InputError as error:
            raise HttpError(400, str(error), param="messages") from error
        except ModelError as error:
            raise failed(str(error)) from error
        finally:
            await to_thread.run_sync(reply.close)
        if exchange.cancelled.is_set():
            raise Disconnected
        timestamps.record(Milestone.LAST_TOKEN)
        since = timestamps.since_release()
        first = (
            {"first_token": since[Milestone.FIRST_TOKEN]} if Milestone.FIRST_TOKEN in since else {}
        )
        self.metrics.took(self.name, 0.0, total=since[Milestone.LAST_TOKEN], **first)
        usage = {"prompt_tokens": 0, "completion_tokens": len(texts), "total_tokens": len(texts)}
        reason = "length" if len(texts) >= limit else "stop"
        self.metrics.answered(self.name, 200)
        if request.stream:
            options = request.stream_options
            await answer.finish(reason, usage if options and options.include_usage else None)
        else:
            await answer.whole("".join(texts), reason, usage)

    def _heard(
        self, request: Request, parts: ModelSet, cancelled: threading.Event
    ) -> tuple[Past, Utterance | str, str | None]:
        """Return the past, the user's part, and the instruction. Runs on a thread.

        A sound alone goes to the brain as it is; one beside a text goes as its words. Raises
        InputError and ModelError.
        """
        instructions: list[str] = []
        past: list[PastTurn] = []
        *earlier, last = request.messages
        for message in earlier:
            text = self._words(message, parts, cancelled)
            if message.role in ("system", "developer"):
                instructions.append(text)
            elif message.role == "user":
                past.append(PastTurn(text, None, ()))
            else:
                past.append(PastTurn("", None, (Token(text),)))
        sounds = [part.input_audio for part in last.parts if part.input_audio is not None]
        only = len(last.parts) == 1 and len(sounds) == 1
        said = self._utterance(sounds[0]) if only else self._words(last, parts, cancelled)
        if said == "":
            raise InputError("The last message is empty.")
        return past, said, "\n\n".join(instructions) or None

    def _words(self, message: _Message, parts: ModelSet, cancelled: threading.Event) -> str:
        words = [
            part.text
            if part.input_audio is None
            else parts.recognise(self._utterance(part.input_audio).samples, cancelled)
            for part in message.parts
        ]
        return "\n".join(text for text in words if text.strip())

    def _utterance(self, sound: _Sound) -> Utterance:
        """Decode a sound. Raises InputError."""
        try:
            data = b64decode(sound.data, validate=True)
        except NotBase64 as error:
            raise InputError("The input_audio is not base64.") from error
        with Spool() as file:
            file.write(data)
            try:
                clip = load_clip(file.path, self._config.audio.max_utterance_s)
            except InputError as error:
                raise InputError(str(error).replace(f"{file.path}:", "The input_audio")) from error
        samples = np.ascontiguousarray(clip.samples)
        return Utterance(samples, ((0.0, clip.seconds),), time.monotonic())


class _Answer:
    """Writes an answer in the shapes of a completion and of its chunks."""

    def __init__(self, exchange: Exchange, model: str) -> None:
        self._exchange = exchange
        name = f"chatcmpl-{secrets.token_hex(12)}"
        self._common = {"id": name, "created": int(time.time()), "model": model}

    async def delta(self, text: str) -> None:
        role = {} if self._exchange.begun else {"role": "assistant"}
        await self._chunk({**role, "content": text}, None)

    async def finish(self, reason: str, usage: dict[str, int] | None) -> None:
        """End a stream, with the counts of tokens if the client asked for them."""
        await self._chunk({}, reason)
        if usage is not None:
            kind = {"object": "chat.completion.chunk"}
            await self._exchange.event({**self._common, **kind, "choices": [], "usage": usage})
        await self._exchange.event(b"[DONE]")
        await self._exchange.end()

    async def whole(self, text: str, reason: str, usage: dict[str, int]) -> None:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        body = {**self._common, "object": "chat.completion", "choices": [choice], "usage": usage}
        await self._exchange.begin("application/json")
        await self._exchange.end(msgspec.json.encode(body))

    async def _chunk(self, delta: dict[str, str], reason: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        kind = {"object": "chat.completion.chunk"}
        await self._exchange.event({**self._common, **kind, "choices": [choice]})
