"""Clients on a real socket that do not read what they are sent."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
import pytest
import wsproto
from wsproto import events

from tests.deadline import SECONDS
from tests.fakes import BeepVoice
from tests.serve.conftest import Server, serving
from tests.ui.pseudo_terminal import until
from voxtui.dialogue.data import SpeechChunk
from voxtui.serve.realtime.session_settings import LONGEST_TEXT
from voxtui.settings.schema import Config, ServeConfig

MUCH = 200
"""Pieces of speech that no buffer of a system takes."""

ITEM = {"type": "message", "role": "user", "id": "long",
        "content": [{"type": "input_text", "text": "x" * LONGEST_TEXT}]}  # fmt: skip


@contextmanager
def connected(server: Server, uds: str = "") -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX if uds else socket.AF_INET) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(SECONDS)
        client.connect(uds or ("127.0.0.1", server.port))
        yield client


def open_session(client: socket.socket) -> wsproto.WSConnection:
    """Begin a realtime session, and read nothing more."""
    wire = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
    client.sendall(wire.send(events.Request("127.0.0.1", "/v1/realtime")))
    accepted = b""
    while not accepted.endswith(b"\r\n\r\n"):
        accepted += client.recv(1)
    wire.receive_data(accepted)
    list(wire.events())
    return wire


def ask_for_much(client: socket.socket, wire: wsproto.WSConnection) -> None:
    def send(kind: str, **fields: object) -> None:
        client.sendall(wire.send(events.TextMessage(json.dumps({"type": kind, **fields}))))

    send("conversation.item.create", item=ITEM)
    for _ in range(10_000):  # 40 MB, which no buffer of a system takes
        send("conversation.item.retrieve", item_id="long")


@pytest.fixture(params=["TCP", "a Unix socket"])
def config(request, tmp_path) -> Config:
    uds = "" if request.param == "TCP" else str(tmp_path / "socket")
    return Config(serve=ServeConfig(uds=uds))


@pytest.fixture
def impatient(monkeypatch) -> None:
    monkeypatch.setattr("voxtui.serve.timeouts.STALL_SECONDS", 0.1)


def test_a_session_whose_client_never_reads_ends_and_its_parts_are_free_again(
    impatient, monkeypatch, config
):
    monkeypatch.setattr("voxtui.serve.realtime.connection.MOST_QUEUED", 2**40)
    with serving(config) as server, connected(server, config.serve.uds) as client:
        wire = open_session(client)
        with suppress(ConnectionError):  # the server may drop it meanwhile
            ask_for_much(client, wire)
        until(lambda: not server.pool.busy)


def test_a_session_is_dropped_that_leaves_even_a_few_bytes_waiting(impatient, monkeypatch):
    """Fewer than uvicorn waits for, 64 kB."""
    made = []
    monkeypatch.setattr(
        "uvicorn.protocols.websockets.wsproto_impl.WSProtocol.start_keepalive",
        lambda protocol: made.append(protocol.transport),
    )
    with serving() as server, connected(server) as client:
        wire = open_session(client)
        message = {"type": "conversation.item.create", "item": ITEM}
        client.sendall(wire.send(events.TextMessage(json.dumps(message))))
        retrieve = {"type": "conversation.item.retrieve", "item_id": "long"}
        until(lambda: made)
        stuck = 0
        while stuck < 50 and server.pool.busy:  # the system may take some more bytes yet
            stuck = stuck + 1 if made[0].get_write_buffer_size() else 0
            if not stuck:
                client.sendall(wire.send(events.TextMessage(json.dumps(retrieve))))
            time.sleep(0.01)  # one answer after the other
        assert made[0].get_write_buffer_size() < 2**16
        until(lambda: not server.pool.busy)


def test_a_client_that_reads_too_slowly_is_told_so(monkeypatch):
    monkeypatch.setattr("voxtui.serve.realtime.connection.MOST_QUEUED", 2**20)
    with serving() as server, connected(server) as client:
        wire = open_session(client)
        ask_for_much(client, wire)
        closed = None
        while closed is None:
            wire.receive_data(client.recv(2**20))
            closed = next((e for e in wire.events() if isinstance(e, events.CloseConnection)), None)
        assert (closed.code, closed.reason) == (1008, "The client reads too slowly.")
        client.sendall(wire.send(closed.response()))
        until(lambda: not server.pool.busy)


class LongVoice(BeepVoice):
    def speak(self, clause, speed=None, language="en"):
        for _ in range(MUCH):
            yield SpeechChunk(np.zeros(100_000, np.float32), 24_000, clause)


def test_speech_that_nobody_takes_ends_and_its_parts_are_free_again(impatient, config):
    voice, uds = LongVoice(), config.serve.uds
    with serving(config, voice=voice) as server, connected(server, uds) as client:
        body = json.dumps({"model": "", "input": "Hello."}).encode()
        head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}"
        client.sendall(f"{head}\r\n\r\n".encode() + body)
        assert client.recv(16) == b"HTTP/1.1 200 OK\r"
        until(lambda: not server.pool.busy)
