"""`POST /v1/audio/speech`: each clause is sent as soon as it is spoken."""

from __future__ import annotations

import io
import time
import wave
from collections.abc import Iterator
from typing import TYPE_CHECKING

from anyio import to_thread

from voxtui.audio.pcm import as_pcm
from voxtui.audio.resampling import resample
from voxtui.dialogue.speech.clauses import clauses
from voxtui.errors import ModelError
from voxtui.serve.exchange import Endpoint, Exchange
from voxtui.serve.openai_types import MOST_SPOKEN, HttpError, SpeechRequest, decoded, failed
from voxtui.serve.transcriptions import check_model
from voxtui.serve.upload import Disconnected, small_body

if TYPE_CHECKING:
    from threading import Event as Flag

    from starlette.types import Receive

    from voxtui.dialogue.protocols import Voice
    from voxtui.serve.metrics import Metrics
    from voxtui.serve.shared_models import Pool
    from voxtui.settings.schema import VoiceConfig

RATE = 24_000
"""Hz, as OpenAI's `pcm`"""

MEDIA = {"wav": "audio/wav", "pcm": "audio/pcm"}

MOST_BYTES = 16 * 1024 + 6 * MOST_SPOKEN
"""Each character may be six bytes of JSON."""

FOREIGN_VOICES = frozenset(
    ("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage",
     "shimmer", "verse")
)  # fmt: skip
"""OpenAI's names. A client may insist on one; it gets the voice that is loaded."""


class SpeechEndpoint(Endpoint):
    name = "speech"

    def __init__(self, pool: Pool, voice: VoiceConfig, model: str, metrics: Metrics) -> None:
        super().__init__(pool, metrics)
        self._config = voice
        self._model = model

    async def answer(self, exchange: Exchange) -> None:
        speech = await self._read(exchange.receive)
        async with exchange.watched(), self.pool.lend(exchange) as parts:
            if parts.voice is None:
                raise HttpError(404, 'voice.engine is "none" here.', code="model_not_found")
            await self._speak(speech, parts.voice, exchange)

    async def _read(self, receive: Receive) -> SpeechRequest:
        speech = decoded(await small_body(receive, MOST_BYTES), SpeechRequest)
        check_model(speech.model, self._model)
        name = speech.voice if isinstance(speech.voice, str) else str(speech.voice.get("id", ""))
        if name not in ("", self._config.name) and name not in FOREIGN_VOICES:
            raise HttpError(
                400, f"This voice is not available: use {self._config.name!r}.", param="voice"
            )
        if speech.response_format not in MEDIA:
            raise HttpError(
                400, f"response_format {speech.response_format!r} is not supported: wav, pcm.",
                param="response_format",
            )  # fmt: skip
        if speech.speed not in (None, self._config.speed):
            raise HttpError(
                400, f"This speed is not available: use {self._config.speed:g}.", param="speed"
            )
        return speech

    async def _speak(self, speech: SpeechRequest, voice: Voice, exchange: Exchange) -> None:
        """Answer with sound, a clause at a time.

        Raises HttpError, Disconnected, and ModelError if a later clause fails: it cuts the
        connection, as HTTP has no other way.
        """
        began = time.monotonic()
        sound = spoken(voice, speech.input, exchange.cancelled)
        while True:
            try:
                piece = await to_thread.run_sync(next, sound, b"")
            except ModelError as error:
                if not exchange.begun:
                    raise failed(str(error)) from error
                self.metrics.answered(self.name, 500)
                raise
            if exchange.cancelled.is_set():
                raise Disconnected
            if not piece:
                break
            if not exchange.begun:
                self.metrics.took(self.name, 0.0, first_sound=time.monotonic() - began)
                await exchange.begin(MEDIA[speech.response_format])
                if speech.response_format == "wav":
                    piece = endless_wav_header() + piece
            await exchange.send(piece)
        if not exchange.begun:
            raise HttpError(
                400, "The field `input` holds nothing that can be spoken.", param="input"
            )
        self.metrics.answered(self.name, 200)  # before the client has the end
        await exchange.end()


def spoken(voice: Voice, text: str, cancelled: Flag) -> Iterator[bytes]:
    """Yield 16-bit PCM at RATE, a clause at a time, until `cancelled`. Raises ModelError."""
    for clause in clauses(iter([text])):
        if cancelled.is_set():
            return
        for chunk in voice.speak(clause):
            yield as_pcm(resample(chunk.samples, chunk.rate, RATE))


def endless_wav_header() -> bytes:
    """Return the header of a mono WAV whose length is not known yet."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
    header = bytearray(file.getvalue())
    header[4:8] = header[40:44] = b"\xff\xff\xff\xff"
    return bytes(header)
