"""Choosing the voice: the best that can be had, and never none at all."""

import pytest

from tests.fakes import BeepVoice
from voxtui.errors import ModelError
from voxtui.settings.schema import VoiceConfig
from voxtui.voices.auto import AutoVoice
from voxtui.voices.hibari import HibariVoice


class Other(BeepVoice):
    name = "other"


class Broken(BeepVoice):
    name = "broken"

    def warm_up(self, progress):
        raise ModelError("Its file is damaged.", "Fetch it again.")


def impossible():
    raise ModelError("There is no GPU.")


@pytest.mark.parametrize("speaks", [True, False])
def test_an_embedded_voice_whose_runtime_does_not_load_is_one_sentence(monkeypatch, speaks):
    def no_room(*_, **options):
        if speaks and "threads" in options:
            return no_room
        raise RuntimeError("failed to allocate memory")

    monkeypatch.setattr("hibari.Hibari", no_room)
    with pytest.raises(ModelError, match=r"voice did not load: failed to all.*`voxtui doctor`"):
        HibariVoice(VoiceConfig()).warm_up(lambda step, fraction: None)


def warm(best, other=Other):
    said = []
    voice = AutoVoice(best, other, said.append)
    voice.warm_up(lambda step, fraction: None)
    return voice, said


def test_the_best_that_can_be_had_speaks():
    voice, said = warm(BeepVoice)
    assert (voice.name, said) == ("beep", [])
    assert [chunk.text for chunk in voice.speak("Hello.")] == ["Hello."]


def test_where_the_best_cannot_be_had_the_other_speaks_without_a_word_about_it():
    voice, said = warm(impossible)
    assert (voice.name, said) == ("other", [])


def test_one_that_does_not_load_is_closed_and_the_reason_said():
    broken = Broken()
    voice, said = warm(lambda: broken)
    assert voice.name == "other"
    assert said == ["The voice is other. Its file is damaged. Fetch it again."]
    assert broken.closed


def test_where_none_can_be_had_the_others_reason_is_raised():
    with pytest.raises(ModelError, match="no GPU"):
        warm(impossible, impossible)


def test_before_it_is_loaded_it_says_so_and_may_be_closed():
    voice = AutoVoice(BeepVoice, Other, print)
    with pytest.raises(ModelError, match="No voice is loaded"):
        list(voice.speak("Hello."))
    voice.close()
