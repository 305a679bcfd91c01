from __future__ import annotations

import asyncio
import io
import json
import struct
import threading
import wave
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import msgspec
import numpy as np
import psutil
import pytest
import soundfile
from openai.types.audio import Transcription, TranscriptionVerbose
from openai.types.audio.transcription_create_params import TranscriptionCreateParamsBase

from tests.fakes import ScriptedBrain
from tests.serve.conftest import PATIENCE, counted, documented, pcm, serving, spoken
from tests.ui.pseudo_terminal import until
from voxtui.dialogue.data import SAMPLE_RATE
from voxtui.errors import ForeignSpeech, ModelError
from voxtui.serve.endpoints.transcriptions import REFUSED
from voxtui.serve.openai_types import ErrorBody
from voxtui.settings.schema import BrainConfig, Config, ServeConfig

PATH = "/v1/audio/transcriptions"


def wav(samples, rate=SAMPLE_RATE, channels=1) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(pcm(samples))
    return file.getvalue()


def endless_wav(samples) -> bytes:
    """Return the beginning of a WAV whose header does not know its length."""
    sound = wav(samples)
    return sound[:40] + b"\xff\xff\xff\xff" + sound[44:]


def upload(server, sound: bytes, **fields):
    return server.client.post(PATH, files={"file": ("a.wav", sound)}, data=fields)


def events(answer) -> list[dict]:
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    return [json.loads(line[6:]) for line in answer.text.split("\n\n") if line]


def test_the_words_of_a_file_come_as_openai_sends_them(server):
    answer = upload(server, wav(spoken(1.0, 2.0)), model="whisper-1")
    assert answer.status_code == 200
    transcript = Transcription.model_validate(answer.json(), strict=True)
    first, second = transcript.text.split(". ")
    assert float(first.split()[0]) == pytest.approx(1.3, abs=0.4)
    assert float(second.split()[0]) == pytest.approx(2.3, abs=0.4)
    assert transcript.usage.type == "duration"
    assert transcript.usage.seconds == pytest.approx(4.6, abs=0.1)


def test_the_headers_tell_where_the_time_went(server):
    answer = upload(server, wav(spoken(1.0)), model="voxtral-mini-latest")  # Mistral's clients do
    numbers = {
        name: float(answer.headers[f"x-voxtui-{name}"])
        for name in ("upload-ms", "decode-ms", "infer-ms", "total-ms", "audio-sec", "xrt")
    }
    assert numbers["audio-sec"] == pytest.approx(1.8, abs=0.05)
    assert 0 < numbers["upload-ms"] <= numbers["total-ms"]
    assert numbers["xrt"] == pytest.approx(
        numbers["audio-sec"] / numbers["total-ms"] * 1000, rel=0.01
    )
    assert answer.headers["server-timing"].startswith("upload;dur=")


@pytest.mark.parametrize(
    ("form", "media", "start"),
    [
        ("text", "text/plain", "1."),
        ("srt", "text/plain", "1\n00:00:00,0"),
        ("vtt", "text/vtt", "WEBVTT\n\n00:00:00.0"),
    ],
)
def test_plain_formats(server, form, media, start):
    answer = upload(server, wav(spoken(1.0)), response_format=form)
    assert answer.headers["content-type"] == f"{media}; charset=utf-8"
    assert answer.text.startswith(start)


def test_verbose_json_has_segments_with_times(server):
    answer = upload(
        server, wav(spoken(1.0, 1.0)), response_format="verbose_json",
        **{"timestamp_granularities[]": "segment"},
    )  # fmt: skip
    transcript = TranscriptionVerbose.model_validate(answer.json())
    assert transcript.segments is not None
    assert [segment.start for segment in transcript.segments] == pytest.approx([0, 1.8], abs=0.1)
    assert transcript.text == " ".join(segment.text for segment in transcript.segments)


