"""`voxtui serve` as a process, with real weights."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from base64 import b64encode
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from openai import OpenAI

from tests.deadline import SECONDS
from tests.serve.conftest import own_address
from voxtui.cli import cli, main
from voxtui.errors import InputError
from voxtui.serve.serve_command import bound, check_memory, key, reached_at
from voxtui.settings.schema import BrainConfig, Config, ServeConfig, VoxtralBrainConfig

CLIP = Path(__file__).parents[2] / "assets/clips/capital-of-france.wav"


@contextmanager
def started(*arguments: str):
    """Start the server; yield its process and its ready line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "voxtui", "serve", "--port", "0", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.models
def test_the_stock_client_transcribes_and_is_answered_until_the_server_stops():
    with started("--brain", "embedded") as (process, line):
        url = re.search(r"http://127\.0\.0\.1:\d+/v1", line)
        assert url, line
        with OpenAI(base_url=url[0], api_key="none") as client:
            assert next(model.id for model in client.models.list()) == "moonshine-tiny-en"
            with CLIP.open("rb") as file:
                heard = client.audio.transcriptions.create(model="whisper-1", file=file)
            assert heard.text == "What is the capital of France?"
            with client.audio.speech.with_streaming_response.create(
                model="tts-1", voice="alloy", input="The capital is Paris.", response_format="wav"
            ) as speech:
                sound = b"".join(speech.iter_bytes())
            again = client.audio.transcriptions.create(
                model="whisper-1", file=("speech.wav", sound), stream=True
            )
            *_, done = again
            assert done.type == "transcript.text.done"
            assert "capital is Paris" in done.text
            sound = {"data": b64encode(CLIP.read_bytes()).decode(), "format": "wav"}
            answer = client.chat.completions.create(
                model="gpt-4o",
                messages=[
                    {"role": "user", "content": [{"type": "input_audio", "input_audio": sound}]}
                ],
            )
            assert "Paris" in str(answer.choices[0].message.content)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0


def test_a_unix_socket_is_for_this_user_only_and_a_stale_one_is_replaced(tmp_path):
    path = tmp_path / "voxtui.sock"
    serve = ServeConfig(uds=str(path))
    bound(serve).close()
    assert path.stat().st_mode & 0o777 == 0o600
    with bound(serve):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        with pytest.raises(InputError, match="another process listens there"):
            bound(serve)


def test_a_port_in_use_is_refused_before_models_load():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(cli, ["serve", "--port", str(port)])
    assert isinstance(result.exception, InputError)
    assert f"127.0.0.1:{port}" in str(result.exception)
    assert "Address already in use. --port" in str(result.exception)


def test_off_loopback_there_is_a_key(monkeypatch):
    monkeypatch.delenv("VOXTUI_API_KEY", raising=False)
    everywhere = ServeConfig(host="0.0.0.0")
    token, is_new = key(everywhere)
    assert token is not None
    assert len(token) >= 32
    assert is_new
    assert key(everywhere)[0] != token
    monkeypatch.setenv("VOXTUI_API_KEY", "mine")
    assert key(everywhere) == ("mine", False)
    assert key(ServeConfig()) == (None, False)
    assert key(ServeConfig(host="0.0.0.0", uds="x")) == (None, False)


def test_the_address_of_a_server_on_all_addresses_is_one_that_others_reach():
    assert reached_at("0.0.0.0") == own_address()
    assert reached_at("127.0.0.1") == "127.0.0.1"
    assert reached_at("example.org") == "example.org"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "70000"], "--port"),
        (["--sessions", "0"], "--sessions"),
        (["--host", "nowhere.invalid"], "nowhere.invalid"),
        (["--tls-cert", "cert.pem"], "--tls-key"),
        (["--uds", "/nonexistent/socket"], "/nonexistent/socket"),
        (["--set", "serve.uds=/nonexistent/socket"], "/nonexistent/socket"),
        (["--tls-cert", str(CLIP), "--tls-key", str(CLIP)], "for https. The certificate"),
        (["--uds", str(CLIP)], "it exists and is not a socket"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_2(arguments, words, monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", ["voxtui", "serve", *arguments])
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    told = capfd.readouterr().err
    assert words in told
    assert "Traceback" not in told


def test_sessions_that_do_not_fit_the_memory_are_refused_and_others_announced(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda path: "MemAvailable:    7000000 kB\n")

    def check(sessions: int) -> str:
        brain = BrainConfig(name="embedded")
        return check_memory(Config(brain=brain, serve=ServeConfig(sessions=sessions)))

    with pytest.raises(InputError, match=r"64 sessions take about 96\.0 GB.*--sessions 4 fits"):
        check(64)
    assert check(1) == ""
    assert check(4) == "4 sessions take about 6.0 GB of memory; 7.2 GB are free."


def test_a_gpu_without_weights_needs_the_memory_of_the_embedded_brain(monkeypatch, tmp_path):
    monkeypatch.setattr("voxtui.models.cuda.check_voxtral", lambda: None)
    voxtral = VoxtralBrainConfig(model=str(tmp_path / "none"))
    brain = BrainConfig(name="auto", voxtral=voxtral)
    with pytest.raises(InputError, match="sessions take"):
        check_memory(Config(brain=brain, serve=ServeConfig(sessions=64)))
