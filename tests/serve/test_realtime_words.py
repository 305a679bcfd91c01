"""The same words at any pace, by the embedded models."""

from __future__ import annotations

import base64
import time

import numpy as np
import pytest

from tests.serve.conftest import serving
from tests.serve.test_realtime import RATE, WORDS, session
from voxtui.audio.clips import load_clip
from voxtui.audio.resampling import resample
from voxtui.dialogue.data import SAMPLE_RATE
from voxtui.serve.shared_models import warm_pool
from voxtui.settings.schema import Config
from voxtui.wiring import sample_clips

TRANSCRIPT = "conversation.item.input_audio_transcription.completed"
DETECTED = {
    "audio": {
        "input": {
            "turn_detection": {"type": "server_vad", "create_response": False},
            "transcription": {"model": "whisper-1"},
        }
    }
}


@pytest.mark.slow
def test_the_words_are_the_same_at_any_pace() -> None:
    _, path = next(clip for clip in sample_clips() if "joke" in str(clip[1]))
    clip = load_clip(path, 30.0)
    clip = resample(clip.samples, SAMPLE_RATE, RATE)
    with warm_pool(Config(), print) as pool, serving(pool=pool) as server:
        for update in (WORDS, DETECTED):
            heard = {}
            for piece_ms, pace in ((10**6, 0), (20, 0), (60, 0), (500, 0), (100, 8), (40, 1)):
                with session(server, update) as client:
                    sound = np.concatenate([clip, np.zeros(RATE * 3 // 2)])
                    data = (sound * 32767).astype("<i2").tobytes()
                    size = 2 * RATE * piece_ms // 1000
                    for at in range(0, len(data), size):
                        audio = base64.b64encode(data[at : at + size]).decode()
                        client.send("input_audio_buffer.append", audio=audio)
                        time.sleep(piece_ms / 1000 / pace if pace else 0)
                    if update is WORDS:
                        client.send("input_audio_buffer.commit")
                    heard[piece_ms, pace] = client.until(TRANSCRIPT)["transcript"]
            assert len(set(heard.values())) == 1, heard
            assert len(heard[20, 0].split()) > 3
