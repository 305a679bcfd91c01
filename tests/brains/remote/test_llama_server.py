"""The remote brain against llama.cpp's own server, with a small real model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from tests.fakes import Flag
from voxtui.brains.remote.remote_brain import RemoteBrain
from voxtui.dialogue.data import Token, UserTranscript, Utterance
from voxtui.dialogue.protocols import PastTurn, TurnRequest
from voxtui.dialogue.timestamps import Timestamps
from voxtui.errors import RemoteError
from voxtui.models.installed import model_file
from voxtui.settings.schema import BrainConfig, Config, GenerationConfig, RemoteBrainConfig

pytestmark = pytest.mark.slow

SERVE = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.verbosity, params.ui = 1024, 1, -1, False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.hostnames, params.port = ["127.0.0.1"], 0
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


INSTRUCTION = (
    "You are Vox, a friendly voice assistant. Answer in one or two short spoken sentences. "
    "Plain text only, no lists, no code."
)
"""The smallest model repeats a name only with short instructions such as this one."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE, model_file("smollm2-135m")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdout is not None
    with server:
        yield server.stdout.readline().strip()
        server.kill()


@pytest.fixture
def brain(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteBrain]:
    monkeypatch.delenv("VOXTUI_API_KEY", raising=False)
    remote = RemoteBrainConfig(url=f"{address}/v1", transcription_model="none")
    generation = GenerationConfig(
        temperature=0, max_new_tokens=16, top_k=40, repetition_penalty=1.1
    )
    asked = BrainConfig(name="remote", instruction=INSTRUCTION, remote=remote)
    config = Config(brain=asked, generation=generation)
    brain = RemoteBrain(config)
    brain.warm_up(lambda step, fraction: None)
    yield brain
    brain.close()


def replied(brain: RemoteBrain, said: str, *past: PastTurn) -> list[Token]:
    heard, *tokens = brain.reply(TurnRequest(past, said))
    assert heard == UserTranscript(said)
    return tokens


def test_it_answers_in_tokens_and_uses_the_earlier_turns(brain: RemoteBrain) -> None:
    name = PastTurn("My name is Rosalind.", None, (Token("Nice to meet you, Rosalind."),))
    tokens = replied(brain, "What is my name?", name)
    assert 1 < len(tokens) <= 16
    assert "Rosalind" in "".join(token.text for token in tokens)


def test_after_an_interruption_the_next_answer_is_the_same_as_without(brain: RemoteBrain) -> None:
    whole = replied(brain, "Count from one to ten.")
    cancelled = Flag()
    for _ in brain.reply(TurnRequest((), "Tell me a very long story.", Timestamps(), cancelled)):
        cancelled.set()
    assert replied(brain, "Count from one to ten.") == whole


def test_a_model_that_accepts_no_audio_is_named(brain: RemoteBrain, address: str) -> None:
    hearing = RemoteBrain(Config(brain=BrainConfig(remote=RemoteBrainConfig(url=f"{address}/v1"))))
    hearing.warm_up(lambda step, fraction: None)
    said = Utterance(np.zeros(16_000, np.float32), ((0.0, 1.0),), 0.0)
    with pytest.raises(RemoteError, match="does not accept audio") as caught:
        list(hearing.reply(TurnRequest((), said)))
    assert "transcription_model" in caught.value.hint
    hearing.close()
