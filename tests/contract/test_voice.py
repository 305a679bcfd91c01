"""The contract of every Voice, the fake one included."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import pytest

from tests.fakes import BeepVoice
from voxtui.dialogue.data import AUDIBLE
from voxtui.dialogue.protocols import Voice
from voxtui.errors import ModelError
from voxtui.settings.schema import VoiceConfig
from voxtui.voices.hibari import HibariVoice


@pytest.fixture(
    scope="module", params=["beep", "hibari", pytest.param("kokoro", marks=pytest.mark.slow)]
)
def voice(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Voice]:
    voice: Voice
    match request.param:
        case "beep":
            voice = BeepVoice()
        case "hibari":
            voice = HibariVoice(VoiceConfig())
        case _:
            if not find_spec("kokoro"):
                pytest.skip("Kokoro needs Python < 3.13")
            from tests.voices.random_kokoro import make
            from voxtui.voices.kokoro import KokoroVoice

            voice = KokoroVoice(VoiceConfig(), make(tmp_path_factory.mktemp("kokoro")))
    voice.warm_up(lambda step, fraction: None)
    yield voice
    voice.close()


def test_a_clause_becomes_sound(voice: Voice) -> None:
    chunks = list(voice.speak("The capital of France is Paris."))
    assert chunks and "".join(c.text for c in chunks) == "The capital of France is Paris."
    for chunk in chunks:
        assert chunk.samples.dtype == np.float32 and chunk.samples.ndim == 1
        assert 0 < float(np.abs(chunk.samples).max()) <= 1


def test_speech_begins_with_sound_and_not_with_silence(voice: Voice) -> None:
    chunk = next(iter(voice.speak("Sure!")))
    assert int(np.flatnonzero(np.abs(chunk.samples) > AUDIBLE)[0]) <= 0.02 * chunk.rate


@pytest.mark.parametrize("clause", ["ok", "3 + 4 = 7", "naïve café — 50 %", "☃ snow", "a" * 300])
def test_unusual_text_does_not_fail(voice: Voice, clause: str) -> None:
    chunks = list(voice.speak(clause))
    assert chunks and all(np.isfinite(chunk.samples).all() for chunk in chunks)


def test_the_same_clause_sounds_the_same(voice: Voice) -> None:
    first, second = (next(iter(voice.speak("Good morning."))) for _ in range(2))
    assert first.samples.tobytes() == second.samples.tobytes()


def test_the_embedded_voice_refuses_a_name_it_does_not_have() -> None:
    with pytest.raises(ModelError, match="speaks as af_heart, bf_emma"):
        HibariVoice(VoiceConfig(name="am_adam"))


@pytest.mark.slow
def test_a_faster_voice_is_shorter() -> None:
    lengths: list[int] = []
    for speed in (1.0, 1.5):
        voice = HibariVoice(VoiceConfig(speed=speed))
        voice.warm_up(lambda step, fraction: None)
        lengths.append(len(next(iter(voice.speak("The capital of France is Paris."))).samples))
        voice.close()
    assert lengths[1] < 0.85 * lengths[0]
