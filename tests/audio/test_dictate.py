"""`voxtui dictate` as people run it: a shell in tmux, a microphone, the real recogniser."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deadline import SECONDS
from tests.virtual_audio import VirtualAudio

pytestmark = [pytest.mark.slow, pytest.mark.audio, pytest.mark.models]

REPOSITORY = Path(__file__).parents[2]
CLIP = REPOSITORY / "assets" / "clips" / "capital-of-france.wav"
WORDS = "What is the capital of France?"


class Shell:
    """A shell in a tmux server of its own, as wide as a terminal of 80 columns."""

    def __init__(self, audio: VirtualAudio, folder: Path) -> None:
        self._tmux = ["tmux", "-S", str(folder / "tmux"), "-f", os.devnull]
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        self._environ = {**audio.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY)}
        # In a shell that an earlier tmux started, its socket is named by TMUX.
        self._environ.pop("TMUX", None)
        self._run("new-session", "-d", "-x", "80", "-y", "24", "env PS1='$ ' bash --norc")
        self.shows("$")

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._tmux, *arguments],
            env=self._environ,
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS,
        )
        return done.stdout

    def types(self, line: str) -> None:
        self._run("send-keys", "-l", line)
        self._run("send-keys", "Enter")

    def presses(self, key: str) -> None:
        self._run("send-keys", key)

    @property
    def screen(self) -> str:
        return self._run("capture-pane", "-p").rstrip()

    def shows(self, text: str) -> None:
        """Wait until the screen shows `text`."""
        poll, waited = threading.Event(), 0.0
        while text not in self.screen:
            assert waited < SECONDS, self.screen
            poll.wait(0.1)
            waited += 0.1

    def close(self) -> None:
        self._run("kill-server")


@pytest.fixture
def shell(virtual_audio: VirtualAudio, tmp_path: Path) -> Iterator[Shell]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    shell = Shell(virtual_audio, tmp_path)
    yield shell
    shell.close()


def test_words_go_into_a_substitution_and_a_pane(shell, virtual_audio):
    shell.types('said="$(voxtui dictate)"; clear; echo "<$said> $?"')
    shell.shows("Speak. Space or Enter ends, Esc drops.")
    assert virtual_audio.say(CLIP).wait() == 0
    shell.shows(WORDS)  # the caption, while it listens
    shell.presses("Space")
    shell.shows(f"<{WORDS}> 0")
    shell.types("clear; voxtui dictate --to tmux --set dictate.silence_s=1.5")
    shell.shows("Speak.")
    assert virtual_audio.say(CLIP).wait() == 0
    shell.shows(f"$ {WORDS}")  # typed at the prompt, after the silence
    shell.presses("C-u")
    shell.types("clear; voxtui dictate --set dictate.silence_s=0; echo code $?")
    shell.shows("Speak.")
    shell.presses("Enter")
    shell.shows("code 3")
    shell.types("clear; voxtui dictate; echo code $?; stty | grep -c -- -icanon")
    shell.shows("Speak.")
    shell.presses("Escape")
    shell.shows("code 130\n0")  # and the terminal is as it was


def test_no_word_is_lost_by_a_microphone_that_sleeps_or_pauses(shell, virtual_audio):
    virtual_audio.stall()
    shell.types('said="$(voxtui dictate)"; clear; echo "<$said>"')
    shell.shows("The microphone is starting")
    threading.Event().wait(2.0)
    assert "Speak." not in shell.screen
    virtual_audio.unstall()
    shell.shows("Speak.")
    assert virtual_audio.say(CLIP, ahead_ms=50).wait() == 0
    shell.shows(WORDS)
    virtual_audio.stall()
    shell.shows("stopped delivering sound")
    virtual_audio.unstall()
    shell.shows("Listening to ")
    assert virtual_audio.say(CLIP).wait() == 0
    shell.shows(f"{WORDS} {WORDS}")
    shell.presses("Space")
    shell.shows(f"<{WORDS} {WORDS}>")


def test_a_desktop_key_begins_and_ends_a_dictation(virtual_audio, tmp_path):
    """The second press brings the words, from a process that the first one started."""
    voxtui = [Path(sys.executable).with_name("voxtui"), "dictate"]
    runtime = {**virtual_audio.environ, "XDG_RUNTIME_DIR": str(tmp_path)}

    def press(*options: str) -> subprocess.CompletedProcess[str]:
        command = [*voxtui, *options]
        return subprocess.run(
            command, env=runtime, capture_output=True, text=True, check=False, timeout=SECONDS
        )

    first = press("--toggle")
    assert (first.returncode, first.stdout) == (0, ""), first.stderr
    assert virtual_audio.say(CLIP).wait() == 0
    second = press("--toggle", "--hook", "tr a-z A-Z")
    assert (second.returncode, second.stdout) == (0, f"{WORDS.upper()}\n"), second.stderr
    third = press("--stop", "--set", "audio.input=none")  # other settings end the process
    assert third.returncode == 2
    assert third.stderr.startswith("Nothing is being dictated.")
