"""A brain for a fake server, over real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from tests.fakes import Flag
from tests.openai_server import FakeServer, serving
from voxtui.brains.remote.remote_brain import RemoteBrain
from voxtui.dialogue.data import Token, Utterance
from voxtui.dialogue.protocols import TurnRequest
from voxtui.dialogue.timestamps import Timestamps
from voxtui.errors import RemoteError
from voxtui.settings.schema import BrainConfig, Config, GenerationConfig, RemoteBrainConfig

KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def no_key_and_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VOXTUI_API_KEY", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as fake:
        yield fake


@pytest.fixture
def make(server: FakeServer) -> Iterator[Any]:
    """Return a function that makes a brain for the server, without a request."""
    with ExitStack() as stack:

        def make(generation: GenerationConfig | None = None, **remote: Any) -> RemoteBrain:
            config = RemoteBrainConfig(**{"url": server.url, "model": "a-model", **remote})
            brain = RemoteBrain(
                Config(
                    brain=BrainConfig(name="remote", instruction="Be kind.", remote=config),
                    generation=generation or GenerationConfig(),
                ),
                make.notices.append,
            )
            stack.callback(brain.close)
            return brain

        make.notices = []
        yield make


def warm(brain: RemoteBrain) -> RemoteBrain:
    brain.warm_up(lambda step, fraction: None)
    return brain


def utterance(seconds: float = 0.5) -> Utterance:
    samples = np.linspace(-1, 1, int(16_000 * seconds), dtype=np.float32)
    return Utterance(samples, ((0.0, seconds),), 0.0)


def replied(brain: RemoteBrain, said: Utterance | str = "hello", past=(), timestamps=None) -> str:
    items = list(brain.reply(TurnRequest(past, said, timestamps or Timestamps(), Flag())))
    return "".join(item.text for item in items if isinstance(item, Token))


def refused(brain: RemoteBrain, said: Utterance | str = "hello") -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        replied(brain, said)
    return caught.value


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def written(brain: RemoteBrain) -> str:
    return "".join(token.text for token in brain.transcribe(utterance(), Flag()))
