"""Dictation: frames of a microphone become words while they arrive."""

import numpy as np
import pytest

from tests.fakes import LoudIsSpeech, frames
from voxtui.commands.dictation.dictation import Dictation
from voxtui.dialogue.data import FRAME_SECONDS
from voxtui.dialogue.recording import TRAIL_SAMPLES
from voxtui.errors import DeviceError, ForeignSpeech
from voxtui.settings.schema import VadConfig
from voxtui.wiring import SpeechToText

BEGAN = 1000.0
"""monotonic seconds of the first sample of `frames`"""


class PatternMicrophone:
    """FakeMicrophone: delivers the frames of `pattern` at once, then calls `after`."""

    name, level = "pattern", 0.0

    def __init__(self, pattern, after=lambda lost: None):
        self.pattern, self.after = pattern, after
        self.closed = False

    def open(self, sink, lost):
        for frame in frames(self.pattern, BEGAN):
            sink(frame)
        self.after(lost)

    def close(self):
        self.closed = True


class LoudSeconds:
    """FakeRecogniser: says for each second of speech what it is."""

    def __init__(self, repeats=False):
        self.passes = []
        self.to_text = SpeechToText(self.recognise, "", repeats)

    def recognise(self, samples):
        speech = np.abs(samples[:-TRAIL_SAMPLES]) > 0.1
        self.passes.append(len(samples))
        return f"{round(speech.sum() / 16_000, 1)}s"


def dictated(pattern, ended=lambda: None, silence_s=2.0, after=lambda lost: None, caption=None):
    microphone = PatternMicrophone(pattern, after)
    recogniser = LoudSeconds(repeats=caption is not None)
    dictation = Dictation(microphone, silence_s, caption or (lambda text: None))
    dictation.open()
    found = dictation.listen(VadConfig(), LoudIsSpeech(), recogniser.to_text, ended)
    assert microphone.closed
    return found


def seconds(kind, count):
    return kind * round(count / FRAME_SECONDS)


def test_silence_after_speech_ends_it():
    pattern = seconds("x", 2) + seconds(".", 1) + seconds("x", 1) + seconds(".", 3)
    assert dictated(pattern + seconds("x", 5)).text == "3.0s"


def test_silence_from_the_beginning_ends_it_later():
    found = dictated(seconds(".", 14) + seconds("x", 1) + seconds(".", 3))
    assert found.text == "1.0s"
    found = dictated(seconds(".", 16) + seconds("x", 1))
    assert (found.text, found.problem[:20]) == ("", "Only digital silence")


def test_a_cough_is_not_the_beginning_of_speech():
    assert dictated("x" + seconds(".", 5) + seconds("x", 1) + seconds(".", 3)).text == "1.0s"


def test_the_key_ends_it_after_the_word_that_is_being_spoken():
    at = BEGAN + 1.0
    found = dictated(seconds("x", 5), ended=lambda: at, silence_s=0)
    assert found.text == "1.2s"  # 200 ms more, while speech goes on
    found = dictated(seconds("x", 1) + seconds(".", 5), ended=lambda: BEGAN + 2.0, silence_s=0)
    assert found.text == "1.0s"


def test_a_long_dictation_is_recognised_in_parts_at_its_pauses():
    part = seconds("x", 13) + seconds(".", 1)
    assert dictated(part * 3 + seconds(".", 2)).text == "13.0s 13.0s 13.0s"
    assert dictated(seconds("x", 40) + seconds(".", 3)).text == "25.0s 15.0s"


def test_speech_in_another_language_is_left_out_with_the_reason():
    captions = []

    def recognise(samples):
        raise ForeignSpeech

    dictation = Dictation(PatternMicrophone(seconds("x", 2) + seconds(".", 4)), 2, captions.append)
    dictation.open()
    to_text = SpeechToText(recognise, "", repeats=True)
    found = dictation.listen(VadConfig(), LoudIsSpeech(), to_text, lambda: None)
    assert found.text == "" and not any(captions)
    assert found.problem.startswith("That did not sound like English")


def test_the_caption_comes_before_the_end_and_its_pass_is_not_repeated():
    captions, passes = [], []

    def recognise(samples):
        passes.append(len(samples))
        return "Words."

    dictation = Dictation(PatternMicrophone(seconds("x", 1) + ".."), 0, captions.append)
    dictation.open()
    found = dictation.listen(
        VadConfig(),
        LoudIsSpeech(),
        SpeechToText(recognise, "", repeats=True),
        lambda: BEGAN + 1.0 if captions else None,
    )
    assert (found.text, captions, len(passes)) == ("Words.", ["Words."], 1)


def test_frames_that_wait_come_before_the_next_caption():
    """Otherwise a slow recogniser would fall behind."""
    captions = []
    found = dictated(seconds("x", 5) + seconds(".", 3), caption=captions.append)
    assert (found.text, captions) == ("5.0s", [])


def test_a_microphone_that_is_lost_ends_it_with_what_was_said():
    found = dictated(seconds("x", 1), after=lambda lost: lost("It is gone."))
    assert (found.text, found.problem) == ("1.0s", "It is gone.")


def test_a_microphone_that_stalls_does_not_hold_the_end_back():
    assert dictated(seconds("x", 1), ended=lambda: BEGAN + 60, silence_s=0).text == "1.0s"


def test_a_microphone_that_does_not_open_is_an_error():
    def refuse(lost):
        raise DeviceError("There is no microphone.")

    with pytest.raises(DeviceError):
        Dictation(PatternMicrophone("", refuse), 2.0).open()


def test_control_characters_and_line_breaks_of_a_recogniser_are_removed():
    to_text = SpeechToText(lambda samples: "One\x1b[2J\ntwo.\n", "", repeats=False)
    dictation = Dictation(PatternMicrophone(seconds("x", 1) + seconds(".", 3)), 2.0)
    dictation.open()
    found = dictation.listen(VadConfig(), LoudIsSpeech(), to_text, lambda: None)
    assert found.text == "One[2J two."
