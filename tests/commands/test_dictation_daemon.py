"""The process behind `voxtui dictate --start`, on a thread of this one."""

import os
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from tests.commands.test_dictation import PatternMicrophone, seconds
from tests.deadline import SECONDS
from tests.fakes import LoudIsSpeech, ScriptedBrain
from tests.ui.pseudo_terminal import until
from voxtui.commands.dictation import dictation_daemon
from voxtui.commands.dictation.dictation_daemon import (
    fingerprint,
    give_order,
    listening,
    runtime_folder,
    serve,
)
from voxtui.commands.dictation.lent_recogniser import lent, settings_of
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import Token
from voxtui.errors import DeviceError, InputError, ModelError
from voxtui.settings.schema import AudioConfig, Config, DictateConfig
from voxtui.wiring import SpeechToText


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """Give a runtime folder, a microphone with a second of speech, and a recogniser."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(dictation_daemon.wiring, "build_detector", lambda config: LoudIsSpeech())
    opened = []

    def microphone_alone(config):
        pattern = seconds("x", 1) + seconds(".", 0.1)
        opened.append(PatternMicrophone(pattern, began=time.monotonic() - 2))
        return Devices(opened[-1])

    @contextmanager
    def recogniser(config, notify, careful=False):
        yield SpeechToText(lambda samples: "What was said.", "", repeats=False)

    monkeypatch.setattr(dictation_daemon.wiring, "microphone_alone", microphone_alone)
    monkeypatch.setattr(dictation_daemon.wiring, "recogniser", recogniser)
    monkeypatch.setattr(dictation_daemon, "play_cue", lambda config: None)
    return opened


@pytest.fixture
def order(monkeypatch):
    """Give an order as `voxtui dictate` does. The process that it starts is a thread here."""
    threads = []

    class ThreadProcess:
        """FakePopen: runs `serve` with the configuration in place of the command."""

        returncode = 0

        def __init__(self, config, **ignored):
            self.thread = threading.Thread(target=serve, args=(config,), name="voxtui-resident")
            self.thread.start()
            threads.append(self.thread)

        def poll(self):
            return None if self.thread.is_alive() else 0

    monkeypatch.setattr(dictation_daemon.subprocess, "Popen", ThreadProcess)
    give = lambda what, config=Config(): give_order(what, config, config)  # noqa: E731, B008
    give.threads = threads
    yield give
    monkeypatch.setattr(dictation_daemon, "fingerprint", lambda config: "other")
    if any(thread.is_alive() for thread in threads):  # other settings end an idle process
        give_order("stop", Config(), Config())
        give_order("stop", Config(), Config())


def test_a_recording_begins_ends_and_returns_its_words(order, machine):
    assert order("start")[0] == "listening"
    state, dictated = order("stop")
    assert (state, dictated.text) == ("heard", "What was said.")
    assert [microphone.closed for microphone in machine] == [True]
    assert order("stop")[0] == "idle"


def test_two_starts_are_one_recording_in_one_process(order, machine):
    assert [order("start")[0], order("start")[0]] == ["listening", "listening"]
    assert (len(machine), len(order.threads)) == (1, 1)
    assert order("stop")[1].text == "What was said."


def test_the_words_of_a_forgotten_recording_wait_for_the_next_order(order, machine, monkeypatch):
    monkeypatch.setattr(dictation_daemon, "FORGOTTEN_SECONDS", 0.2)
    monkeypatch.setattr(dictation_daemon, "IDLE_SECONDS", 0.2)
    use_microphone(monkeypatch, machine, seconds("x", 1) + seconds(".", 1))
    for again in ("stop", "start"):
        order("start")
        until(lambda: machine[-1].closed)
        order.threads[0].join(1.0)  # it would end now, with the words
        assert order(again)[1].text == "What was said."
    assert (len(machine), len(order.threads)) == (2, 1)


def test_a_second_process_ends_at_once(order):
    order("start")
    serve(Config())
    assert order("stop")[0] == "heard"


def test_toggle_begins_and_ends_again_and_again(order, machine):
    states = [order("toggle")[0] for _ in range(4)]
    assert states == ["listening", "heard", "listening", "heard"]
    assert (len(machine), len(order.threads)) == (2, 1)


def test_stop_starts_no_process(order):
    assert order("stop")[0] == "idle"
    assert order.threads == []


def test_the_socket_of_a_killed_process_is_replaced(order):
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(runtime_folder() / "dictate.sock"))
    assert order("start")[0] == "listening"
    assert order("stop")[1].text == "What was said."


def test_other_settings_replace_an_idle_process_but_end_no_recording(order):
    other = Config(audio=AudioConfig(input="Other"))
    order("start")
    assert order("start", other)[0] == "listening"
    assert order("stop", other)[1].text == "What was said."
    assert order("start", other)[0] == "listening"
    first, *others = order.threads
    first.join(SECONDS)
    # A process that starts before the first has ended returns at once; then one more is started.
    assert others and not first.is_alive()
    order("stop", other)


def test_what_happens_to_the_words_is_no_setting_of_the_process():
    assert fingerprint(Config(dictate=DictateConfig(hook="cat"))) == fingerprint(Config())


def test_nonsense_on_the_socket_changes_nothing(order):
    order("start")
    for nonsense in (b"", b"{}\n", b"\xff\n", b'{"order": "quit", "settings": ""}\n'):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(SECONDS)
            connection.connect(str(runtime_folder() / "dictate.sock"))
            connection.sendall(nonsense)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
    assert order("stop")[1].text == "What was said."


def test_a_microphone_that_does_not_open_is_the_answer_to_the_start(order, monkeypatch):
    class Gone(PatternMicrophone):
        def open(self, sink, lost):
            raise DeviceError("There is no microphone.")

    gone = lambda config: Devices(Gone(""))  # noqa: E731
    monkeypatch.setattr(dictation_daemon.wiring, "microphone_alone", gone)
    with pytest.raises(InputError, match="There is no microphone"):
        order("start")
    assert order("stop")[0] == "idle"


def test_a_microphone_without_a_sample_is_the_answer_to_the_start(order, monkeypatch):
    """`Listening` is said once one may speak."""
    silent = lambda config: Devices(PatternMicrophone(""))  # noqa: E731
    monkeypatch.setattr(dictation_daemon.wiring, "microphone_alone", silent)
    monkeypatch.setattr(dictation_daemon, "SILENT_SECONDS", 0.1)
    with pytest.raises(InputError, match="has delivered no sound"):
        order("start")
    assert order("stop")[0] == "idle"


def test_words_are_there_if_the_recording_ends_while_the_recogniser_loads(order, monkeypatch):
    loads = threading.Event()

    @contextmanager
    def recogniser(config, notify, careful=False):
        assert loads.wait(SECONDS)
        yield SpeechToText(lambda samples: "What was said.", "", repeats=False)

    monkeypatch.setattr(dictation_daemon.wiring, "recogniser", recogniser)
    order("start")
    threading.Timer(0.3, loads.set).start()
    assert order("stop")[1].text == "What was said."


def test_a_process_that_cannot_start_is_an_error():
    with pytest.raises(InputError, match="did not start"):
        give_order("start", Config(), ["false"])


def test_only_this_user_may_enter_the_folder(tmp_path):
    assert runtime_folder().stat().st_mode & 0o777 == 0o700
    os.chmod(tmp_path / "voxtui", 0o750)
    with pytest.raises(InputError, match="other users may enter it"):
        runtime_folder()
    (tmp_path / "voxtui").rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "voxtui").symlink_to("elsewhere")
    with pytest.raises(InputError, match="other users may enter it"):
        runtime_folder()


def test_without_a_runtime_directory_the_folder_is_in_the_home(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert runtime_folder() == tmp_path / "state" / "voxtui" / "run"


@pytest.fixture
def listen(order, machine, monkeypatch):
    """Listen for one utterance as `voxtui mcp` does."""

    def listen(seconds=60.0):
        return listening(Config(), seconds, Config())

    use_microphone(monkeypatch, machine, seconds(".", 0.5) + seconds("x", 1) + seconds(".", 0.9))
    return listen


def use_microphone(monkeypatch, machine, pattern):
    def microphone_alone(config):
        machine.append(PatternMicrophone(pattern, began=time.monotonic() - 3))
        return Devices(machine[-1])

    monkeypatch.setattr(dictation_daemon.wiring, "microphone_alone", microphone_alone)


never = threading.Event()


def test_an_assistant_gets_the_words_of_a_window_and_loads_no_recogniser(listen, monkeypatch):
    class Embedded(ScriptedBrain):
        name = "embedded"

        def transcribe(self, utterance, cancelled):
            yield Token("The window heard it.")

    monkeypatch.setattr(dictation_daemon.wiring, "recogniser", lambda *ignored, **also: 1 / 0)
    with lent(Embedded, lambda: settings_of(Config())), listen() as words:
        assert words(never).text == "The window heard it."


def test_one_utterance_is_recorded_until_its_pause(listen, order, machine):
    for _ in range(2):
        with listen() as words:
            assert words(never).text == "What was said."
    assert [microphone.closed for microphone in machine] == [True, True]
    assert len(order.threads) == 1
    assert order("stop")[0] == "idle"  # the words went to the one who listened


def test_the_microphone_closes_after_the_longest_time(listen, machine, monkeypatch):
    use_microphone(monkeypatch, machine, seconds("x", 1))
    with listen(0.2) as words:
        assert words(never).text == "What was said."
    assert machine[0].closed


def test_the_microphone_closes_when_the_listener_leaves(listen, order, machine, monkeypatch):
    use_microphone(monkeypatch, machine, ".")
    with listen() as words:
        cancelled = threading.Event()
        cancelled.set()
        assert words(cancelled).text == ""
    until(lambda: machine[0].closed)
    until(lambda: order("stop")[0] == "idle")


def test_a_dictation_and_a_listener_do_not_share_the_microphone(
    listen, order, machine, monkeypatch
):
    order("start")
    with pytest.raises(InputError, match="voxtui dictate --stop"), listen():
        pass
    order("stop")
    use_microphone(monkeypatch, machine, ".")
    with listen():
        for forbidden in ("start", "stop", "toggle"):
            with pytest.raises(InputError, match="voxtui mcp"):
                order(forbidden)
        with pytest.raises(InputError, match="voxtui mcp"), listen():
            pass
    until(lambda: machine[-1].closed)


def test_a_microphone_that_does_not_open_is_the_answer_to_the_listener(listen, monkeypatch):
    class Lost(PatternMicrophone):
        def open(self, sink, lost):
            raise DeviceError("There is no microphone.")

    lost = lambda config: Devices(Lost(""))  # noqa: E731
    monkeypatch.setattr(dictation_daemon.wiring, "microphone_alone", lost)
    with pytest.raises(InputError, match="There is no microphone"), listen():
        pass


def test_a_recogniser_that_fails_is_an_error_of_the_listener(listen, monkeypatch):
    @contextmanager
    def recogniser(config, notify, careful=False):
        raise ModelError("The model is damaged.")
        yield

    monkeypatch.setattr(dictation_daemon.wiring, "recogniser", recogniser)
    with listen() as words, pytest.raises(InputError, match="The model is damaged"):
        words(never)