def test_a_stream_has_an_event_per_segment_and_the_numbers_at_its_end(server):
    *deltas, done = events(upload(server, wav(spoken(1.0, 1.0)), stream="true"))
    assert [delta["type"] for delta in deltas] == ["transcript.text.delta"] * 2
    assert "".join(delta["delta"] for delta in deltas) == done["text"]
    assert done["type"] == "transcript.text.done"
    assert done["x_voxtui"]["audio_sec"] == pytest.approx(3.6, abs=0.1)


def test_other_sound_files_are_decoded_when_they_are_complete(server):
    for form, rate, channels in (("WAV", 44_100, 2), ("FLAC", 16_000, 1), ("OGG", 48_000, 1)):
        sound = np.repeat(spoken(1.0), rate // SAMPLE_RATE) if rate == 48_000 else spoken(1.0)
        file = io.BytesIO()
        soundfile.write(file, np.stack([sound] * channels, 1), rate, format=form)
        answer = upload(server, file.getvalue())
        assert answer.status_code == 200, answer.text
        seconds = answer.json()["usage"]["seconds"]
        assert seconds == pytest.approx(len(sound) / rate, abs=0.1)


def test_a_wav_of_unknown_size_or_with_other_chunks_is_read_to_its_end(server):
    sound = endless_wav(spoken(1.0))
    assert upload(server, sound).json()["usage"]["seconds"] == pytest.approx(1.8, abs=0.05)
    whole = wav(spoken(1.0))
    listed = whole[:36] + b"LIST" + struct.pack("<I", 5) + b"INFOx\0" + whole[36:]
    assert upload(server, listed + b"LIST\x04\0\0\0data").json()["usage"]["seconds"] == (
        pytest.approx(1.8, abs=0.05)
    )


@pytest.mark.parametrize(
    ("fields", "status", "param", "words"),
    [
        ({"model": "large"}, 404, "model", "moonshine"),
        ({"language": "fr"}, 400, "language", "'fr'"),
        ({"response_format": "diarized_json"}, 400, "response_format", "verbose_json"),
        ({"response_format": "srt", "stream": "true"}, 400, "response_format", "streamed"),
        ({"timestamp_granularities[]": "word"}, 400, "timestamp_granularities", "segment"),
        ({"timestamp_granularities[]": "segment"}, 400, "timestamp_granularities", "verbose_json"),
        ({"include[]": "logprobs"}, 400, "include", "nothing"),
        ({"stream": "yes"}, 400, "stream", "true"),
        ({"known_speaker_names[]": "Anna"}, 400, "known_speaker_names", "nothing"),
        ({"temperature": "hot"}, 400, "temperature", "0 to 1"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_field(server, fields, status, param, words):
    answer = upload(server, wav(spoken(0.5)), **fields)
    error = answer.json()["error"]
    assert answer.status_code == status
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"].removesuffix("[]") == param
    assert words in error["message"]


def test_the_server_is_named_after_the_brain_that_was_loaded():
    class Voxtral(ScriptedBrain):
        name = "voxtral"

    with serving(brain=Voxtral()) as server:
        assert server.client.get("/readyz").json()["model"] == Config().brain.voxtral.model
        fields = {"language": "de", "response_format": "verbose_json"}
        assert upload(server, wav(spoken(0.5)), **fields).json()["language"] == "german"


def test_a_server_for_spanish_takes_spanish_and_says_so():
    with serving(Config(brain=BrainConfig(language="es"))) as server:
        assert server.client.get("/readyz").json()["model"] == "whisper-base"
        for given in ({}, {"language": "es"}, {"language": "Spanish"}):
            answer = upload(server, wav(spoken(0.5)), response_format="verbose_json", **given)
            assert (answer.status_code, answer.json().get("language")) == (200, "spanish")
        answer = upload(server, wav(spoken(0.5)), language="en")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "language")
    assert "Supported: es" in answer.json()["error"]["message"]


def test_fields_that_other_servers_know_are_ignored(server):
    fields = {"vad_filter": "true", "prompt": "a", "temperature": "0", "chunking_strategy": "auto"}
    assert upload(server, wav(spoken(0.5)), **fields).status_code == 200


@pytest.mark.parametrize(
    ("sound", "words"),
    [(b"", "missing"), (b"RI", "sound file"), (b"Example data", "sound file"),
     (wav(np.zeros(0, np.float32)), "sound")],
)  # fmt: skip
def test_a_file_without_sound_is_refused(server, sound, words):
    answer = upload(server, sound)
    if answer.status_code == 200:  # a WAV that ends after its header is silent, not damaged
        assert answer.json()["text"] == ""
        return
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "file"
    assert words in answer.json()["error"]["message"]


def test_a_body_that_is_no_form_is_refused(server):
    for headers, body in (
        ({"content-type": "application/json"}, b"{}"),
        ({"content-type": "multipart/form-data; boundary=x"}, b"nonsense"),
        ({"content-type": "multipart/form-data; boundary=x"}, b"--x\r\nbad\r\n\r\n"),
    ):
        answer = server.client.post(PATH, headers=headers, content=body)
        assert answer.status_code == 400, body
        assert "error" in answer.json()


def test_a_file_over_the_limit_is_refused_with_both_numbers():
    config = Config(serve=ServeConfig(max_upload_mb=1))
    with serving(config) as server:
        noise = np.random.default_rng(1).uniform(-1, 1, 510_000).astype(np.float32)
        answer = upload(server, wav(noise, rate=44_100))
        assert answer.status_code == 413
        assert "more than 1 MB (1.0 MB so far)" in answer.json()["error"]["message"]
        assert upload(server, wav(noise)).status_code == 200  # streamed: no limit


def test_a_recogniser_that_fails_costs_one_request():
    failures = [ModelError("The recogniser failed.")]

    def once(samples, cancelled):
        if failures:
            raise failures.pop()
        return counted(samples)

    with serving(recognise=once) as server:
        answer = upload(server, wav(spoken(1.0)))
        assert answer.status_code == 500
        assert answer.headers["x-should-retry"] == "false"
        assert "The recogniser failed." in answer.json()["error"]["message"]
        assert upload(server, wav(spoken(1.0))).status_code == 200


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_file_in_a_foreign_language_is_refused_and_a_foreign_part_left_out(stream):
    def recognise(samples, cancelled):
        if len(samples) > 2 * SAMPLE_RATE:
            raise ForeignSpeech
        return counted(samples)

    with serving(recognise=recognise) as server:
        answer = upload(server, wav(spoken(3.0, 3.0)), stream=stream)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "file")
        assert "did not sound like English" in answer.json()["error"]["message"]
        answer = upload(server, wav(spoken(3.0, 0.5, 3.0)), stream=stream)
        numbers = events(answer)[-1]["x_voxtui"] if stream == "true" else {
            "left_out": int(answer.headers["x-voxtui-left-out"])
        }  # fmt: skip
        assert (answer.status_code, numbers["left_out"]) == (200, 2)


class Slowly:
    """A client that writes an upload piece by piece and reads meanwhile."""

    async def __aenter__(self):
        return self

    def __init__(self, server, *fields: tuple[str, str]) -> None:
        self._server = server
        self._fields = fields

    async def begin(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        self.writer.write(
            f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            "Content-Type: multipart/form-data; boundary=x\r\n\r\n".encode()
        )
        for name, value in self._fields:
            self.send(_field(name, value))
        self.send(b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n')

    def send(self, data: bytes) -> None:
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def read_until(self, wanted: bytes) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readuntil(wanted)

    async def __aexit__(self, *error) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def _field(name: str, value: str) -> bytes:
    return f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()


async def test_the_first_segment_comes_at_the_first_pause_while_the_upload_goes_on(server):
    async with Slowly(server, ("stream", "true")) as client:
        await client.begin()
        client.send(endless_wav(spoken(1.0)))
        first = await client.read_until(b"transcript.text.delta")
        assert b"200 OK" in first
        client.send(pcm(spoken(2.0)) + b"\r\n--x--\r\n")
        client.writer.write(b"0\r\n\r\n")
        assert b"transcript.text.done" in await client.read_until(b'"type":"transcript.text.done"')


async def test_a_format_that_cannot_be_streamed_is_refused_before_the_first_segment(server):
    async with Slowly(server, ("response_format", "srt"), ("stream", "true")) as client:
        await client.begin()
        client.send(endless_wav(spoken(1.0)))  # and no more until the answer is there
        assert b"400 Bad Request" in await client.read_until(b"}}")


async def test_a_field_that_needs_another_is_refused_before_the_first_segment():
    recognised = threading.Semaphore(0)

    def recognise(samples, cancelled) -> str:
        recognised.release()
        return "words"

    async with AsyncExitStack() as stack:
        server = stack.enter_context(serving(recognise=recognise))
        fields = ("timestamp_granularities[]", "segment"), ("stream", "true")
        client = await stack.enter_async_context(Slowly(server, *fields))
        await client.begin()
        client.send(endless_wav(spoken(1.0, 1.0)))
        for _ in range(2):  # the first segment has been handed over when the second is recognised
            assert await asyncio.to_thread(recognised.acquire, timeout=PATIENCE)
        client.send(b"\r\n--x--\r\n")
        client.writer.write(b"0\r\n\r\n")
        assert b"400 Bad Request" in await client.read_until(b"}}")


async def test_an_option_behind_the_file_is_refused_when_it_comes(server):
    async with Slowly(server) as client:
        await client.begin()
        client.send(wav(spoken(1.0)) + b"\r\n" + _field("language", "fr") + b"--x--\r\n")
        client.writer.write(b"0\r\n\r\n")
        answer = await client.read_until(b"}}")
        assert b"400 Bad Request" in answer
        assert b"'fr'" in answer


async def test_a_client_that_leaves_gives_its_session_back(server):
    async with Slowly(server) as client:
        await client.begin()
        client.send(wav(spoken(1.0)))
        await client.writer.drain()
        await asyncio.to_thread(_until_free, server, 0)
    await asyncio.to_thread(_until_free, server, 1)


async def test_a_sound_that_drips_leaves_the_models_to_others(server, monkeypatch):
    monkeypatch.setattr("voxtui.serve.endpoints.transcriptions.LATEST_SECONDS", 0.5, raising=False)
    async with Slowly(server, ("stream", "true")) as client:
        await client.begin()
        client.send(endless_wav(spoken(0.5)))
        await client.read_until(b"transcript.text.delta")
        other = asyncio.create_task(asyncio.to_thread(upload, server, wav(spoken(0.5))))
        while not other.done():
            client.send(bytes(2))
            await asyncio.wait((other,), timeout=0.05)
        assert other.result().status_code == 200
        client.send(pcm(spoken(2.0)) + b"\r\n--x--\r\n")
        client.writer.write(b"0\r\n\r\n")
        done = await client.read_until(b'"usage"')
    assert done.count(b"transcript.text.delta") == 1, done  # not the first one again
    assert b'"text":"0.7 seconds. 2.4 seconds."' in done


def _until_free(server, wanted: int) -> None:
    until(lambda: server.client.get("/readyz").json()["free"] == wanted)


async def test_one_more_than_the_sessions_is_told_to_come_again():
    async with AsyncExitStack() as stack:
        server = stack.enter_context(serving(queue_s=0.0))
        client = await stack.enter_async_context(Slowly(server))
        await client.begin()
        client.send(wav(spoken(1.0)))
        await client.writer.drain()
        await asyncio.to_thread(_until_free, server, 0)
        answer = await asyncio.to_thread(upload, server, wav(spoken(0.5)))
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert answer.json()["error"]["code"] == "session_limit_reached"


def test_the_metrics_count_times_and_no_words():
    with serving() as server:
        upload(server, wav(spoken(1.0)))
        text = server.client.get("/metrics").text
    assert 'voxtui_requests_total{endpoint="transcriptions",status="200"} 1.0' in text
    assert 'voxtui_stage_seconds_count{endpoint="transcriptions",stage="infer"} 1.0' in text
    assert "seconds." not in text


def test_the_errors_match_the_description(server):
    described = server.client.get("/openapi.json").json()
    assert set(described["paths"]) >= {PATH, "/v1/audio/speech", "/v1/models"}
    assert msgspec.json.decode(server.client.get("/nothing").content, type=ErrorBody).error.message
    chat = described["components"]["schemas"]["ChatCompletion"]
    assert chat["properties"].keys() >= {"messages", "stop", "response_format"}


def test_every_field_of_openai_is_obeyed_without_effect_or_refused():
    fields = set(TranscriptionCreateParamsBase.__annotations__) | {"stream"}
    obeyed, without_effect, refused = documented("transcriptions")
    assert fields - obeyed - without_effect - refused == set()
    assert refused >= REFUSED and not REFUSED & (obeyed | without_effect)


@pytest.mark.parametrize("name", sorted(REFUSED | {"timestamp_granularities[]", "temperature"}))
def test_a_field_that_cannot_be_obeyed_is_refused_by_name(server, name):
    answer = upload(server, wav(spoken(0.5)), **{name: "word"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == name


@pytest.mark.parametrize("streams", [10, pytest.param(50, marks=pytest.mark.slow)])
async def test_a_server_that_stops_finishes_every_stream_that_has_begun(streams):
    async with AsyncExitStack() as stack:
        server = stack.enter_context(serving(sets=streams))
        clients = [
            await stack.enter_async_context(Slowly(server, ("stream", "true")))
            for _ in range(streams)
        ]
        for client in clients:
            await client.begin()
            client.send(endless_wav(spoken(1.0)))
            await client.read_until(b"transcript.text.delta")
        server.stop()
        for client in clients:
            client.send(pcm(spoken(2.0)) + b"\r\n--x--\r\n")
            client.writer.write(b"0\r\n\r\n")
        for client in clients:
            await client.read_until(b'"type":"transcript.text.done"')
            assert (await client.read_until(b'"usage"')).count(b"seconds.") == 2


@pytest.mark.slow
def test_a_large_wav_takes_little_memory():
    """A 1 GiB upload, run by hand, grew the process by 10 MiB."""
    process = psutil.Process()
    piece = pcm(np.zeros(1 << 18, np.float32))
    with serving() as server:
        upload(server, wav(spoken(1.0)))
        before = most = process.memory_info().rss

        def body():
            nonlocal most
            yield _field("stream", "true")
            yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
            yield endless_wav(spoken(1.0))
            for _ in range(128 * 2**20 // len(piece)):
                most = max(most, process.memory_info().rss)
                yield piece
            yield b"\r\n--x--\r\n"

        headers = {"content-type": "multipart/form-data; boundary=x"}
        answer = server.client.post(PATH, content=body(), headers=headers, timeout=300)
        assert answer.status_code == 200
        assert events(answer)[-1]["usage"]["seconds"] > 4000
    assert most - before < 64 * 2**20


def test_eight_clients_are_all_answered_without_a_retry():
    def recognise(samples, cancelled) -> str:
        assert not busy.locked()
        with busy:
            return counted(samples)

    busy = threading.Lock()
    with serving(recognise=recognise) as server, ThreadPoolExecutor(8) as clients:
        sound = wav(spoken(*[1.0] * 17))
        answers = [*clients.map(lambda number: upload(server, sound), range(8))]
        metrics = server.client.get("/metrics").text
    assert [answer.status_code for answer in answers] == [200] * 8
    assert len({answer.text for answer in answers}) == 1
    assert {int(a.headers["x-voxtui-queue-position"]) for a in answers} <= set(range(9))
    assert "voxtui_queue 0.0" in metrics
