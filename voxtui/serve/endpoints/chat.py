"""`POST /v1/chat/completions`: an answer to texts and sounds, whole or token by token."""

from __future__ import annotations

import secrets
import threading
import time
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from anyio import to_thread

from voxtui.audio.clips import load_clip
from voxtui.dialogue.data import Token, Utterance
from voxtui.dialogue.protocols import PastTurn, ReplyOptions, TurnRequest
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import InputError, ModelError
from voxtui.serve.endpoints.chat_completion import ChatCompletion, Message, Sound, parsed
from voxtui.serve.exchange import Endpoint, Exchange
from voxtui.serve.openai_types import HttpError, failed
from voxtui.serve.upload import Disconnected, Spool, small_body

if TYPE_CHECKING:
    from voxtui.dialogue.protocols import Brain, Past
    from voxtui.serve.metrics import Metrics
    from voxtui.serve.shared_models import ModelSet, Pool
    from voxtui.settings.schema import Config

MOST_BYTES = 32 * 2**20
"""Two minutes of stereo at 44.1 kHz, in base64."""

JSON_ONLY = "Answer with JSON only."
"""The instruction of a client that asks for JSON and sends none."""


class Chat(Endpoint):
    name = "chat"

    def __init__(self, pool: Pool, config: Config, models: Sequence[str], metrics: Metrics) -> None:
        super().__init__(pool, metrics)
        self._config = config
        self._models = models

    async def answer(self, exchange: Exchange) -> None:
        request = parsed(await small_body(exchange.receive, MOST_BYTES), self._models)
        async with exchange.watched(), self.pool.lend(exchange) as parts:
            if parts.brain is None:
                raise HttpError(404, "No chat model is loaded here.", code="model_not_found")
            if request.json_schema and parts.brain.name == "voxtral":
                raise HttpError(
                    400, "Voxtral cannot be held to JSON.", param="response_format",
                    code="unsupported_value",
                )  # fmt: skip
            await self._answer(request, parts, parts.brain, exchange)

    async def _answer(
        self, request: ChatCompletion, parts: ModelSet, brain: Brain, exchange: Exchange
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
            schema = request.json_schema
            options = ReplyOptions(
                instructions or (JSON_ONLY if schema else None), most, "none", json_schema=schema
            )
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
        if reason == "stop" and request.json_schema and not request.stops:
            _check_json("".join(texts))
        self.metrics.answered(self.name, 200)
        if request.stream:
            options = request.stream_options
            await answer.finish(reason, usage if options and options.include_usage else None)
        else:
            await answer.whole("".join(texts), reason, usage)

    def _heard(
        self, request: ChatCompletion, parts: ModelSet, cancelled: threading.Event
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

    def _words(self, message: Message, parts: ModelSet, cancelled: threading.Event) -> str:
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


def _check_json(text: str) -> None:
    """Raise HttpError if `text` is not JSON, so that no client takes it for an answer."""
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise failed("The model did not keep to response_format.") from error


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
