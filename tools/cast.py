"""Record the program while it hears and answers sample clips, as an asciinema cast.

    python -m tools.cast turn.cast [--size 80x24] [--clips short-joke] [--tree TREE] [--set K=V]
    python -m tools.animation turn.cast assets/turn.gif     (or picture.png: how it ends)

It runs with the default models on a virtual sound server and on a terminal that reports key
releases. Space is held while the microphone hears a clip. `--tree`: the root of another version.
`--pictures PREFIX`: the terminal then takes each of SIZES, and a PNG of each is drawn.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyte

from tests.ui.pseudo_terminal import PseudoTerminal
from tests.virtual_audio import VirtualAudio
from tools.animation import lines_of, picture_of, reduced

HERE = Path(__file__).parents[1]
CLIPS = HERE / "assets/clips"
DOWN, UP = "\x1b[32;1:1;32u", "\x1b[32;1:3u"
RELEASED_SECONDS = 0.2
"""Seconds from the end of a clip to the release of the key."""
BETWEEN_SECONDS = 1.5
"""Seconds in which a reader sees what stands there."""
READY = b"READY"
NOISE = np.random.default_rng(0).normal(0, 1e-3, 16_000 * 120).astype(np.float32)
"""Two minutes of a room at -60 dBFS: a microphone that delivers zeros counts as muted."""
SIZES = ((60, 16), (80, 24), (120, 40), (200, 60))
PAINTING_SECONDS = 1.5
"""Seconds until everything is painted in a new size."""
PROTOCOL = re.compile(r"\x1b\[[<>=?][\d;]*u|\x1b\[5n")
"""Questions to the terminal about its keyboard; players of casts print some of them."""


class RecordedTerminal(PseudoTerminal):
    """Notes when it received which bytes."""

    def __init__(self, command: list[str], size: tuple[int, int], **other: object) -> None:
        self._received: list[tuple[float, int]] = []
        self._size, self._began = size, time.time()
        self._clock = time.monotonic()
        super().__init__(command, size=size, **other)  # type: ignore[arg-type]

    def _obey(self) -> None:
        self._received.append((time.monotonic() - self._clock, len(self.output)))
        super()._obey()

    def cast(self) -> str:
        """Return what was shown so far as asciicast version 2."""
        width, height = self._size
        header = {"version": 2, "width": width, "height": height, "timestamp": int(self._began)}
        lines, begin, rest = [json.dumps(header)], 0, b""
        for at, end in self._received:
            data = rest + bytes(self.output[begin:end])
            text = data.decode(errors="ignore")
            rest, begin = data[len(text.encode()) :], end  # half a character
            if text := PROTOCOL.sub("", text):
                lines.append(json.dumps([round(at, 3), "o", text], ensure_ascii=False))
        return "\n".join([*lines, ""])

    def shows(self, what: bytes, since: int = 0) -> None:
        self.until(lambda: what in self.output[since:])


def converse(terminal: RecordedTerminal, audio: VirtualAudio, clips: list[str]) -> None:
    """Say each clip with Space held, and wait for the end of its answer."""
    terminal.shows(READY)
    for clip in clips:
        time.sleep(BETWEEN_SECONDS)  # for the reader
        since = len(terminal.output)
        terminal.send(DOWN)
        terminal.shows(b"LISTENING", since)
        audio.say(CLIPS / f"{clip}.wav").wait()
        time.sleep(RELEASED_SECONDS)  # as a person lets go
        since = len(terminal.output)
        terminal.send(UP)
        terminal.shows(READY, since)
    time.sleep(BETWEEN_SECONDS)  # for the reader


def draw(terminal: RecordedTerminal, prefix: str) -> None:
    """Draw the screen in each of SIZES."""
    for columns, rows in SIZES:
        since = len(terminal.output)
        terminal.resize(columns, rows)
        time.sleep(PAINTING_SECONDS)  # no byte tells that all is painted
        screen = pyte.Screen(columns, rows)
        text = bytes(terminal.output[since:]).decode(errors="ignore")
        pyte.Stream(screen).feed(PROTOCOL.sub("", text))
        picture = reduced(picture_of(lines_of(screen), columns))
        picture.save(f"{prefix}-{columns}x{rows}.png", optimize=True)


def record(
    size: tuple[int, int], clips: list[str], tree: Path, settings: list[str], pictures: str
) -> str:
    """Return a cast of a conversation about `clips`."""
    with VirtualAudio() as audio, tempfile.TemporaryDirectory() as home:
        folders = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
        environment = {**audio.env, **dict.fromkeys(folders, home), "COLORTERM": "truecolor"}
        environment |= {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
        command = [sys.executable, "-m", "voxtui"]
        for setting in settings:
            command += ["--set", setting]
        outside = Path(home)  # older versions read ./config.toml
        noise = audio.say(NOISE)
        with RecordedTerminal(
            command, size, environment=environment, directory=outside
        ) as terminal:
            converse(terminal, audio, clips)
            cast = terminal.cast()
            if pictures:
                draw(terminal, pictures)
            terminal.send("\x11")
            terminal.ends()
        noise.terminate()
        noise.wait()
    return cast


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("out", type=Path)
    options.add_argument("--size", default="80x24")
    options.add_argument("--clips", default="capital-of-france,blue-sky")
    options.add_argument("--tree", type=Path, default=HERE)
    options.add_argument("--pictures", default="", metavar="PREFIX")
    options.add_argument("--set", dest="settings", action="append", default=[])
    given = options.parse_args()
    columns, rows = map(int, given.size.split("x"))
    clips, tree = given.clips.split(","), given.tree.resolve()
    cast = record((columns, rows), clips, tree, given.settings, given.pictures)
    given.out.write_text(cast)


if __name__ == "__main__":
    main()
