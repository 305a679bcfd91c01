"""A server on a real socket, with a scripted recogniser, detector and voice."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import numpy as np
import pytest
import uvicorn
from msgspec.structs import replace

from tests.deadline import SECONDS
from tests.fakes import BeepVoice, LoudIsSpeech, ScriptedBrain
from voxtui.dialogue.data import SAMPLE_RATE
from voxtui.serve.app import build_app
from voxtui.serve.serve_command import HEADER_BYTES, MESSAGE_BYTES, address_of, bound
from voxtui.serve.server import AnnouncingServer
from voxtui.serve.shared_models import ModelSet, Pool
from voxtui.serve.timeouts import HttpProtocol, WebSocketProtocol
from voxtui.settings.schema import Config

PATIENCE = SECONDS
"""until a test gives a client up"""


def counted(samples, cancelled=None) -> str:
    """Return how long the sound is, instead of its words."""
    return f"{len(samples) / SAMPLE_RATE:.1f} seconds."


class Server:
    def __init__(self, port: int, stop: Callable[[], None], address: str, pool: Pool) -> None:
        self.port = port
        self.pool = pool
        self.stop = stop
        self.url = f"http://{address}:{port}"
        self.client = httpx2.Client(base_url=self.url, timeout=PATIENCE)


@contextmanager
def serving(
    config: Config = Config(),  # noqa: B008 (immutable)
    recognise: Callable = counted,
    sets: int = 1,
    token: str | None = None,
    voice: object | None = None,
    brain: object | None = None,
    detector: object | None = None,
    hand_over_s: float = PATIENCE,
    queue_s: float = PATIENCE,
    address: str = "127.0.0.1",
    pool: Pool | None = None,
) -> Iterator[Server]:
    """Serve on loopback, or where `config` says.

    `hand_over_s`: a session ends a moment after its client has left, so the next one waits for its
    set. Tests of a refusal do not. `address`: the one that the client connects to.
    """
    pool = pool or Pool(
        [
            ModelSet(
                recognise,
                detector or LoudIsSpeech(),
                voice or BeepVoice(),
                brain or ScriptedBrain(),
                LoudIsSpeech(),
            )
            for _ in range(sets)
        ],
        hand_over_s,
        queue_s,
    )  # fmt: skip
    ready = threading.Event()
    with bound(replace(config.serve, port=0)) as listener:
        app, calls = build_app(config, pool, token, frozenset(), address_of(listener))
        server = AnnouncingServer(
            uvicorn.Config(
                app, ws=WebSocketProtocol, http=HttpProtocol, lifespan="off", log_level="error",
                ws_max_size=MESSAGE_BYTES, h11_max_incomplete_event_size=HEADER_BYTES,
            ),
            calls,
            ready.set,
        )  # fmt: skip
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        assert ready.wait(PATIENCE)
        port = 0 if config.serve.uds else listener.getsockname()[1]
        running = Server(port, lambda: setattr(server, "should_exit", True), address, pool)
        try:
            with running.client:
                yield running
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
    assert not thread.is_alive()


def documented(endpoint: str) -> list[set[str]]:
    """Return the fields that docs/serve.md names as obeyed, without effect and refused."""
    text = (Path(__file__).parents[2] / "docs/serve.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith(f"| {endpoint} |"))
    return [set(re.findall(r"`(\w+)`", cell)) for cell in row.split("|")[2:5]]


def own_address() -> str:
    """Return the address by which other machines reach this one. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("This machine has no network.")
        return probe.getsockname()[0]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def spoken(*seconds: float, pause: float = 0.8) -> np.ndarray:
    """Return loud stretches of `seconds` each, with a pause after each: float32, 16 kHz."""
    parts = [
        part
        for length in seconds
        for part in (np.full(int(length * SAMPLE_RATE), 0.5), np.zeros(int(pause * SAMPLE_RATE)))
    ]
    return np.concatenate(parts).astype(np.float32)


def pcm(samples: np.ndarray) -> bytes:
    return (samples * 32767).astype("<i2").tobytes()
