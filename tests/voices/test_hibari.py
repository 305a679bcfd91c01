"""The voice that runs without a GPU."""

from contextlib import closing

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidGraph

from voxtui.brains.embedded.recogniser import Moonshine
from voxtui.errors import ModelError, UnspokenLanguage
from voxtui.settings.schema import VoiceConfig
from voxtui.voices.hibari import HibariVoice, after_pause


@pytest.mark.parametrize("loads", [True, False])
@pytest.mark.parametrize("error", [RuntimeError, InvalidGraph])
def test_an_embedded_voice_whose_runtime_does_not_load_is_one_sentence(monkeypatch, loads, error):
    class NoRoom:
        def __init__(self, *arguments, **options):
            if not loads:
                self.run()

        def run(self, *arguments):
            raise error("failed to allocate memory")

    monkeypatch.setattr("onnxruntime.InferenceSession", NoRoom)
    with pytest.raises(ModelError, match=r"voice did not load: failed to all.*`voxtui doctor`"):
        HibariVoice(VoiceConfig()).warm_up(lambda step, fraction: None)


@pytest.mark.models
def test_the_sessions_of_recogniser_and_voice_store_nothing_for_each_length(monkeypatch):
    sessions = []

    class Session(onnxruntime.InferenceSession):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            sessions.append(self.get_session_options())

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    with closing(HibariVoice(VoiceConfig())) as voice, closing(Moonshine()) as recogniser:
        voice.warm_up(lambda step, fraction: None)
        recogniser.load()
    grows = [options.enable_cpu_mem_arena or options.enable_mem_pattern for options in sessions]
    assert grows == [False] * 3


def test_an_answer_in_another_language_is_refused_by_the_embedded_voice():
    with pytest.raises(UnspokenLanguage, match=r"speaks English only, and this is French\."):
        list(HibariVoice(VoiceConfig()).speak("Bonjour.", language="fr"))


def tone(*seconds: float) -> np.ndarray:
    """Sound of a length, silence of a length, and so on, at 1,000 samples a second."""
    parts = [np.full(round(s * 1000), 0.0 if n % 2 else 0.5) for n, s in enumerate(seconds)]
    return np.concatenate(parts).astype(np.float32)


@pytest.mark.parametrize(
    ("both", "alone", "expected"),
    [
        (tone(0.9, 0.3, 1.2), tone(1.3), 1.212),
        (tone(0.4, 0.1, 0.4, 0.3, 1.2), tone(1.3), 1.212),  # a plosive is no pause
        (tone(2.4), tone(1.3), 1.3),
        (tone(0.1, 0.3, 2.0), tone(1.3), 1.3),  # not where the clause before ends
        (tone(0.9, 0.3, 0.5, 0.3, 0.4), tone(1.7), 1.7),  # the end is lost
    ],
)
def test_a_clause_is_taken_out_of_its_sentence_only_after_a_plain_pause(both, alone, expected):
    assert len(after_pause(both, tone(1.0), alone, 1000)) == round(expected * 1000)


def test_the_rest_of_a_sentence_does_not_begin_as_a_sentence_does():
    with closing(HibariVoice(VoiceConfig())) as voice:
        voice.warm_up(lambda step, fraction: None)

        def said(*clauses: str) -> np.ndarray:
            return [chunk.samples for clause in clauses for chunk in voice.speak(clause)][-1]

        alone = said("Ready.", "in Salzburg in 1756.")
        after = said("Mozart was born,", "in Salzburg in 1756.")
        assert not np.array_equal(alone[:4000], after[:4000])
        assert len(after) == pytest.approx(len(alone), rel=0.25)
        assert np.array_equal(said("Mozart was born,", "In Salzburg."), said("In Salzburg."))
