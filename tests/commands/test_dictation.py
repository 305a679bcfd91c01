"""Dictation: frames of a microphone become words while they arrive."""

import fcntl
import itertools
import os
import struct
import sys
import termios
import threading
import time

import numpy as np
import pytest

from tests.fakes import LoudIsSpeech, frames
from voxtui.commands.dictation import dictate_command
from voxtui.commands.dictation import dictation as module
from voxtui.commands.dictation.dictate_command import CaptionLine, DictateOptions
from voxtui.commands.dictation.dictation import Dictation
from voxtui.dialogue.components import sound_devices
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import FRAME_SECONDS
from voxtui.dialogue.recording import TRAIL_SAMPLES
from voxtui.errors import DeviceError, ForeignSpeech, ModelError
from voxtui.models import cuda
from voxtui.settings.schema import BrainConfig, Config, VadConfig
from voxtui.wiring import SpeechToText

BEGAN = 1000.0
"""monotonic seconds of the first sample of `frames`"""


class PatternMicrophone:
    """FakeMicrophone: delivers the frames of `pattern` at once, then calls `after`."""

    name, level = "pattern", 0.0

    def __init__(self, pattern, after=lambda lost: None, began=BEGAN):
        self.pattern, self.after, self.began = pattern, after, began
        self.closed = False

    def open(self, sink, lost):
        for frame in frames(self.pattern, self.began):
            sink(frame)
        self.after(lost)

    def close(self):
        self.closed = True


class View:
    """FakeView: collects what a dictation shows."""

    def __init__(self):
        self.captions, self.notices, self.begins = [], [], 0

    def listening(self):
        self.begins += 1

    def caption(self, text):
        self.captions.append(text)

    def notice(self, sentence):
        self.notices.append(sentence)


class OtherMicrophone:
    """FakeSoundSystem: `microphone` is the default one."""

    def __init__(self, microphone):
        self.microphone = microphone

    def default_devices(self):
        return self.microphone, None

    def version(self):
        return None


class LoudSeconds:
    """FakeRecogniser: says for each second of speech what it is."""

    def __init__(self, repeats=False):
        self.passes = []
        self.to_text = SpeechToText(self.recognise, "", repeats)

    def recognise(self, samples):
        speech = np.abs(samples[:-TRAIL_SAMPLES]) > 0.1
        self.passes.append(len(samples))
        return f"{round(speech.sum() / 16_000, 1)}s"


def dictated(pattern, ended=lambda: None, silence_s=2.0, after=lambda lost: None, view=None):
    microphone = PatternMicrophone(pattern, after)
    recogniser = LoudSeconds(repeats=view is not None)
    dictation = Dictation(Devices(microphone), silence_s, view or View())
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


@pytest.mark.parametrize("error", [ForeignSpeech(), ModelError("The server is gone.")])
def test_speech_that_is_not_recognised_loses_no_other_words(error):
    view, left = View(), ["One.", None, "Three."]

    def recognise(samples):
        if (text := left.pop(0)) is None:
            raise error
        return text

    def listen(pattern):
        dictation = Dictation(Devices(PatternMicrophone(pattern)), 2, view)
        dictation.open()
        to_text = SpeechToText(recognise, "", repeats=False)
        return dictation.listen(VadConfig(), LoudIsSpeech(), to_text, lambda: None)

    found = listen((seconds("x", 13) + seconds(".", 1)) * 3 + seconds(".", 2))
    assert (found.text, found.problem) == ("One. Three.", str(error))
    left.append(None)
    with pytest.raises(type(error)):
        listen(seconds("x", 2) + seconds(".", 4))


def test_a_caption_that_fails_is_left_out():
    view, calls = View(), []

    def recognise(samples):
        calls.append(len(samples))
        if len(calls) == 1:
            raise ModelError("The server is busy.")
        return "Words."

    dictation = Dictation(Devices(PatternMicrophone(seconds("x", 1) + "..")), 0, view)
    dictation.open()
    to_text = SpeechToText(recognise, "", repeats=True)
    ended = lambda: BEGAN + 1.0 if calls else None  # noqa: E731
    found = dictation.listen(VadConfig(), LoudIsSpeech(), to_text, ended)
    assert (found.text, found.problem, view.captions) == ("Words.", "", [])


