r"""Drive the page of `voxtui serve` in Chromium or Firefox without a screen.

    python -m benchmarks.page [--turns 10] [--browser firefox] [--transport webrtc] [--by tap] \
        [--pictures DIRECTORY] [--json OUT] [-- serve options]

It needs `chromium`, or `firefox-esr` and `pulseaudio` (apt-get install). The server runs as a
process. A sample clip is spoken while Space or a finger is held, or between two taps of a finger;
or its question is written. Each turn prints the page's own table; the last one is interrupted.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.browsers import BROWSERS, Tab
from voxtui.storage.derived_latencies import percentile

TABLE = """({
  sound: document.getElementById('first-sound').title,
  word: document.getElementById('first-word').textContent,
  answer: document.getElementById('full-answer').textContent,
  stages: [...document.querySelectorAll('#stages tr')].map(row => [row.cells[0].title,
    row.cells[2].textContent]),
  words: [...document.querySelectorAll('#words li')].map(line => line.innerText),
  problem: document.getElementById('problem').textContent,
})"""


@contextmanager
def served(options: list[str]) -> Iterator[str]:
    """Run the server; yield the address of its page."""
    command = [sys.executable, "-m", "voxtui", "serve", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(2)]
            found = re.search(r"https?://\S+", lines[1])
            if not found:
                raise RuntimeError("The server did not start.")
            yield found[0]
        finally:
            process.terminate()


def ms(text: str) -> float | None:
    number, _, unit = text.partition(" ")
    return None if number == "–" else float(number) * (1000 if unit == "s" else 1)


def choose(tab: Tab, transport: str) -> None:
    """Choose the transport as a person without a mouse does."""
    tab.tap("set")
    tab.value("document.getElementById('transport').focus(), true")
    tab.press("ArrowDown")
    tab.until("Connecting")
    tab.until("to talk")
    assert tab.value("document.getElementById('transport').value") == transport
    tab.press("Escape")
    tab.value("document.getElementById('talk').focus(), true")


QUESTION = "What is the capital of France?"


class Hand:
    """How a person asks: `by` holding a key or a finger, by two taps, or in writing."""

    def __init__(self, tab: Tab, by: str) -> None:
        self._tab = tab
        self._by = by

    def begin(self) -> None:
        """Begin to speak. Returns once the page is listening."""
        match self._by:
            case "space":
                self._tab.key(True, "Space")
            case "hold":
                self._tab.touch(True, "talk")
            case _:
                self._tab.tap("talk")
        self._tab.until("Listening")

    def end(self) -> None:
        match self._by:
            case "space":
                self._tab.key(False, "Space")
            case "hold":
                self._tab.touch(False, "talk")
            case _:
                self._tab.tap("talk")

    def stop(self) -> None:
        """Stop the answer."""
        if self._by in ("hold", "tap"):
            self._tab.tap("stop")
        else:
            self._tab.press("Escape")

    def write(self) -> None:
        """Write the question of the clip, and send it."""
        self._tab.value("document.getElementById('text').focus(), true")
        self._tab.write(QUESTION)
        self._tab.press("Enter")


def run(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        served(arguments.serve) as url,
        BROWSERS[arguments.browser](url, Path(directory)) as tab,
    ):
        tab.until("to talk")
        if arguments.transport != "websocket":
            choose(tab, arguments.transport)
        hand = Hand(tab, arguments.by)
        for number in range(arguments.turns):
            if arguments.by == "text":
                hand.write()
            else:
                tab.ready()
                hand.begin()
                tab.speak()
                if number == 0 and arguments.pictures:
                    tab.picture(arguments.pictures / "page-listening.png", 390, 844)
                hand.end()
            tab.until("Speaking")
            if number < arguments.turns - 1:
                tab.until("to talk")
            else:
                hand.stop()
                tab.until("Stopped")
                time.sleep(1)  # the truncation comes back
            turns.append(tab.value(TABLE))
            print(json.dumps(turns[-1], ensure_ascii=False), flush=True)
        if arguments.pictures:
            for name, width, height, scheme in (
                ("page-phone", 390, 844, "dark"), ("page-phone-light", 390, 844, "light"),
                ("page-wide", 1200, 800, "dark"), ("page-narrow", 320, 568, "light"),
            ):  # fmt: skip
                tab.picture(arguments.pictures / f"{name}.png", width, height, scheme)
                if tab.value("document.documentElement.scrollWidth > innerWidth"):
                    print(f"{name}: wider than the screen")
            print(*tab.labels(), sep="\n")
        print(tab.value("navigator.userAgent"), "console:", tab.log)
    return turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--browser", choices=BROWSERS, default="chromium")
    parser.add_argument("--transport", choices=("websocket", "webrtc"), default="websocket")
    parser.add_argument("--by", choices=("space", "hold", "tap", "text"), default="space")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("serve", nargs="*", help="options of voxtui serve, after --")
    arguments = parser.parse_args()
    turns = run(arguments)
    for name in ("sound", "word"):
        times = [time for turn in turns if (time := ms(turn[name])) is not None]
        print(f"{name}: p50 {percentile(times, 50)} ms, p95 {percentile(times, 95)} ms")
    network = [
        time for turn in turns for stage, took in turn["stages"]
        if stage == "network" and (time := ms(took)) is not None
    ]  # fmt: skip
    print(f"network: p50 {percentile(network, 50)} ms, p95 {percentile(network, 95)} ms")
    if arguments.json:
        arguments.json.write_text(json.dumps(turns, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
