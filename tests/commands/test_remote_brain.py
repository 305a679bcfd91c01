"""The commands with a server that answers, from the command line to the socket."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import voxtui.cli
from tests.openai_server import event, returns, sends, serving
from voxtui.audio.portaudio import Probe
from voxtui.commands.doctor import doctor
from voxtui.storage.metrics_files import metrics_folder, read

REPOSITORY = Path(__file__).parents[2]
QUESTION = REPOSITORY / "assets" / "clips" / "capital-of-france.wav"


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VOXTUI_API_KEY", raising=False)
    for folder in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(folder, str(tmp_path))
    monkeypatch.setattr(doctor, "probe", lambda: Probe(()))
    with serving() as told:
        yield told


def remote(server):
    values = ("brain.name=remote", f"brain.remote.url={server.url}", "voice.engine=none")
    return [word for value in values for word in ("--set", value)]


def run(*arguments):
    ran = CliRunner().invoke(voxtui.cli.cli, arguments)
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran


def test_ask_prints_the_servers_answer_tokens_and_network_share(server):
    usage = f"data: {json.dumps({'choices': [], 'usage': {'completion_tokens': 7}})}\n\n"
    server.answers["chat/completions"] = sends(
        event("The capital"), event(" of France"), event(" is Paris.", "stop"), usage
    )
    command = [sys.executable, "-m", "voxtui", "ask", QUESTION, "--json", *remote(server)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "VOXTUI_API_KEY": "sk-secret"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    turn = json.loads(ran.stdout)
    assert (turn["brain"], turn["outcome"]) == ("remote", "answered")
    assert (turn["reply"], turn["tokens"]) == ("The capital of France is Paris.", 7)
    assert 0 < turn["network_ms"] < turn["ttft_ms"]
    assert turn["marks"]["captured"] <= turn["marks"]["sent"] <= turn["marks"]["first_token"]
    assert server.chats()[0].headers["authorization"] == "Bearer sk-secret"
    assert server.connections == 1  # there before the question was over
    assert ran.stderr == ""
    assert not any("sk-secret" in path.read_text(errors="replace") for path in Path().rglob("*.*"))
    assert read(metrics_folder()).lines[0].network_ms == turn["network_ms"]


def test_a_server_error_is_a_sentence_and_exit_code_1(server, capfd):
    server.answers["chat/completions"] = returns({"error": "no GPU"}, 500)
    ran = run("ask", str(QUESTION), "--fast", *remote(server))
    assert ran.exit_code == 1
    assert f"{server.host}: server error (HTTP 500): “no GPU”." in capfd.readouterr().err


def test_a_server_that_cannot_be_used_is_an_error_at_the_start(server):
    server.answers["models"] = returns("", 401)
    with pytest.raises(voxtui.cli.VoxtuiError, match="requires an API key"):
        run("ask", str(QUESTION), *remote(server))


@pytest.mark.slow
@pytest.mark.parametrize(("lines", "code"), [("Hello?\n", 1), ("/help\n", 0)])
def test_plain_mode_exits_with_1_if_a_piped_line_got_no_answer(server, lines, code):
    server.answers["models"] = returns("", 401)
    command = [sys.executable, "-m", "voxtui", "--plain", *remote(server)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    ran = subprocess.run(
        command, env=environment, input=lines, capture_output=True, text=True, check=False
    )
    assert ran.returncode == code
    assert "requires an API key (HTTP 401)" in ran.stderr


def test_transcribe_uses_the_server(server):
    ran = run("transcribe", str(QUESTION), "--format", "json", *remote(server))
    line = json.loads(ran.stdout)
    assert (line["file"], line["text"]) == (QUESTION.name, "what was said")


@pytest.mark.slow
def test_bench_measures_the_network_share(server):
    ran = run("bench", str(QUESTION), "--runs", "1", "--warm-up", "0", "--json", *remote(server))
    assert ran.exit_code == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["brain"].startswith("remote: 127.0.0.1")
    assert said["headlines"]["network"]["released"]["n"] == 1
    assert "send" in said["stages"]
    assert "  Network" in ran.stderr


def lines_of_doctor(*arguments):
    return [line.strip() for line in run("doctor", *arguments).stdout.splitlines()]


def test_doctor_connects_to_the_server(server):
    said = lines_of_doctor(*remote(server))
    assert (
        f"ok       server: it answers; remote: {server.host} gets your voice and words (a-model)"
    ) in said
    assert not any("chat model" in line for line in said)
    said = lines_of_doctor(*remote(server), "--set", "brain.remote.model=other")
    assert f"note     server: other is not listed: {server.host} has a-model." in said


def test_doctor_explains_why_the_server_cannot_answer(server):
    server.answers["models"] = returns("", 401)
    said = lines_of_doctor(*remote(server))
    assert f"missing  server: {server.host} requires an API key (HTTP 401)." in said
    assert "Set VOXTUI_API_KEY." in said
    assert said[-1] == "No conversation is possible yet."


def test_doctor_has_a_second_of_silence_transcribed(server):
    cascade = [*remote(server), "--set", "brain.remote.transcription_model=a-model"]
    assert lines_of_doctor(*cascade)[0].startswith("ok       server: it answers")
    assert bytes(32_000) in server.requests[-1].body
    server.answers["audio/transcriptions"] = returns("File Not Found", 404, "text/plain")
    said = lines_of_doctor(*cascade)
    assert (
        f"missing  server: {server.host}: model or address not found (HTTP 404): “File Not Found”."
        in said
    )
    assert said[-1] == "No conversation is possible yet."


def test_doctor_reports_a_missing_url():
    said = lines_of_doctor("--set", "brain.name=remote")
    assert "missing  server: brain.remote.url is not set." in said


PLANTED = """
[brain]
name = "remote"
[brain.remote]
url = "{}"
"""


def test_a_config_toml_in_the_current_directory_sends_nothing_to_its_server(server, monkeypatch):
    monkeypatch.setenv("VOXTUI_API_KEY", "sk-secret")
    Path("config.toml").write_text(PLANTED.format(server.url))
    found = lines_of_doctor()
    assert not any("server:" in line for line in found)
    assert server.requests == []
    lines_of_doctor("--config", "config.toml")
    assert server.requests[0].headers["authorization"] == "Bearer sk-secret"


def test_a_voxtui_toml_in_the_current_directory_may_not_name_a_server(server, monkeypatch):
    monkeypatch.setenv("VOXTUI_API_KEY", "sk-secret")
    Path("voxtui.toml").write_text(PLANTED.format(server.url))
    with pytest.raises(voxtui.cli.VoxtuiError, match=r"voxtui\.toml: brain\.name: cannot be set"):
        run("doctor")
    assert server.requests == []
