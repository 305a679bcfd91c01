"""Use the example `push_to_talk_app.py` of the openai package as a person does, on virtual sound.

    python -m benchmarks.clients.with_push_to_talk_app PYTHON EXAMPLE URL

PYTHON: that of the client's environment. tmux shows the app on a screen of 100 x 30. This presses
`k`, plays a question into its microphone, and waits until the answer is on the screen. Then it says
how loud the speaker was.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from tests.virtual_audio import VirtualAudio
from voxtui.wiring import target_clips

SCREEN = "voxtui-client"

LAUNCH = """\
import runpy, sys, types
missing = types.ModuleType("openai.types.realtime.session")
missing.Session = object
sys.modules[missing.__name__] = missing
runpy.run_path({name!r}, run_name="__main__")
"""
"""Code that starts the example, which imports a type for an annotation from a module that openai 3
lacks."""

PATIENCE_SECONDS = 60.0

QUIET_SECONDS = 2.0
"""Time after the words until their sound has been played."""


def tmux(*arguments: str) -> str:
    done = subprocess.run(["tmux", "-L", SCREEN, *arguments], capture_output=True, text=True)
    return done.stdout


def until(text: str) -> str:
    """Return the screen once it shows `text`."""
    end = time.monotonic() + PATIENCE_SECONDS
    while text not in (shown := tmux("capture-pane", "-p")):
        if time.monotonic() > end:
            sys.exit(f"{text!r} is not on the screen:\n{shown}")
        time.sleep(0.2)  # a terminal tells nobody when it has changed
    return shown


def main(python: str, example: Path, url: str) -> None:
    with VirtualAudio() as audio:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        env = {**kept, **audio.env, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
        launch = shlex.quote(LAUNCH.format(name=example.name))
        command = f"cd {shlex.quote(str(example.parent))} && exec {python} -c {launch}"
        size = ("-x", "100", "-y", "30")
        keeping = (";", "set-option", "remain-on-exit", "on")  # what it said if it failed
        subprocess.run(
            ["tmux", "-L", SCREEN, "new-session", "-d", "-s", SCREEN, *size, command, *keeping],
            env=env, check=True,
        )  # fmt: skip
        try:
            until("Session ID: sess")
            recorder = audio.record()
            tmux("send-keys", "k")
            until("Recording")
            audio.say(target_clips()[0]).wait()
            print(until("Paris"))  # the microphone goes on: the server listens for the silence
            time.sleep(QUIET_SECONDS)  # the sound comes after the words
            print(f"loudest sample of the speaker: {np.abs(recorder.stop()).max():.2f}")
            tmux("send-keys", "q")
        finally:
            tmux("kill-server")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
