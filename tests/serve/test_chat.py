from __future__ import annotations

import base64
import io
import threading

import numpy as np
import pytest
import soundfile
from openai import BadRequestError, OpenAI

from tests.fakes import ScriptedBrain
from tests.serve.conftest import PATIENCE, serving, spoken
from tests.ui.pseudo_terminal import until
from voxtui.dialogue.data import Utterance
from voxtui.errors import ModelError

BRAIN = ScriptedBrain()
PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server():
    with serving(brain=BRAIN) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    url = f"{server.url}/v1"
    with OpenAI(base_url=url, api_key="none", max_retries=0, timeout=PATIENCE) as openai:
        yield openai


def sound(seconds: float = 1.0) -> dict:
    file = io.BytesIO()
    soundfile.write(file, spoken(seconds, pause=0.0), 16_000, format="WAV")
    data = base64.b64encode(file.getvalue()).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def ask(client: OpenAI, *messages: dict, script: list | None = None, **fields):
    BRAIN.__init__(script or ["It is ", "Paris."])
    return client.chat.completions.create(model="gpt-4o", messages=list(messages), **fields)  # type: ignore[call-overload]


def user(content) -> dict:
    return {"role": "user", "content": content}


def test_the_stock_client_asks_with_a_sound(client):
    answer = ask(client, user([sound()]))
    assert answer.choices[0].message.content == "It is Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 2
    (said,) = BRAIN.said
    assert isinstance(said, Utterance)
    assert said.seconds == pytest.approx(1.0)
    assert np.abs(said.samples).max() == pytest.approx(0.5, abs=0.01)


def test_the_conversation_and_its_instruction_reach_the_brain(client):
    ask(
        client,
        {"role": "system", "content": "Be brief."},
        user([sound(2.0), {"type": "text", "text": "What is that?"}]),
        {"role": "assistant", "content": "A bird."},
        user("Which one?"),
        max_tokens=5,
    )
    (past,) = BRAIN.pasts
    told = [(turn.user_text, turn.reply_text) for turn in past]
    assert told == [("2.0 seconds.\nWhat is that?", ""), ("", "A bird.")]
    (options,) = BRAIN.manners
    assert (options.instruction, options.max_new_tokens) == ("Be brief.", 5)
    assert BRAIN.said == ["Which one?"]


def test_a_stream_brings_each_token_when_it_exists(client):
    held = threading.Event()
    stream = ask(
        client, user("Where?"), script=["It is ", held, "Paris."], stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = iter(stream)
    first = next(chunks)
    assert first.choices[0].delta.content == "It is "
    assert first.choices[0].delta.role == "assistant"
    held.set()
    rest = list(chunks)
    assert rest[0].choices[0].delta.content == "Paris."
    assert rest[1].choices[0].finish_reason == "stop"
    assert rest[2].usage.completion_tokens == 2


def test_a_client_that_leaves_ends_the_answer(server, client):
    held = threading.Event()
    stream = ask(client, user("Where?"), script=["It is ", held, "Paris."], stream=True)
    next(iter(stream))
    stream.close()
    (cancelled,) = BRAIN.flags
    assert cancelled.wait(PATIENCE)
    held.set()
    until(lambda: 'status="499"' in server.client.get("/metrics").text)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"n": 2}, "n must be 1"),
        ({"modalities": ["text", "audio"]}, "/v1/audio/speech"),
        ({"tool_choice": "required"}, "Tools"),
        ({"model": "nothing"}, "nothing"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "Hi."}]}, "last message"),
        ({"messages": [user("")]}, "empty"),
        ({"messages": [user("x" * 5000)]}, "4000"),
        ({"messages": [user([{"type": "image_url", "image_url": {"url": "x"}}])]}, "image_url"),
        ({"messages": [user([{"type": "input_audio", "input_audio": {"data": "!"}}])]}, "base64"),
        ({"messages": [user([{"type": "input_audio", "input_audio": {"data": "aGk="}}])]}, "sound"),
    ],
)
def test_what_cannot_be_done_is_refused(server, fields, words):
    answer = server.client.post(PATH, json={"messages": [user("Hello.")], **fields})
    assert answer.status_code in (400, 404), answer.text
    assert words in answer.json()["error"]["message"]


def test_a_failure_is_an_error_also_within_a_stream(client):
    failure = ModelError("Out of memory.")
    with pytest.raises(Exception, match="Out of memory"):
        ask(client, user("Where?"), script=[failure])
    with pytest.raises(Exception, match="Out of memory"):
        list(ask(client, user("Where?"), script=["It is ", failure], stream=True))


def test_the_stock_client_understands_a_refusal(client):
    with pytest.raises(BadRequestError, match="n must be 1"):
        ask(client, user("Hello."), n=2)
