from __future__ import annotations

import base64
import io
import json
import wave

import httpx2
import numpy as np
import pytest
import soundfile
from openai.types.audio.speech_create_params import SpeechCreateParams

from tests.fakes import BeepVoice
from tests.serve.conftest import serving
from voxtui.errors import ModelError
from voxtui.serve.openai_types import SpeechRequest

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
        ({"input": "a", "response_format": "aac"}, "aac"),
        ({"input": "a", "voice": "nobody"}, "voice"),
        ({"input": "a", "speed": 5.0}, "speed"),
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


def test_a_voice_that_fails_later_cuts_the_answer_and_is_counted_as_a_failure(capfd):
    def fail(clause):
        if "Four" in clause:
            raise ModelError("The voice failed.")

    with serving(voice=BeepVoice(fail)) as server:
        with pytest.raises(httpx2.RemoteProtocolError):
            speak(server)
        text = server.client.get("/metrics").text
        assert 'endpoint="speech",status="500"} 1.0' in text
        assert 'endpoint="speech",status="200"' not in text
    told = capfd.readouterr().err
    assert "The voice failed." in told
    assert "Traceback" not in told


TEXT = "One two three. Four five six."
SECONDS = 0.01 * len(TEXT)


@pytest.mark.parametrize(
    ("form", "media", "start"),
    [("mp3", "audio/mpeg", b"\xff"), ("opus", "audio/ogg", b"OggS"),
     ("flac", "audio/flac", b"fLaC"),
     ("wav", "audio/wav", b"RIFF")],
)  # fmt: skip
def test_each_format_is_a_file_of_the_whole_text(server, form, media, start):
    answer = speak(server, TEXT, response_format=form)
    assert answer.headers["content-type"] == media
    assert answer.content.startswith(start)
    samples, rate = soundfile.read(io.BytesIO(answer.content))
    assert len(samples) / rate == pytest.approx(SECONDS, abs=0.12)  # MP3 pads both ends
    assert np.abs(samples).max() == pytest.approx(0.3, abs=0.15)


def test_a_wav_of_one_clause_knows_its_length(server):
    with wave.open(io.BytesIO(speak(server, "One two three.").content)) as sound:
        assert sound.getnframes() == 240 * len("One two three.")


def test_events_carry_the_same_sound(server):
    answer = speak(server, TEXT, response_format="pcm", stream_format="sse")
    *deltas, done = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line]
    assert {delta["type"] for delta in deltas} == {"speech.audio.delta"}
    assert len(deltas) > 1
    assert done["type"] == "speech.audio.done"
    sound = b"".join(base64.b64decode(delta["audio"]) for delta in deltas)
    assert sound == speak(server, TEXT, response_format="pcm").content


def test_the_speed_reaches_the_voice():
    class Noting(BeepVoice):
        def speak(self, clause, speed=None, language="en"):
            speeds.append(speed)
            return super().speak(clause, speed, language)

    speeds: list = []
    with serving(voice=Noting()) as server:
        for speed in (0.5, None, 2):
            speak(server, "Hello.", speed=speed)
    assert speeds == [0.5, None, 2.0]


def test_every_field_of_openai_is_known():
    assert set(SpeechCreateParams.__annotations__) - set(SpeechRequest.__struct_fields__) == set()