def test_the_caption_comes_before_the_end_and_its_pass_is_not_repeated():
    view, passes = View(), []

    def recognise(samples):
        passes.append(len(samples))
        return "Words."

    dictation = Dictation(Devices(PatternMicrophone(seconds("x", 1) + "..")), 0, view)
    dictation.open()
    found = dictation.listen(
        VadConfig(),
        LoudIsSpeech(),
        SpeechToText(recognise, "", repeats=True),
        lambda: BEGAN + 1.0 if view.captions else None,
    )
    assert (found.text, view.captions, len(passes)) == ("Words.", ["Words."], 1)


def test_live_words_are_a_draft_where_a_careful_recogniser_has_the_last_word():
    careful, quick = LoudSeconds(), LoudSeconds()
    to_text = SpeechToText(
        lambda samples: f"carefully {careful.recognise(samples)}", "", True, draft=quick.recognise
    )
    pressed = threading.Event()
    view = View()
    view.caption = lambda text: (view.captions.append(text), pressed.set())
    microphone = PatternMicrophone(seconds("x", 2) + seconds(".", 0.4))
    dictation = Dictation(Devices(microphone), 0.0, view)
    dictation.open()
    ended = lambda: BEGAN if pressed.is_set() else None  # noqa: E731
    found = dictation.listen(VadConfig(), LoudIsSpeech(), to_text, ended)
    assert view.captions == ["2.0s"]
    assert (found.text, len(careful.passes)) == ("carefully 2.0s", 1)


def test_what_cannot_be_recognised_is_refused_before_anybody_speaks(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        dictate_command.wiring, "microphone_alone", lambda config: pytest.fail("opened")
    )
    monkeypatch.setattr(cuda, "is_likely", lambda: False)
    for name, order in itertools.product(("embedded", "auto"), (None, "start")):
        config = Config(brain=BrainConfig(name=name, language="es"))
        with pytest.raises(ModelError, match="is Spanish"):
            if order:
                dictate_command.run_order(order, config, DictateOptions(), [])
            else:
                dictate_command.run(config, DictateOptions())


def test_frames_that_wait_come_before_the_next_caption():
    """Otherwise a slow recogniser would fall behind."""
    view = View()
    found = dictated(seconds("x", 5) + seconds(".", 3), view=view)
    assert (found.text, view.captions) == ("5.0s", [])


class LosesOnce(PatternMicrophone):
    """FakeMicrophone: is lost after its frames, the first `losses` times that it is opened."""

    def __init__(self, *patterns, losses=1):
        super().__init__("", began=time.monotonic() - 60)
        self.patterns, self.losses = list(patterns), losses

    def open(self, sink, lost):
        self.pattern = self.patterns.pop(0) if self.patterns else ""
        super().open(sink, lost)
        self.losses -= 1
        if self.losses >= 0:
            lost("It is gone.")


def test_a_microphone_that_is_lost_is_opened_again(monkeypatch):
    """By SoundDevices, as in the window: first the default one, then once a second."""
    monkeypatch.setattr(sound_devices, "LOOK_SECONDS", 0)
    first = LosesOnce(seconds("x", 1), seconds(".", 1) + seconds("x", 1) + seconds(".", 3))
    second = LosesOnce("")
    view = View()
    dictation = Dictation(Devices(first, system=OtherMicrophone(second)), 2.0, view)
    dictation.open()
    to_text = LoudSeconds().to_text
    found = dictation.listen(VadConfig(), LoudIsSpeech(), to_text, lambda: None)
    assert (found.text, found.problem, view.begins) == ("2.0s", "It is gone.", 2)
    assert view.notices == [
        "It is gone.", "Listening to pattern now.", "It is gone.", "Listening to pattern again."
    ]  # fmt: skip


def test_a_microphone_that_stays_lost_ends_it_with_what_was_said(monkeypatch):
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.3)
    dictation = Dictation(
        Devices(LosesOnce(seconds("x", 1)), system=OtherMicrophone(LosesOnce(""))), 2.0, View()
    )
    dictation.open()
    to_text = LoudSeconds().to_text
    found = dictation.listen(VadConfig(), LoudIsSpeech(), to_text, lambda: None)
    assert (found.text, found.problem) == ("1.0s", "It is gone.")


