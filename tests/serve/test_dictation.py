from __future__ import annotations

import json
import threading

import pytest

from tests.serve.conftest import PATIENCE, pcm, serving, spoken
from tests.ui.pseudo_terminal import until
from voxtui.errors import ModelError

PATH = "/v1/audio/transcriptions/realtime"


def told(socket) -> dict:
    return json.loads(socket.receive_text())


def test_words_come_at_a_pause_and_all_of_them_at_the_end(server):
    with server.client.websocket(PATH) as socket:
        assert told(socket) == {"type": "session.created"}
        socket.send_bytes(pcm(spoken(1.0)))
        first = told(socket)
        assert first["type"] == "transcript.delta"
        sound = pcm(spoken(1.0))
        socket.send_bytes(sound[:1001])  # a message may end within a sample
        socket.send_bytes(sound[1001:])
        second = told(socket)
        socket.send_text("a message of another program")
        socket.send_text('{"type":"stop"}')
        done = told(socket)
        assert done == {"type": "transcript.done", "text": first["text"] + second["text"]}


def test_a_bare_stop_ends_it_too(server):
    with server.client.websocket(PATH) as socket:
        told(socket)
        socket.send_text("stop")
        assert told(socket) == {"type": "transcript.done", "text": ""}


def test_a_failure_is_told_and_the_next_connection_works():
    failures = [ModelError("The recogniser failed.")]

    def once(samples, cancelled):
        if failures:
            raise failures.pop()
        return "words"

    with serving(recognise=once) as server:
        with server.client.websocket(PATH) as socket:
            told(socket)
            socket.send_bytes(pcm(spoken(1.0)))
            socket.send_text("stop")
            assert told(socket) == {"type": "error", "message": "The recogniser failed."}
        with server.client.websocket(PATH) as socket:
            told(socket)
            socket.send_bytes(pcm(spoken(1.0)))
            assert told(socket)["text"] == "words"


def test_words_that_come_when_the_client_has_left_are_dropped(capfd):
    begun, left = threading.Event(), threading.Event()

    def recognise(samples, cancelled) -> str:
        begun.set()
        assert left.wait(PATIENCE)
        return "words"

    with serving(recognise=recognise) as server:
        with server.client.websocket(PATH) as socket:
            told(socket)
            socket.send_bytes(pcm(spoken(1.0, 1.0)))
            assert begun.wait(PATIENCE)
        assert server.client.get("/readyz").json()["free"] == 0  # it has read the close before this
        left.set()
        until(lambda: server.client.get("/readyz").json()["free"])
        assert 'endpoint="dictation",status="101"} 1.0' in server.client.get("/metrics").text
    assert "Traceback" not in capfd.readouterr().err


def test_a_second_connection_is_refused_before_it_opens():
    with serving(hand_over_s=0.0) as server, server.client.websocket(PATH) as socket:
        told(socket)
        with pytest.raises(Exception, match="429"), server.client.websocket(PATH):
            pass
