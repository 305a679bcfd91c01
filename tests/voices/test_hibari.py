"""The voice that runs without a GPU."""

import pytest

from voxtui.errors import ModelError, UnspokenLanguage
from voxtui.settings.schema import VoiceConfig
from voxtui.voices.hibari import HibariVoice


@pytest.mark.parametrize("speaks", [True, False])
def test_an_embedded_voice_whose_runtime_does_not_load_is_one_sentence(monkeypatch, speaks):
    def no_room(*_, **options):
        if speaks and "threads" in options:
            return no_room
        raise RuntimeError("failed to allocate memory")

    monkeypatch.setattr("hibari.Hibari", no_room)
    with pytest.raises(ModelError, match=r"voice did not load: failed to all.*`voxtui doctor`"):
        HibariVoice(VoiceConfig()).warm_up(lambda step, fraction: None)


def test_an_answer_in_another_language_is_refused_by_the_embedded_voice():
    with pytest.raises(UnspokenLanguage, match=r"speaks English only, and this is French\."):
        list(HibariVoice(VoiceConfig()).speak("Bonjour.", language="fr"))
