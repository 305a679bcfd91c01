"""The stock `openai` client on every endpoint; and many clients, some of them killed."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import random
import time
import urllib.request
import wave

import numpy as np
import openai
import psutil
import pytest
from openai import OpenAI

from benchmarks.serve.process import started
from benchmarks.serve.realtime_client import RATE, Line, messages
from benchmarks.stubs import beep
from tests.serve.conftest import PATIENCE, serving, spoken
from tests.serve.test_transcriptions import wav

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client():
    with (
        serving(
            sets=4, token="secret", recognise=lambda samples, cancelled: "What is it?"
        ) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="secret", max_retries=0) as client,
    ):
        yield client


def test_models_and_the_wrong_key(client):
    names = [model.id for model in client.models.list()]
    assert names[0] == "moonshine-tiny-en"
    assert set(names[1:]) == {"qwen2.5-coder-1.5b", "af_heart", "voxtui"}
    with pytest.raises(openai.AuthenticationError, match="The API key is wrong"):
        client.with_options(api_key="wrong").models.list()


def test_transcriptions_in_every_format(client):
    sound = wav(spoken(0.5))

    def heard(**options):
        return client.audio.transcriptions.create(
            model="whisper-1", file=("a.wav", sound), **options
        )

    assert heard().text == "What is it?"
    assert heard(response_format="text") == "What is it?\n"
    assert heard(response_format="srt").startswith("1\n00:00:00,")
    assert heard(response_format="vtt").startswith("WEBVTT")
    whole = heard(response_format="verbose_json", timestamp_granularities=["segment"])
    assert [segment.text for segment in whole.segments] == ["What is it?"]
    kinds = [event.type for event in heard(stream=True)]
    assert kinds == ["transcript.text.delta", "transcript.text.done"]
    with pytest.raises(openai.BadRequestError, match="'fr' is not supported"):
        heard(language="fr")


def test_a_wrong_key_is_told_during_a_large_upload(client):
    noise = np.random.default_rng(0).uniform(-1, 1, 4 * 2**20).astype(np.float32)
    with pytest.raises(openai.AuthenticationError, match="The API key is wrong"):
        client.with_options(api_key="wrong").audio.transcriptions.create(
            model="whisper-1", file=("a.wav", wav(noise))
        )


def test_speech(client):
    def said(form):
        with client.audio.speech.with_streaming_response.create(
            model="tts-1", voice="alloy", input="It is noon.", response_format=form
        ) as speech:
            return b"".join(speech.iter_bytes())

    pcm = said("pcm")
    assert len(pcm) > 1000
    with wave.open(io.BytesIO(said("wav"))) as sound:
        assert sound.getframerate() == 24_000
    assert said("mp3")[:3] == b"ID3" or said("mp3")[0] == 0xFF
    with pytest.raises(openai.BadRequestError, match="aac"):
        said("aac")


def test_chat_whole_and_streamed(client):
    sound = {"data": base64.b64encode(wav(spoken(0.5))).decode(), "format": "wav"}
    for content in ("Is it?", [{"type": "input_audio", "input_audio": sound}]):
        ask = {"model": "gpt-4o", "messages": [{"role": "user", "content": content}]}
        whole = client.chat.completions.create(**ask)
        assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (
            "Yes.",
            "stop",
        )
        chunks = list(client.chat.completions.create(**ask, stream=True))
        assert "".join(c.choices[0].delta.content or "" for c in chunks) == "Yes."
    with pytest.raises(openai.BadRequestError, match="n"):
        client.chat.completions.create(**ask, n=2)


def test_a_client_secret_opens_a_realtime_session(client):
    pytest.importorskip("websockets")  # of openai[realtime]
    session = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
    secret = client.realtime.client_secrets.create(session=session)
    sound = base64.b64encode((spoken(1.0) * 32767).astype("<i2")).decode()
    with client.with_options(api_key=secret.value).realtime.connect(model="gpt-realtime") as line:
        assert line.recv().type == "session.created"
        line.input_audio_buffer.append(audio=sound)
        line.input_audio_buffer.commit()
        line.response.create()
        texts: list[str] = []
        for event in line:
            if event.type == "response.output_audio_transcript.delta":
                texts.append(event.delta)
            if event.type == "response.done":
                break
        assert "".join(texts) == "Yes."
        line.session.update(session={"type": "realtime", "output_modalities": ["text"]})
        content = [{"type": "input_text", "text": "Is it?"}]
        line.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        line.response.create()
        kinds = []
        for event in line:
            kinds.append(event.type)
            if event.type == "response.done":
                break
        assert "response.output_text.delta" in kinds


CLIENTS, SECONDS = 16, 30.0

SESSIONS = 2 * CLIENTS
"""A client may come back before its last session has ended."""


def test_sessions_of_killed_clients_are_given_back_and_the_others_notice_nothing():
    said = messages(np.concatenate([beep(0.3, RATE), np.zeros(RATE // 10)]))
    random.seed(0)

    async def converse(url: str, until: float, killed: bool) -> int:
        turns = 0
        while time.monotonic() < until:
            line = await Line.open(url)
            if killed:  # somewhere between the first sound and the end of the answer
                try:
                    async with asyncio.timeout(random.uniform(0.0, 0.7)):
                        await line.turn(said)
                except TimeoutError:
                    pass
                line.abort()
                await asyncio.sleep(0.1)  # the time in which a person starts it again
            else:
                await line.turn(said)
                line.close()
            turns += 1
        return turns

    async def everyone(url: str) -> list[int]:
        until = time.monotonic() + SECONDS
        clients = [converse(url, until, n % 4 == 0) for n in range(CLIENTS)]
        return await asyncio.gather(*clients)

    with started("benchmarks.serve.scripted_server", [str(SESSIONS)]) as server:
        process = psutil.Process(server.pid)
        before = process.num_fds()
        turns = asyncio.run(everyone(server.url))
        assert min(turns) >= 1, turns

        def free() -> int:
            with urllib.request.urlopen(server.url.replace("/v1", "/readyz")) as answer:
                return json.load(answer)["free"]

        gone = time.monotonic() + PATIENCE
        while free() < SESSIONS or process.num_fds() > before + 2:
            assert time.monotonic() < gone, (free(), process.num_fds(), before)
