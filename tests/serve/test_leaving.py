"""Clients that leave, drip, or send what cannot be kept, on real sockets."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.deadline import SECONDS
from tests.fakes import BeepVoice, LoudIsSpeech
from tests.serve.conftest import PATIENCE, counted, serving, spoken
from tests.ui.pseudo_terminal import until
from voxtui.dialogue.data import SAMPLE_RATE, SpeechChunk
from voxtui.settings.schema import Config, ServeConfig

TRANSCRIPTIONS, CHAT, SPEECH = (
    "/v1/audio/transcriptions",
    "/v1/chat/completions",
    "/v1/audio/speech",
)


def flac(samples: np.ndarray) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, SAMPLE_RATE, format="FLAC")
    return file.getvalue()


def without_length(sound: bytes) -> bytes:
    """Return a FLAC whose header does not know the number of samples."""
    at = 4 + 4 + 13  # marker, header of the first block, and what stands before the number
    return sound[:at] + bytes([sound[at] & 0xF0]) + bytes(4) + sound[at + 5 :]


def form(*fields: tuple[str, bytes]) -> bytes:
    """Return the body of a form; the last field may be the file."""
    return b"".join(
        b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), value)
        for name, value in fields
    ) + b"--x--\r\n"  # fmt: skip


def head(path: str, length: int, kind: str = "application/json") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


FORM = "multipart/form-data; boundary=x"


def free(server) -> int:
    return server.client.get("/readyz").json()["free"]


def leave_after(server, path: str, body: bytes, begun, kind: str = "application/json") -> None:
    """Send a request, close the connection once `begun()` is true, and wait for the models."""
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(head(path, len(body), kind) + body)
        until(begun)
    until(lambda: free(server) == 1)


class SlowDetector(LoudIsSpeech):
    """Needs minutes for a quarter of an hour of sound."""

    def __init__(self) -> None:
        self.frames = 0

    def probability(self, frame) -> float:
        self.frames += 1
        time.sleep(0.005)
        return super().probability(frame)


def test_models_are_free_while_a_long_file_is_decoded():
    detector = SlowDetector()
    with serving(detector=detector) as server:
        body = form(("file", flac(np.zeros(900 * SAMPLE_RATE, np.int16))))
        leave_after(server, TRANSCRIPTIONS, body, lambda: detector.frames > 50, FORM)
    assert detector.frames < 900 * SAMPLE_RATE // 512 // 2


class Pass:
    """A pass of the recogniser that only a cancel ends."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.was_cancelled = False

    def __call__(self, samples, cancelled) -> str:
        self.begun.set()
        self.was_cancelled = cancelled.wait(PATIENCE)
        return "words"


@pytest.mark.parametrize("sound", [flac(spoken(1.0)), None], ids=["file", "stream"])
def test_models_are_free_while_a_pass_of_the_recogniser_runs(sound):
    stubborn = Pass()
    with serving(recognise=stubborn) as server:
        if sound is None:  # more than all buffers between the socket and the recogniser hold
            file = io.BytesIO()
            much = np.concatenate([spoken(1.0), np.zeros(300 * SAMPLE_RATE, np.float32)])
            soundfile.write(file, much, SAMPLE_RATE, format="WAV")
            sound = file.getvalue()
        body = form(("file", sound))
        leave_after(server, TRANSCRIPTIONS, body, stubborn.begun.is_set, FORM)
    assert stubborn.was_cancelled


def test_models_are_free_while_the_sound_of_a_chat_is_recognised():
    stubborn = Pass()
    with serving(recognise=stubborn) as server:
        data = base64.b64encode(flac(spoken(1.0))).decode()
        sound = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
        said = {"role": "user", "content": [sound, {"type": "text", "text": "What is that?"}]}
        body = json.dumps({"messages": [said]}).encode()
        leave_after(server, CHAT, body, stubborn.begun.is_set)
    assert stubborn.was_cancelled


class SlowVoice(BeepVoice):
    def speak(self, clause, speed=None, language="en"):
        self.clauses.append(clause)
        time.sleep(0.1)
        yield SpeechChunk(np.full(24, 0.3, np.float32), 24_000, clause)


@pytest.mark.parametrize("silent", [True, False], ids=["before its first sound", "later"])
def test_models_are_free_while_a_long_text_is_spoken(silent):
    voice = SlowVoice()
    if silent:
        voice.speak = lambda clause, *rest: voice.clauses.append(clause) or time.sleep(0.1) or ()
    with serving(voice=voice) as server:
        text = "This is a sentence. " * 200
        body = json.dumps({"input": text}).encode()
        leave_after(server, SPEECH, body, lambda: len(voice.clauses) > 1)
    assert len(voice.clauses) < 150


def limited(minutes: int) -> Config:
    return Config(serve=ServeConfig(max_audio_minutes=minutes))


