"""`POST /v1/audio/speech`: each clause is sent as soon as it is spoken."""

from __future__ import annotations

import struct
import time
from base64 import b64encode
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import numpy as np
from anyio import to_thread

from voxtui.audio.pcm import encode
from voxtui.audio.resampling import resample
from voxtui.dialogue.data import as_pcm
from voxtui.dialogue.speech.clauses import clauses
from voxtui.errors import ModelError
from voxtui.serve.endpoints.transcriptions import check_model
from voxtui.serve.http_exchange import Endpoint, Exchange
from voxtui.serve.openai_types import MOST_SPOKEN, HttpError, SpeechRequest, decoded, failed
from voxtui.serve.upload import Disconnected, small_body

if TYPE_CHECKING:
    from threading import Event as Flag

    from starlette.types import Receive

    from voxtui.dialogue.protocols import Voice

RATE = 24_000
"""Sample rate in Hz of OpenAI's `pcm`."""

MEDIA = {
    "wav": "audio/wav", "pcm": "audio/pcm", "mp3": "audio/mpeg", "opus": "audio/ogg",
    "flac": "audio/flac",
}  # fmt: skip

MOST_BYTES = 16 * 1024 + 6 * MOST_SPOKEN
"""Maximum bytes of a request: each character may be six bytes of JSON."""

FOREIGN_VOICES = frozenset(
    ("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage",
     "shimmer", "verse")
)  # fmt: skip
"""OpenAI's voices. A client may insist on one; it gets the loaded voice."""


class SpeechEndpoint(Endpoint):
    name = "speech"

    async def answer(self, exchange: Exchange) -> None:
        speech = await self._read(exchange.receive)
        async with exchange.watched(), self.pool.lend(exchange) as parts:
            if parts.voice is None:
                raise HttpError(404, 'voice.engine is "none" here.', code="model_not_found")
            await self._speak(speech, parts.voice, exchange)

    async def _read(self, receive: Receive) -> SpeechRequest:
        speech = decoded(await small_body(receive, MOST_BYTES), SpeechRequest)
        check_model(speech.model, *self.models)
        ours = self.config.voice.name
        name = speech.voice if isinstance(speech.voice, str) else str(speech.voice.get("id", ""))
        if name not in ("", ours) and name not in FOREIGN_VOICES:
            raise HttpError(400, f"This voice is not available: use {ours!r}.", param="voice")
        if speech.response_format not in MEDIA:
            raise HttpError(
                400,
                f"response_format {speech.response_format!r} is not supported: {', '.join(MEDIA)}.",
                param="response_format",
            )
        return speech

    async def _speak(self, speech: SpeechRequest, voice: Voice, exchange: Exchange) -> None:
        """Answer with sound, a clause at a time.

        Raises HttpError and Disconnected. If a later clause fails, the answer has no end, so that
        the connection is cut: HTTP has no other signal.
        """
        began = time.monotonic()
        sound = spoken(voice, speech.input, speech.speed, exchange.cancelled)
        answer = _Answer(exchange, speech)
        try:
            while piece := await to_thread.run_sync(next, sound, b""):
                if not answer.has_sound:
                    self.metrics.took(self.name, 0.0, first_sound=time.monotonic() - began)
                await answer.add(piece)
        except ModelError as error:
            if not exchange.begun or speech.stream_format == "sse":
                raise failed(str(error)) from error
            self.metrics.answered(self.name, 500)
            click.echo(f"A spoken text was cut off: {error}", err=True)
            return
        if exchange.cancelled.is_set():
            raise Disconnected
        if not answer.has_sound:
            raise HttpError(
                400, "The field `input` holds nothing that can be spoken.", param="input"
            )
        self.metrics.answered(self.name, 200)  # before the client has the end
        await answer.end()


class _Answer:
    """Sends wav and pcm while they are made, other formats at the end (headers have the length).

    It sends sound, or events with a part of the sound each.
    """

    def __init__(self, exchange: Exchange, speech: SpeechRequest) -> None:
        self.has_sound = False
        self._exchange = exchange
        self._format = speech.response_format
        self._as_events = speech.stream_format == "sse"
        self._streamed = self._format == "pcm" or (
            self._format == "wav" and len([*clauses(iter([speech.input]))]) > 1
        )
        self._made = bytearray()

    async def add(self, pcm: bytes) -> None:
        if not self._streamed:
            self._made += pcm
        else:
            first = self._format == "wav" and not self.has_sound
            await self._send(endless_wav_header() + pcm if first else pcm)
        self.has_sound = True

    async def end(self) -> None:
        if not self._streamed:
            samples = np.frombuffer(self._made, "<i2")
            await self._send(await to_thread.run_sync(encode, samples, RATE, self._format))
        if self._as_events:  # the voice counts no tokens
            usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
            await self._exchange.event({"type": "speech.audio.done", "usage": usage})
        await self._exchange.end()

    async def _send(self, sound: bytes) -> None:
        if self._as_events:
            audio = b64encode(sound).decode()
            await self._exchange.event({"type": "speech.audio.delta", "audio": audio})
            return
        if not self._exchange.begun:
            await self._exchange.begin(MEDIA[self._format])
        await self._exchange.send(sound)


def spoken(voice: Voice, text: str, speed: float | None, cancelled: Flag) -> Iterator[bytes]:
    """Yield 16-bit PCM at RATE, a clause at a time, until `cancelled`. Raises ModelError."""
    for clause in clauses(iter([text])):
        if cancelled.is_set():
            return
        for chunk in voice.speak(clause, speed):
            yield as_pcm(resample(chunk.samples, chunk.rate, RATE))


def endless_wav_header() -> bytes:
    """Return the header of a mono WAV of unknown length."""
    form, unknown = (b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16), 2**32 - 1
    parts = b"RIFF", unknown, b"WAVE", *form, b"data", unknown
    return struct.pack("<4sI4s4sIHHIIHH4sI", *parts)
