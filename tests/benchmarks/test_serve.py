"""`python -m benchmarks.serve`: its clients against our server on scripted parts."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.serve import load as serve
from benchmarks.serve.__main__ import serve as command
from benchmarks.serve.process import Server, started
from benchmarks.serve.realtime_client import RATE, Answer, messages
from benchmarks.stubs import beep
from tests.fakes import ScriptedBrain
from tests.serve.conftest import serving
from voxtui.errors import ModelError, RemoteError
from voxtui.settings.schema import Config, GenerationConfig

SPOKEN = messages(np.concatenate([beep(0.3, RATE), np.zeros(RATE // 10)]))


@pytest.mark.slow
def test_clients_that_share_a_set_are_refused_and_come_again(monkeypatch):
    monkeypatch.setattr(serve, "BEGIN_SECONDS", 0.05)
    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.02)
    with serving(hand_over_s=0.0) as running:
        server = Server(f"{running.url}/v1", 0.0, 0)
        load = serve.under_load(server, serve.Load(3, 1), SPOKEN, 1, reopening=True)
    assert len(load.hot) == 3
    assert 0 < load.refused_share < 1
    for answer in load.hot:
        assert 0 < answer.first_text_ms <= answer.total_ms
        assert 0 < answer.first_sound_ms <= answer.total_ms


@pytest.mark.slow
def test_the_first_turn_of_a_session_is_counted_apart():
    with serving() as running:
        server = Server(f"{running.url}/v1", 0.0, 0)
        load = serve.under_load(server, serve.Load(1, 1), SPOKEN, 2)
    assert (len(load.cold), len(load.hot), load.refused) == (1, 2, 0)


@pytest.mark.slow
def test_an_answer_that_reached_its_greatest_length_is_measured():
    config = Config(generation=GenerationConfig(max_new_tokens=2))
    with serving(config, brain=ScriptedBrain(["One", " two."])) as running:
        server = Server(f"{running.url}/v1", 0.0, 0)
        load = serve.under_load(server, serve.Load(1, 1), SPOKEN, 0)
    assert load.cold[0].first_text_ms is not None


def test_the_report_compares_one_client_with_the_engine_alone():
    slow, fast = Answer(30.0, 300.0, 400.0), Answer(20.0, 214.0, 390.0)
    alone = serve.Load(1, 4, seconds=2.0, cold=[slow], hot=[fast])
    shared = serve.Load(4, 4, seconds=2.0, refused=1, hot=[slow])
    measured = serve.Measured("parts", [1.0], [alone, shared])
    lines = serve.report(measured, [Answer(20.0, 211.0, 385.0)])
    assert lines[-1] == "One client waits 3.0 ms longer than the engine's caller, p50."
    assert lines[-2].split() == ["4", "4", "0.5", *["30.0"] * 2, *["300"] * 2, *["400"] * 2, "50%"]
    assert max(map(len, lines)) <= 100
    hot = serve.as_json(measured)["loads"][0]["hot"]
    assert hot["first_sound_ms"]["p50"] == 214.0


@pytest.mark.slow
def test_a_server_without_answers_is_one_sentence():
    failing = ScriptedBrain([ModelError("The model is gone.")])
    with serving(brain=failing) as running:
        server = Server(f"{running.url}/v1", 0.0, 0)
        with pytest.raises(RemoteError, match="failed: The model is gone"):
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
    ran = CliRunner().invoke(command, ["--scripted", "--turns", "1", "--json"])
    assert ran.exit_code == 0, ran.output
    whole = json.loads(ran.stdout)
    one, two = whole["measured"][0]["loads"][:2]
    assert (one["clients"], two["clients"], one["refused"]) == (1, 2, 0)
    for load in (one, two):
        assert load["hot"]["first_sound_ms"]["p50"] >= whole["ideal_ms"]
        assert load["cold"]["first_sound_ms"]["n"] == load["clients"]