def upload(server, sound: bytes, **fields):
    return server.client.post(TRANSCRIPTIONS, files={"file": ("a", sound)}, data=fields)


def wav(samples: np.ndarray) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, SAMPLE_RATE, format="WAV")
    return file.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["length in the header", "no length", "wav"])
def test_a_small_file_of_hours_is_refused_early(kind):
    hours = np.zeros(600 * SAMPLE_RATE, np.int16)
    sound = wav(hours) if kind == "wav" else flac(hours)
    sound = without_length(sound) if kind == "no length" else sound
    detector = SlowDetector()
    detector.probability = lambda frame: setattr(detector, "frames", detector.frames + 1) or 0.0
    with serving(limited(1), detector=detector) as server:
        answer = upload(server, sound)
    assert answer.status_code == 413, answer.text
    assert answer.json()["error"]["param"] == "file"
    assert "1 min" in answer.json()["error"]["message"]
    assert "serve.max_audio_minutes" in answer.json()["error"]["message"]
    assert detector.frames <= 61 * SAMPLE_RATE // 512


def received(client: socket.socket) -> bytes:
    """Return what the server sends until it closes."""
    client.settimeout(SECONDS)
    data = b""
    try:
        while piece := client.recv(4096):
            data += piece
    except ConnectionResetError:
        pass
    return data


@pytest.mark.parametrize("start", [b"", b"GET /healthz HTTP/1.1\r\nX: "], ids=["none", "some"])
def test_headers_that_drip_are_timed_out(start, monkeypatch):
    monkeypatch.setattr("voxtui.serve.timeouts.HEADER_SECONDS", 0.2)
    with (
        serving() as server,
        socket.create_connection(("127.0.0.1", server.port)) as client,
    ):
        over = threading.Event()

        def drip() -> None:
            try:
                while start and not over.wait(0.05):
                    client.sendall(b"a")
            except OSError:
                pass

        client.sendall(start)
        thread = threading.Thread(target=drip)
        thread.start()
        answer = received(client)
        over.set()
        thread.join()
        assert answer.startswith(b"HTTP/1.1 408 ") or not answer


def test_a_second_request_whose_headers_drip_is_timed_out(monkeypatch):
    monkeypatch.setattr("voxtui.serve.timeouts.HEADER_SECONDS", 0.2)
    with (
        serving() as server,
        socket.create_connection(("127.0.0.1", server.port)) as client,
    ):
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
        client.sendall(b"GET / HT")
        assert received(client).lstrip(b'{"status":ok}').startswith(b"HTTP/1.1 408 ")


def test_a_body_that_drips_is_timed_out(monkeypatch):
    monkeypatch.setattr("voxtui.serve.upload.WINDOW_SECONDS", 0.2)
    with (
        serving() as server,
        socket.create_connection(("127.0.0.1", server.port)) as client,
    ):
        client.sendall(head(TRANSCRIPTIONS, 10**6, FORM))
        over = threading.Event()

        def drip() -> None:
            try:
                while not over.wait(0.02):
                    client.sendall(b"-")
            except OSError:
                pass

        thread = threading.Thread(target=drip)
        thread.start()
        client.settimeout(SECONDS)
        answer = client.recv(4096)
        over.set()
        thread.join()
        assert answer.startswith(b"HTTP/1.1 408 ")
        until(lambda: free(server) == 1)


