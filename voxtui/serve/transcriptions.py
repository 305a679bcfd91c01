"""`POST /v1/audio/transcriptions`: upload, decoding and recognition of a file at the same time."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio import to_thread
from starlette.datastructures import Headers

from voxtui.audio.clips import pieces
from voxtui.audio.pcm import LONGEST_HEADER, PcmStream, wav_header
from voxtui.commands.transcribe import TranscriptSegment, format_segment
from voxtui.errors import InputError, VoxtuiError
from voxtui.serve import openai_types
from voxtui.serve.access import error_response
from voxtui.serve.openai_types import HttpError, failed
from voxtui.serve.recognition import Recognition
from voxtui.serve.upload import Disconnected, Field, FileData, form

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from voxtui.dialogue.data import Samples
    from voxtui.serve.metrics import Metrics
    from voxtui.serve.shared_models import Pool
    from voxtui.settings.schema import VadConfig

ENDPOINT = "transcriptions"

FORMATS = ("json", "text", "srt", "vtt", "verbose_json")

ENGLISH = ("en", "english")

MEDIA = {"text": "text/plain", "srt": "text/plain", "vtt": "text/vtt"}

FOREIGN_MODELS = ("whisper", "gpt-", "tts-", "voxtral")
"""Prefixes of OpenAI's and Mistral's names. A client may insist on one; it gets the model that is
loaded."""


def check_model(name: str, ours: str) -> None:
    """Raise HttpError (404) unless `name` is `ours`, empty, or has one of FOREIGN_MODELS."""
    if name not in ("", ours) and not name.startswith(FOREIGN_MODELS):
        raise HttpError(
            404, f"There is no model {name!r} here, only {ours!r}.", param="model",
            code="model_not_found",
        )  # fmt: skip


@dataclass(slots=True)
class Options:
    """The fields of a request. Other fields are ignored, as every server does."""

    model: str
    """the name of the model that is loaded"""
    speaks_english_only: bool
    response_format: str = "json"
    stream: bool = False
    granularities: set[str] = field(default_factory=set[str])

    def set(self, name: str, value: str) -> None:
        """Take a field. Raises HttpError for a value that is not supported beside the others."""
        match name.removesuffix("[]"):
            case "model":
                check_model(value, self.model)
            case "response_format":
                if value not in FORMATS:
                    raise _unsupported(name, value, ", ".join(FORMATS))
                self.response_format = value
            case "stream":
                if value.lower() not in ("true", "false"):
                    raise _unsupported(name, value, "true, false")
                self.stream = value.lower() == "true"
            case "language" | "languages":
                if value and self.speaks_english_only and value.lower() not in ENGLISH:
                    raise _unsupported(name, value, "en")
            case "timestamp_granularities":
                if value != "segment":
                    raise _unsupported(name, value, "segment")
                self.granularities.add(value)
            case "include":
                raise _unsupported(name, value, "nothing")
            case _:
                pass
        # Checked here and not at the end of the form: the first event may leave before that.
        if self.stream and self.response_format in ("srt", "vtt"):
            raise HttpError(
                400, f"{self.response_format} cannot be streamed.", param="response_format"
            )

    @property
    def complete(self) -> bool:
        """Return True if no field needs another one that may still arrive."""
        return not self.granularities or self.response_format == "verbose_json"

    def check(self) -> None:
        """Raise HttpError if the fields, all of which have come, do not go together."""
        if not self.complete:
            raise HttpError(
                400, "timestamp_granularities needs response_format=verbose_json.",
                param="timestamp_granularities",
            )  # fmt: skip


def _unsupported(name: str, value: str, supported: str) -> HttpError:
    return HttpError(
        400, f"{name} {value!r} is not supported. Supported: {supported}.", param=name,
        code="unsupported_value",
    )  # fmt: skip


@dataclass(slots=True)
class Times:
    """Monotonic seconds. Upload, decoding and recognition overlap, so they add up to more."""

    began_at: float = field(default_factory=time.monotonic)
    uploaded_at: float = 0.0
    decode_seconds: float = 0.0

    def stages(self, infer: float) -> dict[str, float]:
        """Return the seconds of each stage, until now."""
        return {
            "upload": self.uploaded_at - self.began_at,
            "decode": self.decode_seconds,
            "infer": infer,
            "total": time.monotonic() - self.began_at,
        }


class Transcriptions:
    """An ASGI endpoint. Starlette's streamed answers would read the rest of the upload."""

    def __init__(
        self, pool: Pool, vad: VadConfig, model: str, english_only: bool, most_bytes: int,
        metrics: Metrics,
    ) -> None:  # fmt: skip
        self._pool = pool
        self._vad = vad
        self._model = model
        self._english_only = english_only
        self._most_bytes = most_bytes
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        options = Options(self._model, self._english_only)
        answer = Answer(send, options)
        try:
            async with self._pool.lend() as parts:
                with (
                    ExitStack() as files,
                    Recognition(parts, self._vad, answer.add) as recognition,
                ):
                    upload = Upload(recognition, self._most_bytes, files)
                    await self._recognise(form(Headers(scope=scope), receive), answer, upload)
                    stages = upload.times.stages(recognition.infer_seconds)
                    self._metrics.took(ENDPOINT, recognition.seconds, **stages)
                    self._metrics.answered(ENDPOINT, 200)
                    await answer.finish(recognition.seconds, stages)
        except HttpError as refusal:
            self._metrics.answered(ENDPOINT, refusal.status)
            if answer.begun:
                await answer.event({"error": refusal.error})
                await send({"type": "http.response.body"})
            else:
                await error_response(refusal)(scope, receive, send)
        except Disconnected:
            self._metrics.answered(ENDPOINT, 499)

    async def _recognise(self, parts: Any, answer: Answer, upload: Upload) -> None:
        """Read the form, and recognise its file meanwhile. Raises HttpError and Disconnected."""
        failure: HttpError | Disconnected | None = None
        async with anyio.create_task_group() as group:
            try:
                async for part in parts:
                    if isinstance(part, Field):
                        answer.options.set(part.name, part.value)
                        await answer.catch_up()
                        continue
                    assert isinstance(part, FileData)
                    if await upload.take(part.data):
                        group.start_soon(upload.recognition.run)
                answer.options.check()
                await upload.end()
                if not upload.is_streamed:
                    group.start_soon(upload.recognition.run, upload.spooled())
            except (HttpError, Disconnected) as error:
                failure = error
                upload.recognition.abandon()
            except VoxtuiError:  # of the recogniser, which has ended
                upload.recognition.abandon()
        error = upload.recognition.error
        if failure is None and error is not None:
            bad_file = isinstance(error, InputError)
            failure = HttpError(400, str(error), param="file") if bad_file else failed(str(error))
        if failure is not None:
            raise failure


