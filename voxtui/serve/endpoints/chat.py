"""`POST /v1/chat/completions`: answer texts and sounds, at once or token by token."""

from __future__ import annotations

import secrets
import time
from base64 import b64decode
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from anyio import to_thread

from voxtui.audio.clips import load_clip
from voxtui.dialogue.data import FinishedCall, Token, ToolCall, Utterance
from voxtui.dialogue.protocols import PastTurn, ReplyOptions, TurnRequest
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import InputError, ModelError
from voxtui.serve.endpoints.chat_completion import ChatCompletion, Message, Sound, parsed
from voxtui.serve.function_tools import Function, call_id, function_name, tool_name
from voxtui.serve.http_exchange import Endpoint, Exchange
from voxtui.serve.openai_types import NOT_JSON, HttpError, failed
from voxtui.serve.upload import Disconnected, Spool, small_body

if TYPE_CHECKING:
    from threading import Event as Flag

    from voxtui.dialogue.protocols import Brain
    from voxtui.serve.shared_models import ModelSet

MOST_BYTES = 32 * 2**20
"""Maximum bytes of a request: two minutes of stereo at 44.1 kHz, in base64."""


class Chat(Endpoint):
    name = "chat"

    async def answer(self, exchange: Exchange) -> None:
        request = parsed(await small_body(exchange.receive, MOST_BYTES), self.models)
        async with exchange.watched(), self.pool.lend(exchange) as parts:
            if parts.brain is None:
                raise HttpError(404, "No chat model is loaded here.", code="model_not_found")
            if parts.brain.name == "voxtral" and request.json_schema:
                message = "response_format is not supported by Voxtral."
                raise HttpError(400, message, param="response_format", code="unsupported_value")
            await self._answer(request, parts, parts.brain, exchange)

    async def _answer(
        self, request: ChatCompletion, parts: ModelSet, brain: Brain, exchange: Exchange
    ) -> None:
        """Answer on a thread, until the client disconnects. Raises HttpError and Disconnected."""
        answer = _ChatAnswer(exchange, self.models[1], request.functions)
        timestamps = Timestamps()
        timestamps.record(Milestone.RELEASED)
        most = request.max_completion_tokens or request.max_tokens
        limit = ReplyOptions(max_new_tokens=most).limit(
            self.config.generation.sampling().max_new_tokens
        )
        texts: list[str] = []
        calls: list[ToolCall] = []
        generated = 0

        def tokens() -> Generator[str]:
            nonlocal generated
            turn = self._heard(request, parts, timestamps, exchange.cancelled)
            with closing(brain.reply(turn)) as items:
                for item in items:
                    if isinstance(item, ToolCall):
                        calls.append(item)
                    elif isinstance(item, Token):
                        generated += 1
                        yield item.text

        reply = tokens()
        ending = until_stop(reply, request.stops)
        try:
            while (text := await to_thread.run_sync(next, ending, None)) is not None:
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
        named = {"first_token": Milestone.FIRST_TOKEN, "total": Milestone.LAST_TOKEN}
        stages = {name: since[at] for name, at in named.items() if at in since}
        self.metrics.took(self.name, 0.0, **stages)
        prompt, generated = timestamps.prompt_tokens, timestamps.tokens or generated
        usage = {"prompt_tokens": prompt, "completion_tokens": generated}
        usage["total_tokens"] = prompt + generated
        reason = "tool_calls" if calls else "length" if generated >= limit else "stop"
        if reason == "stop" and request.json_schema and not request.stops:
            _check_json("".join(texts))
        self.metrics.answered(self.name, 200)
        if request.stream:
            options = request.stream_options
            if calls:
                await answer.call(calls)
            await answer.finish(reason, usage if options and options.include_usage else None)
        else:
            await answer.whole("".join(texts), reason, usage, calls)

    def _heard(
        self, request: ChatCompletion, parts: ModelSet, timestamps: Timestamps, cancelled: Flag
    ) -> TurnRequest:
        """Return the input of the brain. Runs on a thread.

        A sound alone goes to the brain as it is; beside a text its words do. Results of calls
        belong to the user's words before them. Raises HttpError, InputError and ModelError.
        """
        instructions: list[str] = []
        past: list[PastTurn] = []
        calls: dict[str, ToolCall] = {}
        *earlier, last = request.messages
        for message in request.messages if last.role == "tool" else earlier:
            text = self._words(message, parts, cancelled)
            match message.role:
                case "system" | "developer":
                    instructions.append(text)
                case "user":
                    past.append(PastTurn(text, None, ()))
                case "assistant":
                    for made in message.tool_calls or ():
                        function = made.function
                        name = tool_name(function.name)
                        calls[made.id] = ToolCall(name, function.arguments, made.id)
                    if text and not message.tool_calls:  # its results belong to the turn before
                        past.append(PastTurn("", None, (Token(text),)))
                case "tool":
                    if (call := calls.get(message.tool_call_id or "")) is None or not past:
                        raise InputError(f"No call has the id {message.tool_call_id!r}.")
                    done = FinishedCall(call, text)
                    past[-1] = replace(past[-1], calls=(*past[-1].calls, done))
        options = request.style("\n\n".join(instructions) or None)
        if last.role == "tool":
            asked = past.pop()
            return TurnRequest(
                past, asked.user_input, timestamps, cancelled, options, calls=asked.calls
            )
        sounds = [part.input_audio for part in last.parts if part.input_audio is not None]
        only = len(last.parts) == 1 and len(sounds) == 1
        user_input = self._utterance(sounds[0]) if only else self._words(last, parts, cancelled)
        if user_input == "":
            raise InputError("The last message is empty.")
        return TurnRequest(past, user_input, timestamps, cancelled, options)

    def _words(self, message: Message, parts: ModelSet, cancelled: Flag) -> str:
        words = [
            part.text
            if part.input_audio is None
            else parts.recognise(self._utterance(part.input_audio).samples, cancelled)
            for part in message.parts
        ]
        return "\n".join(text for text in words if text.strip())

    def _utterance(self, sound: Sound) -> Utterance:
        """Decode a sound. Raises InputError."""
        try:
            data = b64decode(sound.data, validate=True)
        except ValueError as error:  # also of a character that is not ASCII
            raise InputError("The input_audio is not base64.") from error
        with Spool() as file:
            file.write(data)
            try:
                clip = load_clip(file.path, self.config.audio.max_utterance_s)
            except InputError as error:
                raise InputError(str(error).replace(f"{file.path}:", "The input_audio")) from error
        samples = np.ascontiguousarray(clip.samples)
        return Utterance(samples, ((0.0, clip.seconds),), time.monotonic())