def test_no_upload_has_a_name_that_a_kill_could_leave(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stubborn = Pass()
    with serving(recognise=stubborn) as server:
        body = form(("file", flac(spoken(1.0))))
        files = lambda: [*tmp_path.iterdir()]  # noqa: E731
        leave_after(
            server, TRANSCRIPTIONS, body, lambda: stubborn.begun.is_set() and not files(), FORM
        )
    assert not files()


def sound_message() -> dict:
    data = base64.b64encode(flac(spoken(1.0))).decode()
    sound = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    return {"messages": [{"role": "user", "content": [sound]}]}


def test_a_full_disk_is_an_answer_with_a_sentence(monkeypatch, capfd):
    with serving() as server:
        full = lambda **options: open("/dev/full", "wb+", buffering=0)  # noqa: E731, SIM115
        monkeypatch.setattr(tempfile, "TemporaryFile", full)
        noise = np.random.default_rng(1).uniform(-1, 1, 100_000)
        answers = (
            upload(server, flac(noise)),
            upload(server, wav(noise)),
            server.client.post(CHAT, json=sound_message()),
        )
        for answer in answers:
            assert answer.status_code == 507, answer.text
            assert "No space left on device" in answer.json()["error"]["message"]
        assert free(server) == 1
    assert "Traceback" not in capfd.readouterr().err


BAD = b"\xff\xfe"
DEEP = b'{"session": ' + b'{"a": ' * 5000 + b"1" + b"}" * 5001
SOUND = (
    b'{"messages": [{"role": "user", "content": '
    b'[{"type": "input_audio", "input_audio": {"data": "%s"}}]}]}'
)


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        (CHAT, "application/json", b'{"messages": [{"role": "user", "content": "%s"}]}' % BAD),
        (CHAT, "application/json", b'{"messages": [{"role": "user", "content": "\\ud800"}]}'),
        (SPEECH, "application/json", b'{"input": "%s"}' % BAD),
        (SPEECH, "application/json", BAD),
        (TRANSCRIPTIONS, FORM, form(("model", BAD), ("file", b"x"))),
        (TRANSCRIPTIONS, FORM, form(("file", b"x"), ("language", BAD))),
        (TRANSCRIPTIONS, FORM, form(("model", b"voxtui"))[:20].replace(b"f", BAD)),
        (TRANSCRIPTIONS, "multipart/form-data; boundary=\xff", form()),
        ("/v1/realtime/client_secrets", "application/json", b'{"session": "%s"}' % BAD),
        ("/v1/realtime/client_secrets", "application/json", DEEP),
        (CHAT, "application/json", DEEP),
        (CHAT, "application/json", SOUND % "ä".encode()),
    ],
)
def test_bad_utf8_and_too_many_levels_are_an_answer_with_a_sentence(path, kind, body, capfd):
    with serving() as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        whole = head(path, len(body), "KIND") + body
        client.sendall(whole.replace(b"KIND", kind.encode("latin-1")))
        client.settimeout(SECONDS)
        answer = client.recv(4096)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert "Traceback" not in capfd.readouterr().err


STUBBORN = """
import sys, time
from contextlib import contextmanager
from tests.fakes import BeepVoice, LoudIsSpeech, ScriptedBrain
from voxtui.serve.serve_command import run
from voxtui.serve.shared_models import ModelSet, Pool
from voxtui.settings.schema import Config, ServeConfig

def stubborn(samples, cancelled):
    print("recognising", flush=True)
    time.sleep(120)

class SlowVoice(BeepVoice):
    def speak(self, clause, speed=None, language="en"):
        print("recognising", flush=True)
        time.sleep(120)

@contextmanager
def load(config, note):
    parts = LoudIsSpeech(), SlowVoice(), ScriptedBrain(), LoudIsSpeech()
    try:
        yield Pool([ModelSet(stubborn, *parts)])
    finally:
        print("closing", flush=True)

run(Config(serve=ServeConfig(port=0)), load)
"""


def test_a_stop_does_not_wait_until_all_models_are_closed():
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout.readline().startswith("Ready")
            process.send_signal(signal.SIGINT)
            assert "closing" not in process.stdout.read()
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("path", [TRANSCRIPTIONS, SPEECH])
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_in_ten_seconds_whatever_runs(ending, path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            port = int(re.search(r":(\d+)/v1", process.stdout.readline())[1])
            body, kind = form(("file", wav(spoken(1.0)))), FORM
            if path == SPEECH:
                body, kind = b'{"input": "Hello."}', "application/json"
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(head(path, len(body), kind) + body)
                while "recognising" not in process.stdout.readline():
                    pass
                process.send_signal(ending)
                began = time.monotonic()
                process.wait(60)
                assert time.monotonic() - began < 12
        finally:
            process.kill()


def test_a_request_that_outlasts_the_stop_is_answered_with_503(monkeypatch):
    monkeypatch.setattr("voxtui.serve.server.DRAIN_SECONDS", 0)
    begun = threading.Event()

    def recognise(samples, cancelled) -> str:
        begun.set()
        assert cancelled.wait(PATIENCE)
        return ""

    body = form(("file", wav(spoken(1.0))))
    with (
        serving(recognise=recognise) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as client,
    ):
        client.sendall(head(TRANSCRIPTIONS, len(body), FORM) + body)
        assert begun.wait(PATIENCE)
        server.stop()
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"The server stops." in answer


@contextmanager
def _open(server, count: int):
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count)]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


def test_many_that_come_and_leave_keep_no_thread_and_no_file():
    import psutil

    with serving(recognise=lambda samples, cancelled: counted(samples)) as server:
        upload(server, flac(spoken(0.5)))
        process = psutil.Process()
        until(lambda: free(server) == 1)
        before = process.num_fds()
        body = form(("file", wav(spoken(*[0.5] * 20))))
        for cut in range(1, 20):
            with _open(server, 3) as clients:
                for client in clients:
                    whole = head(TRANSCRIPTIONS, len(body), FORM) + body
                    client.sendall(whole[: len(whole) * cut // 20])
        until(lambda: free(server) == 1)
        until(lambda: process.num_fds() <= before + 2)