class Upload:
    """The bytes of a file on their way to the recogniser.

    A 16-bit mono WAV at 16 kHz is decoded as it comes. Any other file is kept on the disk until
    it is complete, because its decoder seeks.
    """

    def __init__(self, recognition: Recognition, most_bytes: int, files: ExitStack) -> None:
        self.recognition = recognition
        self.times = Times()
        self.is_streamed = False
        self._most_bytes = most_bytes
        self._files = files
        self._start = b""
        self._pcm: PcmStream | None = None
        self._file: Any = None
        self._bytes = 0

    async def take(self, data: bytes) -> bool:
        """Take the next bytes. Return True once, when the recogniser can begin.

        Raises HttpError (413) for a file that is too large to be kept.
        """
        self._bytes += len(data)
        if self._pcm is not None:
            await self._decode(data)
            return False
        if self._file is not None:
            await self._spool(data)
            return False
        self._start += data
        try:
            header = wav_header(self._start)
            if header is None and len(self._start) <= LONGEST_HEADER:
                return False
            if header is None:
                raise ValueError
        except ValueError:
            await self._spool(self._start)
            return False
        offset, size = header
        self._pcm, self.is_streamed = PcmStream(size), True
        await self._decode(self._start[offset:])
        return True

    async def _decode(self, data: bytes) -> None:
        assert self._pcm is not None
        began = time.monotonic()
        samples = self._pcm.feed(data)
        self.times.decode_seconds += time.monotonic() - began
        if len(samples):
            await self.recognition.feed(samples)

    async def _spool(self, data: bytes) -> None:
        if self._bytes > self._most_bytes:
            raise HttpError(
                413,
                f"The file has more than {self._most_bytes // 2**20} MB "
                f"({self._bytes // 2**20} MB so far). serve.max_upload_mb sets the limit; a WAV of "
                "16-bit mono PCM at 16 kHz may be larger.",
                param="file",
            )  # fmt: skip
        if self._file is None:
            spool = tempfile.NamedTemporaryFile(prefix="voxtui-")  # noqa: SIM115 (see ExitStack)
            self._file = self._files.enter_context(spool)
        await to_thread.run_sync(self._file.write, data)

    async def end(self) -> None:
        """Finish the upload. Raises HttpError if it held no file."""
        self.times.uploaded_at = time.monotonic()
        if not self._bytes:
            raise HttpError(400, "The field `file` is missing or empty.", param="file")
        if self._pcm is None and self._file is None:  # shorter than the header of a WAV
            await self._spool(self._start)
        self.recognition.end()

    def spooled(self) -> Iterator[Samples]:
        """Yield the samples of the file on the disk. Raises InputError. Runs on a thread."""
        self._file.flush()
        sound = pieces(Path(self._file.name), math.inf)
        while True:
            began = time.monotonic()
            try:
                piece = next(sound, None)
            except InputError as error:
                raise InputError(_without_path(error, self._file.name)) from error
            self.times.decode_seconds += time.monotonic() - began
            if piece is None:
                return
            yield piece