def test_speech_before_a_key_that_comes_early_is_recognised():
    """The key may come while the recogniser still loads, before the first frame is taken."""
    pattern = seconds(".", 1) + seconds("x", 1) + seconds(".", 1)
    assert dictated(pattern, ended=lambda: BEGAN + 2.5, silence_s=0).text == "1.0s"


def test_speaking_begins_with_the_first_sample():
    view, deliver = View(), threading.Event()

    class Wakes(PatternMicrophone):
        def open(self, sink, lost):
            def wake():
                deliver.wait()
                PatternMicrophone.open(self, sink, lost)

            self.thread = threading.Thread(target=wake)
            self.thread.start()

    microphone = Wakes(seconds("x", 1) + seconds(".", 3))
    dictation = Dictation(Devices(microphone), 2.0, view)
    dictation.open()
    assert not view.begins
    deliver.set()
    to_text = LoudSeconds().to_text
    assert dictation.listen(VadConfig(), LoudIsSpeech(), to_text, lambda: None).text == "1.0s"
    assert view.begins == 1
    microphone.thread.join()


def test_a_microphone_without_a_sample_is_the_reason(monkeypatch):
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.3)
    assert dictated("").problem == "The microphone 'pattern' has delivered no sound."


def test_a_microphone_that_stalls_does_not_hold_the_end_back():
    assert dictated(seconds("x", 1), ended=lambda: BEGAN + 60, silence_s=0).text == "1.0s"


def test_a_microphone_that_does_not_open_is_an_error():
    def refuse(lost):
        raise DeviceError("There is no microphone.")

    with pytest.raises(DeviceError):
        Dictation(Devices(PatternMicrophone("", refuse)), 2.0, View()).open()


def test_control_characters_and_line_breaks_of_a_recogniser_are_removed():
    to_text = SpeechToText(lambda samples: "One\x1b[2J\ntwo.\n", "", repeats=False)
    microphone = PatternMicrophone(seconds("x", 1) + seconds(".", 3))
    dictation = Dictation(Devices(microphone), 2.0, View())
    dictation.open()
    found = dictation.listen(VadConfig(), LoudIsSpeech(), to_text, lambda: None)
    assert found.text == "One[2J two."


@pytest.mark.parametrize("keys", [b"\x1b", b"\x1b\x1b", b"\x1b\r", b"a\x1b[A\x1b"])
def test_escape_drops_whatever_is_read_with_it(keys):
    with pytest.raises(KeyboardInterrupt):
        dictate_command.ended(lambda: keys)


@pytest.mark.parametrize(("keys", "ends"), [(b"\x1b[A", False), (b"x", False), (b"\x1b[A\r", True)])
def test_a_key_of_several_bytes_is_no_escape(keys, ends):
    assert (dictate_command.ended(lambda: keys) is not None) == ends


PROMPT = "Speak. Space or Enter ends, Esc drops."


class LineOfATerminal:
    """FakeStderr: a terminal of so many columns, which keeps what was written."""

    def __init__(self, columns):
        self.written, self._here = "", os.openpty()
        fcntl.ioctl(self._here[0], termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def isatty(self):
        return True

    def fileno(self):
        return self._here[1]

    def close(self):
        for end in self._here:
            os.close(end)

    def write(self, text):
        self.written += text

    def flush(self):
        pass

    @property
    def line(self):
        return self.written.rpartition("\r\x1b[K")[2]


@pytest.mark.parametrize(
    ("columns", "line", "caption"),
    [
        (
            80,
            f"{PROMPT} Then Whisper may take seconds.",
            "one two three four five six seven 漢字漢",
        ),
        (40, f"{PROMPT} ", "ne two three four five six seven 漢字漢"),
    ],
)
def test_a_narrow_terminal_shows_the_beginning_of_the_prompt_and_the_end_of_the_words(
    monkeypatch, columns, line, caption
):
    terminal = LineOfATerminal(columns)
    monkeypatch.setattr(sys, "stderr", terminal)
    shown = CaptionLine(f"{PROMPT} Then Whisper may take seconds.", quiet=False)
    shown.listening()
    assert terminal.line == line
    shown.caption("one two three four five six seven 漢字漢")
    assert terminal.line == caption
    terminal.close()
