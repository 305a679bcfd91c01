"""`POST /v1/chat/completions`: an answer to texts and sounds, whole or token by token."""

from __future__ import annotations

import secrets
import threading
import time
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Generator, Iterator, Sequence
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
from voxtui.serve.endpoints.transcriptions import check_model
from voxtui.serve.exchange import Endpoint, Exchange
from voxtui.serve.openai_types import HttpError, decoded, failed
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


class _ContentPart(msgspec.Struct):
    type: str
    text: str = ""
    input_audio: _Sound | None = None


class _Message(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_ContentPart] | None = None

    @property
    def parts(self) -> list[_ContentPart]:
        return (
            [_ContentPart("text", self.content)]
            if isinstance(self.content, str)
            else self.content or []
        )


class _Usage(msgspec.Struct):
    include_usage: bool = False


WITHOUT_EFFECT = frozenset(
    ("frequency_penalty", "logit_bias", "metadata", "parallel_tool_calls", "prediction",
     "presence_penalty", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
     "reasoning_effort", "safety_identifier", "seed", "service_tier", "store", "temperature",
     "top_p", "user", "verbosity")
)  # fmt: skip
"""OpenAI's fields that change nothing here: `[generation]` of the configuration decides."""

REFUSED: dict[str, tuple[object, ...]] = {
    "audio": (), "function_call": ("none",), "functions": ([],), "logprobs": (False,),
    "moderation": (), "n": (1,), "tool_choice": ("none",), "tools": ([],), "top_logprobs": (0,),
    "web_search_options": (),
}  # fmt: skip
"""OpenAI's fields that are refused, and the values that ask for nothing. null is always one."""


class Request(msgspec.Struct):
    """The body of a request. Fields that OpenAI does not have are ignored."""

    messages: Annotated[list[_Message], Meta(min_length=1, max_length=500)]
    model: str = ""
    stream: bool = False
    stream_options: _Usage | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    modalities: list[str] | None = None
    response_format: dict[str, Any] | None = None
    stop: (
        Annotated[str, Meta(min_length=1)]
        | Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=4)]
        | None
    ) = None

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class Chat(Endpoint):
    name = "chat"

    def __init__(self, pool: Pool, config: Config, models: Sequence[str], metrics: Metrics) -> None:
        super().__init__(pool, metrics)
        self._config = config
        self._models = models

    async def answer(self, exchange: Exchange) -> None:
        request = self._checked(await small_body(exchange.receive, MOST_BYTES))
        async with exchange.watched(), self.pool.lend(exchange) as parts:
            if parts.brain is None:
                raise HttpError(404, "No chat model is loaded here.", code="model_not_found")
            await self._answer(request, parts, parts.brain, exchange)

    def _checked(self, body: bytes) -> Request:
        """Return the request. Raises HttpError."""
        request = decoded(body, Request)
        for field, value in decoded(body, dict[str, Any]).items():
            if field in REFUSED and value is not None and value not in REFUSED[field]:
                raise HttpError(
                    400, f"{field} is not supported here.", param=field, code="unsupported_value"
                )
        kind = (request.response_format or {}).get("type", "text")
        if kind != "text":
            raise HttpError(
                400, f"response_format {kind!r} is not supported. Supported: text.",
                param="response_format", code="unsupported_value",
            )  # fmt: skip
        check_model(request.model, *self._models)
        if request.modalities is not None and "audio" in request.modalities:
            raise HttpError(400, "Answers are text; /v1/audio/speech speaks.", param="modalities")
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
        answer = _ChatAnswer(exchange, self._models[1])
        timestamps = Timestamps()
        timestamps.record(Milestone.RELEASED)
        most = request.max_completion_tokens or request.max_tokens
        limit = ReplyOptions(max_new_tokens=most).limit(
            self._config.generation.sampling().max_new_tokens
        )
        texts: list[str] = []
        generated = 0

        def tokens() -> Generator[str]:
            nonlocal generated
            past, said, instructions = self._heard(request, parts, exchange.cancelled)
            options = ReplyOptions(instructions, most, voice="none")
            turn = TurnRequest(past, said, timestamps, exchange.cancelled, options)
            with closing(brain.reply(turn)) as items:
                for item in items:
                    if isinstance(item, Token):
                        generated += 1
                        yield item.text

        reply = tokens()
        ending = until_stop(reply, request.stops)
        try:
            while (text := await to_thread.run_sync(next, ending, None)) is not None:
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
        prompt, generated = timestamps.prompt_tokens, timestamps.tokens or generated
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": generated,
            "total_tokens": prompt + generated,
        }
        reason = "length" if generated >= limit else "stop"
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


def until_stop(texts: Iterator[str], stops: Sequence[str]) -> Iterator[str]:
    """Yield `texts` up to the first of `stops`. What may be the beginning of one is held back."""
    held = ""
    for text in texts:
        held += text
        found = [at for stop in stops if (at := held.find(stop)) >= 0]
        if found:
            held = held[: min(found)]
            break
        sure = len(held)
        for stop in stops:
            for length in range(min(len(stop) - 1, len(held)), 0, -1):
                if held.endswith(stop[:length]):
                    sure = min(sure, len(held) - length)
                    break
        if sure:
            yield held[:sure]
            held = held[sure:]
    if held:
        yield held


class _ChatAnswer:
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