def _without_path(error: InputError, path: str) -> str:
    return str(error).replace(f"{path}: ", "The file ") + (
        " Taken are WAV, FLAC, OGG (Vorbis, Opus), MP3 and AIFF."
    )


class Answer:
    """The answer to one request: whole at the end, or one event per segment."""

    def __init__(self, send: Send, options: Options) -> None:
        self.options = options
        self.begun = False
        self._send = send
        self._sending = anyio.Lock()
        self._segments: list[TranscriptSegment] = []
        self._sent = 0

    async def add(self, segment: TranscriptSegment) -> None:
        self._segments.append(segment)
        await self.catch_up()

    async def catch_up(self) -> None:
        """Send the segments that wait, if the client has asked for a stream by now."""
        async with self._sending:  # a segment and a field may come at once
            wanted = self.options.stream and self.options.complete
            while wanted and self._sent < len(self._segments):
                text = self._segments[self._sent].text
                delta = f" {text}" if self._sent else text
                self._sent += 1
                await self.event({"type": "transcript.text.delta", "delta": delta})

    async def event(self, event: dict[str, Any]) -> None:
        if not self.begun:
            await self._begin("text/event-stream", {"cache-control": "no-cache"})
        data = b"data: " + msgspec.json.encode(event) + b"\n\n"
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, seconds: float, stages: dict[str, float]) -> None:
        """Send the rest. `seconds` of sound; `stages` in seconds."""
        text = " ".join(segment.text for segment in self._segments)
        numbers = _numbers(seconds, stages)
        if self.options.stream:
            await self.catch_up()
            await self.event(
                {
                    "type": "transcript.text.done",
                    "text": text,
                    "usage": openai_types.usage(seconds),
                    "x_voxtral": numbers,
                }
            )
            await self._send({"type": "http.response.body"})
            return
        headers = {f"x-voxtral-{name.replace('_', '-')}": str(n) for name, n in numbers.items()}
        headers["server-timing"] = ", ".join(f"{k};dur={v * 1000:.3f}" for k, v in stages.items())
        form = self.options.response_format
        await self._begin(MEDIA.get(form, "application/json"), headers)
        await self._send({"type": "http.response.body", "body": self._body(form, text, seconds)})

    def _body(self, form: str, text: str, seconds: float) -> bytes:
        match form:
            case "text":
                return f"{text}\n".encode()
            case "srt" | "vtt":
                parts = [format_segment(s, form, n) for n, s in enumerate(self._segments, 1)]
                return "\n".join(["WEBVTT\n"] * (form == "vtt") + parts).encode()
            case "verbose_json":
                return msgspec.json.encode(
                    {
                        "task": "transcribe",
                        "language": "english",
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

    async def _begin(self, media: str, headers: dict[str, str]) -> None:
        self.begun = True
        kind = media if media == "application/json" else f"{media}; charset=utf-8"
        pairs = {"content-type": kind, **headers}
        encoded = [(name.encode(), value.encode()) for name, value in pairs.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": encoded})


def _numbers(seconds: float, stages: dict[str, float]) -> dict[str, float]:
    """Return the numbers of the X-Voxtral headers. xRT: seconds of sound per second of work."""
    total = stages["total"]
    return {
        **{f"{stage}_ms": round(took * 1000, 3) for stage, took in stages.items()},
        "audio_sec": round(seconds, 6),
        "xrt": round(seconds / total, 3) if total else 0.0,
    }
