"""Film an afternoon with the tools as text: voxtui in tmux, spoken to on a virtual sound server.

    python -m tools.afternoon FILM.md --time-server /path/to/mcp-server-time

It needs tmux, PulseAudio, the default models and the extras `mcp` and `calendar`. A coding
assistant, which is the official client of the protocol, speaks and listens through `voxtui mcp`.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

from tests.audio.sounds import find
from tests.virtual_audio import RATE, Recorder, VirtualAudio
from voxtui.audio.chime import cue

VOXTUI = [sys.executable, "-P", "-m", "voxtui"]
SIZE = ("-x", "100", "-y", "30")
LONGEST_SECONDS = 240.0

CONFIG = """\
[tools]
notes_file = "{home}/notes.md"
calendar_file = "{home}/calendar.ics"

[[tools.command]]
name = "lights"
sentence = "turn the {{room}} lights {{state}}"
arguments = {{ room = ["kitchen", "bedroom"], state = ["on", "off"] }}
run = ["touch", "{home}/{{room}}-{{state}}"]
says = "The {{room}} lights are {{state}}."

[[mcp.server]]
name = "time"
command = "{server}"
args = ["--local-timezone", "Europe/Berlin"]
[[mcp.server.examples]]
say = "When it's noon in Berlin, what's the time in Lima?"
tool = "convert_time"
[mcp.server.examples.arguments]
source_timezone = "Europe/Berlin"
time = "12:00"
target_timezone = "America/Lima"
"""

CALENDAR = """\
BEGIN:VCALENDAR
VERSION:2.0
PRODID:film
BEGIN:VEVENT
UID:1
DTSTART:{day}T093000
SUMMARY:Dentist
END:VEVENT
BEGIN:VEVENT
UID:2
DTSTART:{day}T180000
SUMMARY:Choir
END:VEVENT
END:VCALENDAR
"""

ASSISTANT = """\
import asyncio, os, sys
from mcp import Client, StdioServerParameters

async def main():
    command, *arguments = sys.argv[1:]
    server = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    async with Client(server) as voxtui:
        question = {"text": "The tests are green. Shall I commit?"}
        result = await voxtui.call_tool("converse", question)
        print("converse:", result.content[0].text)
        result = await voxtui.call_tool("speak", {"text": "Committed."})
        print("speak:", result.content[0].text)

asyncio.run(main())
"""

SPOKEN = (
    ("Remember that the piano tuner comes on Thursday.", "", r"Noted: .*Thursday"),
    ("Turn the kitchen lights off.", "lights", r"The kitchen lights are off"),
    ("What's on my calendar tomorrow?", "", r"18:00, Choir"),
    ("When it's nine in Berlin, what time is it in Lima?", "time_convert", r"Lima · \d+ m?s"),
    ("What's in my notes?", "", r"Vox  The piano tuner comes on Thursday"),
)
"""Words, the tool whose call a key confirms, and what the screen then shows."""


class Window:
    """voxtui in a tmux of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._tmux = ["tmux", "-L", f"afternoon-{os.getpid()}", "-f", "/dev/null"]
        exported = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
        command = f"env {exported} {shlex.join(VOXTUI)}"
        self("new-session", "-d", *SIZE, "-c", str(folder), command)

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run([*self._tmux, *arguments], capture_output=True, text=True)
        return done.stdout

    def picture(self) -> str:
        lines = [line.rstrip() for line in self("capture-pane", "-p").splitlines()]
        return "\n".join(lines).strip("\n")

    def until(self, pattern: str) -> None:
        deadline = time.monotonic() + LONGEST_SECONDS
        while not re.search(pattern, self.picture(), re.MULTILINE):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{pattern} was not shown:\n{self.picture()}")
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("film", type=Path)
    parser.add_argument("--time-server", required=True)
    options = parser.parse_args()
    film: list[str] = []
    with tempfile.TemporaryDirectory() as name, VirtualAudio() as audio:
        home = Path(name)
        tomorrow = date.today() + timedelta(days=1)
        (home / "config").mkdir()
        (home / "config" / "voxtui").mkdir()
        (home / "config" / "voxtui" / "config.toml").write_text(
            CONFIG.format(home=home, server=options.time_server)
        )
        (home / "calendar.ics").write_text(CALENDAR.format(day=f"{tomorrow:%Y%m%d}"))
        (home / "assistant.py").write_text(ASSISTANT)
        folders = {"XDG_CONFIG_HOME": f"{home}/config", "XDG_DATA_HOME": f"{home}/data",
                   "XDG_STATE_HOME": f"{home}/state"}  # fmt: skip
        environment = {**audio.env, **folders}
        run = {**os.environ, **environment}
        allow = [*VOXTUI, "tools", "allow", "time", "convert_time"]
        subprocess.run(allow, env=run, check=True, input=b"k\n", capture_output=True)
        for number, (words, *_) in enumerate((*SPOKEN, ("Yes, commit it.", "", ""))):
            say = [*VOXTUI, "say", "--text", words, "-o", str(home / f"{number}.wav")]
            subprocess.run(say, env=run, check=True, capture_output=True)
        window = Window(home, environment)
        try:
            window.until("READY|Ready")
            for number, (words, tool, shown) in enumerate(SPOKEN):
                window("send-keys", "Space")
                time.sleep(3.0)
                audio.say(home / f"{number}.wav").wait()
                time.sleep(3.0)  # a busy machine hears late
                window("send-keys", "Space")
                if tool:
                    window.until(f"Enter: run .{tool}")
                    time.sleep(2.0)  # a key right after the question counts as a stray one
                    film += [f"You say “{words}”", *pictured(window)]
                    window("send-keys", "Enter")
                window.until(shown)
                window.until("READY")
                film += ["You press Enter." if tool else f"You say “{words}”", *pictured(window)]
            with audio.record() as recorder:
                command = [sys.executable, str(home / "assistant.py"), *VOXTUI, "mcp"]
                assistant = subprocess.Popen(command, env=run, stdout=subprocess.PIPE, text=True)
                until_cue(recorder)
                audio.say(home / f"{len(SPOKEN)}.wav").wait()
                told, _ = assistant.communicate(timeout=LONGEST_SECONDS)
            film += [
                "A coding assistant asks “The tests are green. Shall I commit?” aloud, and you say "
                "“Yes, commit it.” It prints:",
                fenced(told.strip()),
                "The notes, and what the command of the lights wrote:",
                fenced((home / "notes.md").read_text() + "\n".join(names(home))),
            ]
        finally:
            window("kill-server")
    options.film.write_text("\n\n".join(film) + "\n")


def names(home: Path) -> list[str]:
    return sorted(path.name for path in home.glob("*-off"))


def pictured(window: Window) -> list[str]:
    """Return the screen from the newest turn on."""
    picture = window.picture()
    return [fenced(re.sub(r"\n{3,}", "\n\n", picture[picture.rfind("      You  ") :]))]


def fenced(text: str) -> str:
    return f"```\n{text}\n```"


def until_cue(recorder: Recorder) -> None:
    """Wait until the microphone has opened for the assistant."""
    sound = cue(RATE).samples
    deadline = time.monotonic() + LONGEST_SECONDS
    while len(recorder.samples) <= len(sound) or find(sound, recorder.samples)[1] < 0.8:
        if time.monotonic() > deadline:
            raise TimeoutError("no cue was heard")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
