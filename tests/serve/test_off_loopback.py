"""A server on every address of this machine, reached over one that is not loopback."""

from __future__ import annotations

import pytest

from tests.fakes import ScriptedBrain
from tests.serve.conftest import own_address, serving
from tests.serve.test_realtime import PUSH_TO_TALK, session
from voxtui.brains.remote.endpoint import KEY as KEY_VARIABLE
from voxtui.brains.remote.remote_brain import RemoteBrain
from voxtui.serve.endpoints.openapi import openapi
from voxtui.serve.page import PAGE_PATHS
from voxtui.settings.schema import BrainConfig, Config, RemoteBrainConfig, ServeConfig

EVERYWHERE = Config(serve=ServeConfig(host="0.0.0.0"))

KEY = {"Authorization": "Bearer secret"}

SOCKETS = ("/v1/realtime", "/v1/realtime?intent=transcription")

CALLS = "/v1/realtime/calls"


@pytest.fixture(scope="module")
def server():
    with serving(
        EVERYWHERE, token="secret", brain=ScriptedBrain(["Fine."]), address=own_address()
    ) as running:
        assert "127." not in running.url
        yield running


def test_without_the_key_only_the_health_and_the_page_open(server):
    client = server.client
    assert client.get("/healthz").status_code == 200
    for path in PAGE_PATHS:
        answer = client.get(path)
        assert answer.status_code == 200
        assert "Bearer secret" not in answer.text
    paths = {*openapi("")["paths"], "/openapi.json", CALLS, f"{CALLS}/rtc_1/hangup", "/nothing"}
    assert {"/metrics", "/readyz", "/v1/models", "/v1/audio/transcriptions"} < paths
    for path in paths - {"/healthz"}:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            assert client.get(path, headers=headers).status_code == 401, path
            assert client.post(path, headers=headers).status_code == 401, path
        assert client.get(path, headers=KEY).status_code != 401, path
    for path in SOCKETS:
        for query in ("", "?access_token=wrong"):
            with pytest.raises(Exception, match="401"), client.websocket(path + query):
                pass
        with client.websocket(path, headers=KEY) as opened:
            assert "session.created" in opened.receive_text()


@pytest.mark.slow
def test_a_gateway_answers_with_the_brain_of_a_server_that_wants_a_key(server, monkeypatch):
    remote = RemoteBrainConfig(url=f"{server.url}/v1", model="gpt-4o")
    config = Config(brain=BrainConfig(name="remote", remote=remote), serve=EVERYWHERE.serve)
    for key, status in (("secret", "completed"), ("wrong", "failed")):
        monkeypatch.setenv(KEY_VARIABLE, key)
        brain = RemoteBrain(config, lambda sentence: None)
        try:
            with (
                serving(config, token="ours", brain=brain, address=own_address()) as gateway,
                session(gateway, PUSH_TO_TALK, headers={"Authorization": "Bearer ours"}) as client,
            ):
                client.say()
                response = client.until("response.done")["response"]
        finally:
            brain.close()
        assert response["status"] == status
    assert "rejected the API key" in response["status_details"]["error"]["message"]
