"""Hold to talk in a real terminal emulator that reports key releases, with real key events.

VOXTUI_PICTURES=DIRECTORY keeps a picture of the window while the key is held, and one after.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ui.pseudo_terminal import ENVIRONMENT, REPOSITORY, until

PROGRAMS = ("kitty", "Xvfb", "xdotool")
LACKING = [program for program in PROGRAMS if shutil.which(program) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(LACKING), reason=f"{', '.join(LACKING)} not installed"),
]

CONFIG = """\
remember_window_size no
initial_window_width 1060
initial_window_height 640
font_size 11
update_check_interval 0
enable_audio_bell no
"""


class Window:
    """The screen in kitty, and a hand on the keyboard of its display."""

    def __init__(self, display: str, log: Path, pictures: Path) -> None:
        self._environment = ENVIRONMENT | {"DISPLAY": display}
        self._log = log
        self._pictures = pictures

    @property
    def calls(self) -> list[list[object]]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [json.loads(line) for line in lines]

    def until(self, name: str, times: int = 1) -> None:
        until(lambda: [call[0] for call in self.calls].count(name) >= times, self.explain)

    def explain(self) -> str:
        return str(self.calls)

    def hand(self, *does: str) -> tuple[float, float]:
        """Run xdotool; return the times before and after."""
        before = time.monotonic()
        subprocess.run(["xdotool", *does], env=self._environment, check=True)
        return before, time.monotonic()

    def picture(self, name: str) -> None:
        """Save a screenshot if ImageMagick is installed."""
        if shutil.which("import") is None:
            return
        target = Path(os.environ.get("VOXTUI_PICTURES") or self._pictures) / f"{name}.png"
        command = ["import", "-window", "root", target]
        subprocess.run(command, env=self._environment, check=True)


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Window]:
    (tmp_path / "kitty.conf").write_text(CONFIG)
    log = tmp_path / "calls"
    with display() as name:
        environment = ENVIRONMENT | {
            "DISPLAY": name,
            "LIBGL_ALWAYS_SOFTWARE": "1",
            "KITTY_CONFIG_DIRECTORY": str(tmp_path),
            "XDG_RUNTIME_DIR": str(tmp_path),
        }
        app = [sys.executable, "-m", "tests.ui.scripted_app", log]
        kitty = subprocess.Popen(
            ["kitty", *app],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        window = Window(name, log, tmp_path)
        try:
            window.until("ready")
            window.until("releases")
            window.hand("search", "--sync", "--onlyvisible", "--class", "kitty", "windowfocus")
            yield window
        finally:
            kitty.terminate()
            kitty.wait()


@contextmanager
def display() -> Iterator[str]:
    """Run an X server and yield the name of its display."""
    reading, writing = os.pipe()
    command = ["Xvfb", "-displayfd", str(writing), "-screen", "0", "1060x640x24"]
    server = subprocess.Popen(
        [*command, "-nolisten", "tcp"],
        pass_fds=[writing],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    with os.fdopen(reading) as answer:
        number = answer.readline().strip()
    try:
        yield f":{number}"
    finally:
        server.terminate()
        server.wait()


def test_a_key_that_is_held_in_kitty_talks_until_it_comes_up(window: Window) -> None:
    down = window.hand("keydown", "space")
    window.until("talk")
    threading.Event().wait(1.2)  # the display repeats a key after 0.66 s
    window.picture("held")
    up = window.hand("keyup", "space")
    window.until("release")
    threading.Event().wait(0.5)
    window.picture("released")
    names = [call[0] for call in window.calls]
    assert (names.count("talk"), names.count("release")) == (1, 1)
    (talk,) = [call[1] for call in window.calls if call[0] == "talk"]
    (release,) = [call[1] for call in window.calls if call[0] == "release"]
    assert isinstance(talk, float) and down[0] <= talk <= down[1] + 0.5
    assert isinstance(release, float) and up[0] <= release <= up[1] + 0.5
    print(f"held {release - talk:.3f} s, {up[0] - down[1]:.3f} to {up[1] - down[0]:.3f} s by hand")  # noqa: T201


def test_each_tap_in_kitty_is_a_separate_talk(window: Window) -> None:
    for count in range(1, 4):
        window.hand("key", "space")
        window.until("release", count)
    assert [call[0] for call in window.calls].count("talk") == 3


def test_a_mouse_button_that_is_held_on_the_bar_talks(window: Window) -> None:
    window.hand("mousemove", "300", "600", "mousedown", "1")
    window.until("talk")
    threading.Event().wait(0.5)
    window.picture("mouse")
    window.hand("mousemove", "300", "100", "mouseup", "1")
    window.until("release")