def _check_json(text: str) -> None:
    """Raise HttpError if `text` is not JSON, so that no client takes it for an answer."""
    try:
        msgspec.json.decode(text)
    except NOT_JSON as error:
        raise failed("The model did not keep to response_format.") from error


def until_stop(texts: Iterator[str], stops: Sequence[str]) -> Iterator[str]:
    """Yield `texts` up to the first of `stops`. Holds back a possible beginning of a stop."""
    held = ""
    for text in texts:
        held += text
        if found := [at for stop in stops if (at := held.find(stop)) >= 0]:
            held = held[: min(found)]
            break
        begun = (n for stop in stops for n in range(1, len(stop)) if held.endswith(stop[:n]))
        sure = len(held) - max(begun, default=0)
        if sure:
            yield held[:sure]
            held = held[sure:]
    if held:
        yield held


class _ChatAnswer:
    """Writes an answer as a completion, or as its chunks."""

    def __init__(self, exchange: Exchange, model: str, functions: Sequence[Function]) -> None:
        self._exchange = exchange
        self._functions = functions
        name = f"chatcmpl-{secrets.token_hex(12)}"
        self._common = {"id": name, "created": int(time.time()), "model": model}

    async def delta(self, text: str) -> None:
        await self._chunk({**self._role, "content": text}, None)

    async def call(self, calls: Sequence[ToolCall]) -> None:
        """Stream calls, each with all of its arguments."""
        shown = [{"index": number, **self._call(call)} for number, call in enumerate(calls)]
        await self._chunk({**self._role, "tool_calls": shown}, None)

    @property
    def _role(self) -> dict[str, str]:
        return {} if self._exchange.begun else {"role": "assistant"}

    def _call(self, call: ToolCall) -> dict[str, Any]:
        name = function_name(call, self._functions)
        function = {"name": name, "arguments": call.arguments}
        return {"id": call_id(call), "type": "function", "function": function}

    async def finish(self, reason: str, usage: dict[str, int] | None) -> None:
        """End a stream, with the token counts if the client requested them."""
        await self._chunk({}, reason)
        if usage is not None:
            kind = {"object": "chat.completion.chunk"}
            await self._exchange.event({**self._common, **kind, "choices": [], "usage": usage})
        await self._exchange.event(b"[DONE]")
        await self._exchange.end()

    async def whole(
        self, text: str, reason: str, usage: dict[str, int], calls: Sequence[ToolCall]
    ) -> None:
        message = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            shown = [self._call(call) for call in calls]
            message = {**message, "content": text or None, "tool_calls": shown}
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        body = {**self._common, "object": "chat.completion", "choices": [choice], "usage": usage}
        await self._exchange.begin("application/json")
        await self._exchange.end(msgspec.json.encode(body))

    async def _chunk(self, delta: dict[str, Any], reason: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        kind = {"object": "chat.completion.chunk"}
        await self._exchange.event({**self._common, **kind, "choices": [choice]})
