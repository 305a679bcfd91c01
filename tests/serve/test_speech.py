from __future__ import annotations

import io

import httpx2
import numpy as np
import pytest
import soundfile

from tests.fakes import BeepVoice
from tests.serve.conftest import serving
from voxtui.errors import ModelError

PATH = "/v1/audio/speech"


def speak(server, text="One two three. Four five six.", **fields):
    return server.client.post(PATH, json={"input": text, **fields})


def test_text_becomes_a_wav_that_libsndfile_reads(server):
    answer = speak(server, model="tts-1", voice="alloy")
    assert answer.headers["content-type"] == "audio/wav"
    samples, rate = soundfile.read(io.BytesIO(answer.content))
    assert rate == 24_000
    assert len(samples) == 240 * len("One two three. Four five six.")


def test_pcm_is_sixteen_bit_mono_at_24_khz(server):
    sound = np.frombuffer(speak(server, response_format="pcm").content, "<i2")
    assert len(sound) == 240 * len("One two three. Four five six.")
    assert sound[0] == round(0.3 * 32767)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"input": ""}, "input"),
        ({"input": "x" * 4097}, "input"),
        ({}, "input"),
        ({"input": "a", "response_format": "mp3"}, "mp3"),
        ({"input": "a", "voice": "nobody"}, "voice"),
        ({"input": "a", "speed": 2.0}, "speed"),
        ({"input": 1}, "input"),
    ],
)
def test_what_cannot_be_spoken_is_refused(server, body, words):
    answer = server.client.post(PATH, json=body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_a_body_that_is_no_json_or_too_long_is_refused(server):
    assert server.client.post(PATH, content=b"{").status_code == 400
    assert server.client.post(PATH, content=b" " * 100_000).status_code == 413


def test_a_voice_that_fails_at_once_is_an_error_and_not_silence():
    def fail(clause):
        raise ModelError("The voice failed.")

    with serving(voice=BeepVoice(fail)) as server:
        answer = speak(server)
        assert answer.status_code == 500
        assert "The voice failed." in answer.json()["error"]["message"]


def test_a_voice_that_fails_later_cuts_the_answer_and_is_counted_as_a_failure():
    def fail(clause):
        if "Four" in clause:
            raise ModelError("The voice failed.")

    with serving(voice=BeepVoice(fail)) as server:
        with pytest.raises(httpx2.RemoteProtocolError):
            speak(server)
        text = server.client.get("/metrics").text
        assert 'endpoint="speech",status="500"} 1.0' in text
        assert 'endpoint="speech",status="200"' not in text
