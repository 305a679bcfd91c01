"""`voxtui say` as people run it: real voice, real speaker, real recogniser."""

import os
import re
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.deadline import SECONDS
from voxtui.cli import INTERRUPTED
from voxtui.dialogue.data import AUDIBLE

pytestmark = [pytest.mark.slow, pytest.mark.models]

VOXTUI = Path(sys.executable).with_name("voxtui")
TEXT = """\
NAME

       The ship leaves the city early in the morning, and it reaches the
       island before noon. Please bring a warm coat with you.
"""


def words(text):
    return re.findall(r"[a-z]+", text.lower())


def test_speech_in_a_file_is_recognised_again(tmp_path):
    """A bold heading, a wrapped line, two sentences: every word of them arrives."""
    wav = tmp_path / "said.wav"
    page = TEXT.replace("NAME", "N\bNA\bAM\bME\bE")
    subprocess.run([VOXTUI, "say", "-o", wav], input=page, text=True, check=True)
    heard = subprocess.run([VOXTUI, "transcribe", wav], capture_output=True, text=True, check=True)
    assert words(heard.stdout) == words(TEXT)


@pytest.mark.audio
def test_ctrl_c_silences_a_long_text_at_once(virtual_audio, tmp_path):
    (tmp_path / "long.txt").write_text("This sentence is spoken again and again. " * 1000)
    with virtual_audio.record() as recorder:
        command = [VOXTUI, "say", tmp_path / "long.txt"]
        stacks = os.environ | {"PYTHONFAULTHANDLER": "1"}  # SIGABRT: stacks, in native.log
        speaking = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=stacks,
            # Tests that run in the background of a script have it ignored.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        poll = threading.Event()
        while not np.any(np.abs(recorder.samples) > AUDIBLE):
            assert speaking.poll() is None, speaking.communicate()
            poll.wait(0.05)
        before = recorder.seconds
        speaking.send_signal(signal.SIGINT)
        try:
            _, err = speaking.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            speaking.send_signal(signal.SIGABRT)
            pytest.fail(f"It did not end:\n{speaking.communicate()[1]}")
        recorder.until(recorder.began_at + before + 2.0)
        sound = recorder.samples[round(before * 48_000) :]
    assert (speaking.returncode, err.strip()) == (INTERRUPTED, "")
    audible = np.flatnonzero(np.abs(sound) > AUDIBLE)
    assert len(audible) == 0 or audible[-1] < 0.5 * 48_000
