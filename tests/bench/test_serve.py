"""`voxtui bench serve`: its clients against our server on scripted parts."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import voxtui.cli
from tests.fakes import ScriptedBrain
from tests.serve.conftest import serving
from voxtui.bench import serve
from voxtui.bench.realtime_client import RATE, Answer, messages
from voxtui.bench.server import Server, started
from voxtui.bench.stubs import beep
from voxtui.errors import ModelError, RemoteError

SPOKEN = messages(np.concatenate([beep(0.3, RATE), np.zeros(RATE // 10)]))


def test_clients_that_share_a_set_are_refused_and_come_again(monkeypatch):
    monkeypatch.setattr(serve, "BEGIN_SECONDS", 0.05)
    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.02)
    with serving() as running:
        server = Server(f"{running.url}/v1", 0.0, 0)
        load = serve.under_load(server, serve.Load(3, 1), SPOKEN, 1, reopening=True)
    assert len(load.hot) == 3
    assert 0 < load.refused_share < 1
    for answer in load.hot:
        assert 0 < answer.first_text_ms <= answer.total_ms
        assert 0 < answer.first_sound_ms <= answer.total_ms


def test_the_first_turn_of_a_session_is_reported_apart():
    with serving() as running:
        server = Server(f"{running.url}/v1", 0.0, 0)
        load = serve.under_load(server, serve.Load(1, 1), SPOKEN, 2)
    assert (len(load.cold), len(load.hot), load.refused) == (1, 2, 0)
    measured = serve.Measured("parts", [1.0], [load])
    direct = [Answer(1.0, 2.0, 3.0)]
    assert serve.overhead_ms(measured, direct) == pytest.approx(
        np.median([a.first_sound_ms for a in load.hot]) - 2.0, abs=20
    )
    assert max(map(len, serve.report(measured, direct))) <= 100


def test_a_server_without_answers_is_one_sentence():
    failing = ScriptedBrain([ModelError("The model is gone.")])
    with serving(brain=failing) as running:
        server = Server(f"{running.url}/v1", 0.0, 0)
        with pytest.raises(RemoteError, match="The answer was not completed: failed"):
            serve.under_load(server, serve.Load(1, 1), SPOKEN, 0)
    with pytest.raises(RemoteError, match="cannot connect"):
        serve.under_load(Server("http://127.0.0.1:9/v1", 0.0, 0), serve.Load(1, 1), SPOKEN, 0)


@pytest.mark.slow
def test_a_server_that_does_not_start_is_one_sentence(capfd):
    with (
        pytest.raises(ModelError, match="did not start"),
        started("voxtui", ["serve", "--nothing"]),
    ):
        pass
    assert "--nothing" in capfd.readouterr().err


@pytest.mark.slow
def test_the_scripted_server_runs_as_a_process_and_costs_little(monkeypatch):
    monkeypatch.setattr(serve, "SCRIPTED_CLIENTS", (1, 2))
    ran = CliRunner().invoke(
        voxtui.cli.cli, ["bench", "serve", "--scripted", "--turns", "1", "--json"]
    )
    assert ran.exit_code == 0, ran.output
    whole = json.loads(ran.stdout)
    one, two = whole["measured"][0]["loads"][:2]
    assert (one["clients"], two["clients"], one["refused"]) == (1, 2, 0)
    for load in (one, two):
        assert load["hot"]["first_sound_ms"]["p50"] >= whole["ideal_ms"]
        assert load["cold"]["first_sound_ms"]["n"] == load["clients"]
