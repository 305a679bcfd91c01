"""`POST /v1/audio/transcriptions`: upload, decode and recognise a file at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from anyio import Lock, from_thread, to_thread

from voxtui.audio.clips import TooLong, pieces
from voxtui.audio.pcm import LONGEST_HEADER, PcmStream, wav_header
from voxtui.commands.transcribe import TranscriptSegment, format_segment, segments
from voxtui.dialogue.data import SAMPLE_RATE
from voxtui.errors import ForeignSpeech, InputError, VoxtuiError
from voxtui.serve import openai_types
from voxtui.serve.http_exchange import Endpoint, Exchange
from voxtui.serve.openai_types import HttpError, failed
from voxtui.serve.upload import Spool, form
from voxtui.settings.schema import LANGUAGES

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples
    from voxtui.serve.shared_models import ModelSet
    from voxtui.settings.schema import ServeConfig

PIECE_BYTES = 65_536
"""Bytes of a piece: two seconds of a WAV that is decoded while it arrives."""

LATEST_SECONDS = 30.0
"""Seconds by which a stream may be late before the models serve others until it is complete."""

FORMATS = ("json", "text", "srt", "vtt", "verbose_json")

TIMES = ("segment",)
"""Values of timestamp_granularities: the recognisers report no times of words."""

REFUSED = frozenset(("include", "known_speaker_names", "known_speaker_references"))

MEDIA = {"text": "text/plain", "srt": "text/plain", "vtt": "text/vtt"}

FOREIGN_MODELS = ("whisper", "gpt-", "tts-", "voxtral")
"""Prefixes of OpenAI's and Mistral's models, for which a client gets the loaded model."""


ALIAS = "voxtui"


def check_model(name: str, *ours: str) -> None:
    """Raise HttpError (404) unless `name` is one of `ours`, empty, ALIAS or of FOREIGN_MODELS."""
    if name not in ("", ALIAS, *ours) and not name.startswith(FOREIGN_MODELS):
        raise HttpError(
            404, f"There is no model {name!r} here, only {', '.join(ours)}.", param="model",
            code="model_not_found",
        )  # fmt: skip


@dataclass(slots=True)
class Options:
    """The fields of a request. Fields that OpenAI does not have are ignored."""

    models: Sequence[str]
    language: str
    """the spoken language, an ISO 639-1 code unless the client says otherwise; empty for any"""
    knows_any_language: bool
    response_format: str = "json"
    stream: bool = False
    granularities: set[str] = field(default_factory=set[str])

    def set(self, name: str, value: str) -> None:
        """Store a field. Raises HttpError for a value that the other fields exclude."""
        match name.removesuffix("[]"):
            case "model":
                check_model(value, *self.models)
            case "response_format":
                if value not in FORMATS:
                    raise _unsupported(name, value, ", ".join(FORMATS))
                self.response_format = value
            case "stream":
                if value.lower() not in ("true", "false"):
                    raise _unsupported(name, value, "true, false")
                self.stream = value.lower() == "true"
            case "language" | "languages":
                known = self.language, LANGUAGES.get(self.language, "").lower()
                if value and self.knows_any_language:
                    self.language = value
                elif value and value.lower() not in known:
                    raise _unsupported(name, value, self.language)
            case "timestamp_granularities":
                if value not in TIMES:
                    raise _unsupported(name, value, ", ".join(TIMES))
                self.granularities.add(value)
            case field if field in REFUSED:
                raise _unsupported(name, value, "nothing")
            case "temperature":
                _check_number(name, value)
            case _:  # without effect, or not OpenAI's
                pass
        # Checked here and not at the end of the form: the first event may leave before that.
        if self.stream and self.response_format in ("srt", "vtt"):
            raise HttpError(
                400, f"{self.response_format} cannot be streamed.", param="response_format"
            )

    @property
    def complete(self) -> bool:
        """Return True if no missing field can change the meaning of these."""
        return not self.granularities or self.response_format == "verbose_json"

    def check(self) -> None:
        """Raise HttpError if the fields, which are all known now, exclude each other."""
        if not self.complete:
            raise HttpError(
                400, "timestamp_granularities needs response_format=verbose_json.",
                param="timestamp_granularities",
            )  # fmt: skip


def _check_number(name: str, value: str) -> None:
    try:
        number = float(value or 0)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise _unsupported(name, value, "0 to 1, without effect")


def _unsupported(name: str, value: str, supported: str) -> HttpError:
    return HttpError(
        400, f"{name} {value!r} is not supported. Supported: {supported}.", param=name,
        code="unsupported_value",
    )  # fmt: skip


class Transcriptions(Endpoint):
    name = "transcriptions"

    async def answer(self, exchange: Exchange) -> None:
        knows_any = self.pool.brain in ("remote", "voxtral")
        language = self.config.brain.language or ("" if knows_any else "en")
        options = Options(self.models, language, knows_any)
        answer = TranscriptionAnswer(exchange, options)
        with Spool() as spool:
            upload = Upload(spool, exchange, self.config.serve)
            recognising: asyncio.Task[bool] | None = None
            try:
                async for part in form(exchange.headers, exchange.receive):
                    if recognising is not None and recognising.done() and recognising.exception():
                        break  # the rest of the file is of no use
                    if not isinstance(part, bytes):
                        answer.options.set(*part)
                        await answer.catch_up()
                    elif await upload.take(part):
                        recognising = asyncio.create_task(self._recognise(upload, answer))
                answer.options.check()
                upload.end()
                async with exchange.watched():
                    if recognising is None or not await recognising:
                        recognising = asyncio.create_task(self._recognise(upload, answer))
                        await recognising
            finally:  # the thread may still read the file
                exchange.leave()
                if recognising is not None:
                    await asyncio.wait((recognising,))
                    with suppress(asyncio.CancelledError):
                        recognising.exception()  # else asyncio reports it
        stages = upload.stages()
        self.metrics.took(self.name, upload.sound_seconds, **stages)
        self.metrics.answered(self.name, 200)
        await answer.finish(upload.sound_seconds, stages)

    async def _recognise(self, upload: Upload, answer: TranscriptionAnswer) -> bool:
        """Recognise the file as it arrives; False: too slowly. Raises HttpError, Disconnected."""
        async with self.pool.lend(upload.exchange) as parts:
            return await to_thread.run_sync(self._segments, upload, answer, parts)

    def _segments(self, upload: Upload, answer: TranscriptionAnswer, parts: ModelSet) -> bool:
        """Pass each new segment to `answer`, until the client disconnects. Runs on a thread.

        Returns False if others need the models more, because the sound arrives too slowly.
        """
        cancelled = upload.exchange.cancelled
        foreign: list[float] = []

        def recognise(samples: Samples) -> str:
            began = time.monotonic()
            try:
                words = parts.recognise(samples, cancelled)
                return "" if cancelled.is_set() else words
            finally:
                upload.infer_seconds += time.monotonic() - began

        try:
            found = segments(
                "", upload.sound(), self.config.vad, parts.detector, recognise, foreign.append
            )
            for segment in islice(found, answer.count, None):
                from_thread.run(answer.add, segment)
            if foreign and not answer.count:
                raise HttpError(400, ForeignSpeech().message, param="file")
            answer.left_out = len(foreign)
            return True
        except TooSlow:
            return False
        except TooLong as error:
            raise upload.too_long() from error
        except InputError as error:
            raise HttpError(400, str(error), param="file") from error
        except VoxtuiError as error:
            raise failed(str(error)) from error


class TooSlow(Exception):
    """The sound arrives more slowly than it was spoken."""


class Upload:
    """The bytes of a file on their way to the recogniser, which reads them from the disk.

    A 16-bit mono WAV at 16 kHz is decoded while it arrives. Any other file is decoded once it is
    complete, because its decoder seeks.
    """

    def __init__(self, spool: Spool, exchange: Exchange, config: ServeConfig) -> None:
        self.exchange = exchange
        self.infer_seconds = self.sound_seconds = 0.0
        self._decode_seconds = 0.0
        self._began_at = self._uploaded_at = time.monotonic()
        self.most_seconds = config.max_audio_minutes * 60
        self._spool = spool
        self._most_bytes = config.max_upload_mb * 10**6
        self._start: bytes | None = b""
        """the bytes so far, or None once they are known to hold such a header or none"""
        self._pcm: tuple[int, int | None] | None = None
        """the offset of the sound in a WAV that is decoded while it arrives, and its bytes"""
        self._bytes = 0

    async def take(self, data: bytes) -> bool:
        """Store bytes; True once the recogniser can begin. Raises HttpError (413) and OSError."""
        self._bytes += len(data)
        self._check_size()
        await to_thread.run_sync(self._spool.write, data)
        if self._start is None:
            return False
        self._start += data
        with suppress(ValueError):
            self._pcm = wav_header(self._start)
            if self._pcm is None and len(self._start) <= LONGEST_HEADER:
                return False  # it may still come
        self._start = None
        return self._pcm is not None

    def _check_size(self) -> None:
        """Raise HttpError (413) for too many bytes."""
        if self._pcm is not None:
            if self._bytes > self._pcm[0] + (self.most_seconds + 1) * SAMPLE_RATE * 2:
                raise self.too_long()
        elif self._bytes > self._most_bytes:
            raise HttpError(
                413,
                f"The file has more than {self._most_bytes // 10**6} MB "
                f"({self._bytes / 1e6:.1f} MB so far). serve.max_upload_mb sets the limit; a WAV "
                "of 16-bit mono PCM at 16 kHz may be larger.",
                param="file",
            )  # fmt: skip

    def too_long(self) -> HttpError:
        minutes = self.most_seconds // 60
        return HttpError(
            413, f"The sound is longer than {minutes} min. serve.max_audio_minutes sets the limit.",
            param="file",
        )  # fmt: skip

    def end(self) -> None:
        """Finish the upload. Raises HttpError if there was no file."""
        self._uploaded_at = time.monotonic()
        if not self._bytes:
            raise HttpError(400, "The field `file` is missing or empty.", param="file")
        self._spool.end()

    def stages(self) -> dict[str, float]:
        """Return the seconds of each stage until now. They overlap, so their sum is larger."""
        return {
            "upload": self._uploaded_at - self._began_at,
            "decode": self._decode_seconds,
            "infer": self.infer_seconds,
            "total": time.monotonic() - self._began_at,
        }

    def sound(self) -> Iterator[Samples]:
        """Yield the samples of the file, until the client has disconnected. Runs on a thread.

        Raises TooSlow, and InputError, such as TooLong after `serve.max_audio_minutes` of them.
        """
        self.sound_seconds = 0.0
        sound = self._decoded() if self._pcm is None else self._streamed(*self._pcm)
        while not self.exchange.cancelled.is_set():
            began = time.monotonic()
            piece = next(sound, None)
            self._decode_seconds += time.monotonic() - began
            if piece is None:
                return
            self.sound_seconds += len(piece) / SAMPLE_RATE
            if self.sound_seconds > self.most_seconds:
                raise TooLong("The sound is too long.")
            yield piece

    def _streamed(self, offset: int, size: int | None) -> Iterator[Samples]:
        pcm, waited = PcmStream(size), 0.0
        while True:
            began = time.monotonic()
            data = self._spool.read(offset, PIECE_BYTES, self.exchange.cancelled)
            late = time.monotonic() - began
            waited += late
            self._decode_seconds -= late
            if not data:
                return
            if waited > self.sound_seconds + LATEST_SECONDS:
                raise TooSlow
            offset += len(data)
            yield pcm.feed(data)

    def _decoded(self) -> Iterator[Samples]:
        path = self._spool.path
        try:
            yield from pieces(path, self.most_seconds)
        except TooLong:
            raise
        except InputError as error:
            raise InputError(_without_path(error, str(path))) from error


def _without_path(error: InputError, path: str) -> str:
    return str(error).replace(f"{path}: ", "The file ") + (
        " Supported formats: WAV, FLAC, OGG (Vorbis, Opus), MP3, AIFF."
    )


class TranscriptionAnswer:
    """The answer to one request: whole at the end, or one event per segment."""

    def __init__(self, exchange: Exchange, options: Options) -> None:
        self.options = options
        self._exchange = exchange
        self._sending = Lock()
        self._segments: list[TranscriptSegment] = []
        self._sent = 0
        self.left_out = 0
        """the number of segments without words, because they are in another language"""

    @property
    def count(self) -> int:
        return len(self._segments)

    async def add(self, segment: TranscriptSegment) -> None:
        self._segments.append(segment)
        await self.catch_up()

    async def catch_up(self) -> None:
        """Send the waiting segments, if the client has requested a stream by now."""
        async with self._sending:  # a segment and a field may come at once
            wanted = self.options.stream and self.options.complete
            while wanted and self._sent < len(self._segments):
                text = self._segments[self._sent].text
                delta = f" {text}" if self._sent else text
                self._sent += 1
                await self._exchange.event({"type": "transcript.text.delta", "delta": delta})

    async def finish(self, seconds: float, stages: dict[str, float]) -> None:
        """Send the rest. `seconds` is the length of the sound; `stages` are in seconds."""
        text = " ".join(segment.text for segment in self._segments)
        numbers = {**_numbers(seconds, stages), "left_out": self.left_out}
        if self.options.stream:
            await self.catch_up()
            done = {"type": "transcript.text.done", "text": text, "x_voxtui": numbers}
            await self._exchange.event({**done, "usage": openai_types.usage(seconds)})
            await self._exchange.end()
            return
        headers = {f"x-voxtui-{name.replace('_', '-')}": str(n) for name, n in numbers.items()}
        headers["server-timing"] = ", ".join(f"{k};dur={v * 1000:.3f}" for k, v in stages.items())
        form = self.options.response_format
        media = MEDIA.get(form, "application/json")
        kind = media if media == "application/json" else f"{media}; charset=utf-8"
        await self._exchange.begin(kind, headers)
        await self._exchange.end(self._body(form, text, seconds))

    def _body(self, form: str, text: str, seconds: float) -> bytes:
        match form:
            case "text":
                return f"{text}\n".encode()
            case "srt" | "vtt":
                parts = [format_segment(s, form, n) for n, s in enumerate(self._segments, 1)]
                return "\n".join(["WEBVTT\n"] * (form == "vtt") + parts).encode()
            case "verbose_json":
                language = self.options.language
                return msgspec.json.encode(
                    {
                        "task": "transcribe",
                        "language": LANGUAGES.get(language, language).lower() or "unknown",
                        "duration": round(seconds, 3),
                        "text": text,
                        "segments": [
                            openai_types.Segment(number, segment.start, segment.end, segment.text)
                            for number, segment in enumerate(self._segments)
                        ],
                        "usage": openai_types.usage(seconds),
                    }
                )
            case _:
                return msgspec.json.encode({"text": text, "usage": openai_types.usage(seconds)})


def _numbers(seconds: float, stages: dict[str, float]) -> dict[str, float]:
    """Return the numbers of the X-Voxtui headers. xRT is seconds of sound per second of work."""
    total = stages["total"]
    return {
        **{f"{stage}_ms": round(took * 1000, 3) for stage, took in stages.items()},
        "audio_sec": round(seconds, 6),
        "xrt": round(seconds / total, 3) if total else 0.0,
    }
