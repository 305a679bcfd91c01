"""`POST /v1/audio/speech`: each clause is sent as soon as it is spoken."""

from __future__ import annotations

import io
import time
import wave
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import StreamingResponse

from voxtui.audio.pcm import as_pcm
from voxtui.audio.resampling import resample
from voxtui.dialogue.speech.clauses import clauses
from voxtui.errors import ModelError
from voxtui.serve.access import error_response
from voxtui.serve.openai_types import MOST_SPOKEN, HttpError, Speech, failed
from voxtui.serve.transcriptions import check_model
from voxtui.serve.upload import Disconnected, small_body

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from voxtui.dialogue.protocols import Voice
    from voxtui.serve.metrics import Metrics
    from voxtui.serve.shared_models import Pool
    from voxtui.settings.schema import VoiceConfig

ENDPOINT = "speech"

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


class SpeechEndpoint:
    def __init__(self, pool: Pool, voice: VoiceConfig, model: str, metrics: Metrics) -> None:
        self._pool = pool
        self._config = voice
        self._model = model
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            speech = await self._read(receive)
            async with self._pool.lend() as parts:
                if parts.voice is None:
                    raise HttpError(404, 'voice.engine is "none" here.', code="model_not_found")
                await self._speak(speech, parts.voice, scope, receive, send)
        except HttpError as refusal:
            self._metrics.answered(ENDPOINT, refusal.status)
            await error_response(refusal)(scope, receive, send)
        except Disconnected:
            self._metrics.answered(ENDPOINT, 499)

    async def _read(self, receive: Receive) -> Speech:
        try:
            speech = msgspec.json.decode(await small_body(receive, MOST_BYTES), type=Speech)
        except msgspec.ValidationError as error:
            raise HttpError(400, f"{error}.") from error
        except msgspec.DecodeError as error:
            raise HttpError(400, f"The body is not JSON: {error}.") from error
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

    async def _speak(
        self, speech: Speech, voice: Voice, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer with sound. The first clause is spoken before the answer begins.

        Raises HttpError if that fails. A later failure, ModelError, cuts the connection, as HTTP
        has no other way. Raises Disconnected if the client leaves.
        """
        from anyio import to_thread

        began = time.monotonic()
        sound = spoken(voice, speech.input)
        try:
            first = await to_thread.run_sync(next, sound, b"")
        except ModelError as error:
            raise failed(str(error)) from error
        if not first:
            raise HttpError(
                400, "The field `input` holds nothing that can be spoken.", param="input"
            )
        self._metrics.took(ENDPOINT, 0.0, first_sound=time.monotonic() - began)

        made = False

        def whole() -> Iterator[bytes]:
            nonlocal made
            if speech.response_format == "wav":
                yield endless_wav_header()
            yield first
            yield from sound
            made = True
            self._metrics.answered(ENDPOINT, 200)  # before the client has the end

        answer = StreamingResponse(whole(), media_type=MEDIA[speech.response_format])
        try:
            await answer(scope, receive, send)
        except ModelError:
            self._metrics.answered(ENDPOINT, 500)
            raise
        if not made:
            raise Disconnected


def spoken(voice: Voice, text: str) -> Iterator[bytes]:
    """Yield 16-bit PCM at RATE, a clause at a time. Raises ModelError."""
    for clause in clauses(iter([text])):
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
