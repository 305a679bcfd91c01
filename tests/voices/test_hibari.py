"""The voice that runs without a GPU."""

import pytest

from voxtui.errors import ModelError
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
