"""A window lends its recogniser on a real socket."""

import errno
import socket
import stat
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest

from tests.audio.sounds import question
from tests.fakes import ScriptedBrain
from tests.ui.pseudo_terminal import PseudoTerminal, until
from voxtui.commands.dictation.lent_recogniser import (
    MOST_SAMPLES,
    borrowed,
    lent,
    runtime_folder,
    settings_of,
)
from voxtui.dialogue.data import Token
from voxtui.errors import ModelError
from voxtui.settings.schema import BrainConfig, Config, EmbeddedBrainConfig

CONFIG = Config()
SOUND = np.full(16_000, 0.25, np.float32)


class Embedded(ScriptedBrain):
    name = "embedded"

    def transcribe(self, utterance, cancelled):
        yield Token(f"{len(utterance.samples)} samples of {utterance.samples[0]}")


def own():
    return lambda samples, cancelled=None: "my own words"


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "voxtui"


def lending(brain=None, config=CONFIG):
    return lent(lambda: brain or Embedded(), lambda: settings_of(config))


def test_a_window_closes_where_a_listening_socket_counts_as_not_connected(monkeypatch):
    shutdown = socket.socket.shutdown

    def not_connected(self, how):
        shutdown(self, how)
        raise OSError(errno.ENOTCONN, "Socket is not connected")

    monkeypatch.setattr(socket.socket, "shutdown", not_connected)
    with lending():
        pass
    assert borrowed(CONFIG, own) is None


def test_a_window_recognises_the_sound_of_others():
    assert borrowed(CONFIG, own) is None
    before = set(threading.enumerate())
    with lending():
        recognise = borrowed(CONFIG, own)
        assert recognise is not None
        assert recognise(SOUND) == "16000 samples of 0.25"
        with lending(ScriptedBrain()):  # a second window lends nothing
            assert recognise(SOUND[:7]) == "7 samples of 0.25"
    assert recognise(SOUND) == "my own words", "the window was closed meanwhile"
    assert borrowed(CONFIG, own) is None
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()


def test_only_the_user_may_ask(folder):
    with lending():
        assert stat.S_IMODE((folder / "recogniser.sock").stat().st_mode) == 0o600
        assert stat.S_IMODE(runtime_folder().stat().st_mode) == 0o700


def test_other_settings_and_other_brains_lend_nothing():
    with lending():
        german = Config(brain=BrainConfig(language="de"))
        assert borrowed(german, own) is None
    with lending(ScriptedBrain()):
        assert borrowed(CONFIG, own) is None

    def loading():
        raise ModelError("No model is loaded.")

    with lent(loading, lambda: settings_of(CONFIG)):
        assert borrowed(CONFIG, own) is None


def test_nonsense_ends_only_its_connection(folder):
    with lending():
        less, more = (
            b'{"settings": "", "samples": %d}\n' % count for count in (-1, MOST_SAMPLES + 1)
        )
        for nonsense in (b"\n", b'{"settings": 3}\n', less, more, b"x" * 70_000, b""):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(folder / "recogniser.sock"))
                with suppress(ConnectionError):  # it closes without reading all
                    connection.sendall(nonsense)
                    connection.shutdown(socket.SHUT_WR)
                    assert connection.recv(10) == b""
        assert borrowed(CONFIG, own) is not None


@pytest.mark.slow
@pytest.mark.models
def test_a_real_window_recognises_the_words_of_an_assistants_user(tmp_path):
    model = "brain.embedded.model=smollm2-135m"
    command = [sys.executable, "-P", "-m", "voxtui", "--set", "brain.name=embedded", "--set", model]
    small = EmbeddedBrainConfig(model="smollm2-135m")
    config = Config(brain=BrainConfig(name="embedded", embedded=small))
    with PseudoTerminal(command, environment={"XDG_RUNTIME_DIR": str(tmp_path)}) as window:
        until(lambda: b"READY" in window.output)
        recognise = borrowed(config, own)
        assert recognise is not None
        assert recognise(question("capital-of-france")) == "What is the capital of France?"
