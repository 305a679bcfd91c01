r"""Drive the page of `voxtui serve` in headless Chromium, with a fake microphone.

    python -m benchmarks.page [--turns 10] [--transport webrtc] [--pictures DIRECTORY] \
        [--json OUT] [-- serve options]

It needs a `chromium` (apt-get install chromium). The server runs as a process. The browser's
microphone plays a sample clip in a loop; Space is held over it with real key events. Each turn
prints the page's own table; the last one is interrupted.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import soundfile

from voxtui.audio.resampling import resample
from voxtui.storage.derived_latencies import percentile

CLIP = Path(__file__).parents[1] / "assets/clips/capital-of-france.wav"
RATE = 48_000
LEAD_SECONDS, LOOP_SECONDS = 1.0, 8.0
"""The clip begins after the lead, and again after each loop."""

PATIENCE = 60.0

STATUS = "document.getElementById('status')?.textContent ?? ''"
TABLE = """({
  sound: document.getElementById('first-sound').textContent,
  word: document.getElementById('first-word').textContent,
  answer: document.getElementById('full-answer').textContent,
  stages: [...document.querySelectorAll('#stages tr')].map(row => [row.cells[0].textContent,
    row.cells[2].textContent]),
  words: [...document.querySelectorAll('#words li')].map(line => line.innerText),
  problem: document.getElementById('problem').textContent,
})"""

DOWN = {"key": "ArrowDown", "code": "ArrowDown", "windowsVirtualKeyCode": 40}
ESCAPE = {"key": "Escape", "code": "Escape", "windowsVirtualKeyCode": 27}
SPACE = {"key": " ", "code": "Space", "windowsVirtualKeyCode": 32}


class Tab:
    """A page of Chromium, by its DevTools protocol."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._number = 0
        self.log: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        self._socket.send_text(json.dumps(message))
        while (answer := json.loads(self._socket.receive_text())).get("id") != self._number:
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.log.append(json.dumps(answer["params"]))
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def value(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"][
            "value"
        ]

    def key(self, down: bool, **key: Any) -> None:
        self.call("Input.dispatchKeyEvent", type="rawKeyDown" if down else "keyUp", **key)

    def until(self, text: str) -> str:
        """Wait until the status contains `text`. Returns it."""
        end = time.monotonic() + PATIENCE
        while text not in (status := self.value(STATUS)):
            if time.monotonic() > end:
                raise TimeoutError(
                    f"{status!r} instead of {text!r}: {self.value(TABLE)} {self.log}"
                )
            time.sleep(0.005)  # the page has no event for a driver outside
        return status

    def picture(self, path: Path, width: int, height: int, scheme: str = "dark") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        path.write_bytes(b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


def microphone_file(path: Path) -> float:
    """Write what the microphone hears. Returns the seconds from the press to the release."""
    samples, rate = soundfile.read(CLIP, dtype="float32")
    clip = resample(samples, rate, RATE)
    heard = np.zeros(int(LOOP_SECONDS * RATE), np.float32)
    start = int(LEAD_SECONDS * RATE)
    heard[start : start + len(clip)] = clip
    soundfile.write(path, heard, RATE, subtype="PCM_16")
    return LEAD_SECONDS + len(clip) / RATE + 0.2


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


@contextmanager
def browsing(url: str, microphone: Path, directory: str) -> Iterator[Tab]:
    flags = (
        "--headless", "--no-sandbox", "--remote-debugging-port=0", f"--user-data-dir={directory}",
        "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={microphone}", "--disable-gpu",
        "--disable-features=WebRtcHideLocalIpsWithMdns", "--allow-loopback-in-peer-connection",
        "--autoplay-policy=no-user-gesture-required", "about:blank",
    )  # fmt: skip
    with subprocess.Popen(["chromium", *flags], stderr=subprocess.DEVNULL) as process:
        try:
            port = _until(Path(directory, "DevToolsActivePort").read_text).split()[0]
            base = f"http://127.0.0.1:{port}"
            targets = httpx2.get(f"{base}/json").json()
            socket_url = next(t["webSocketDebuggerUrl"] for t in targets if t["type"] == "page")
            with (
                httpx2.Client(timeout=PATIENCE) as client,
                client.websocket(socket_url, max_message_size_bytes=2**26) as socket,
            ):
                tab = Tab(socket)
                for domain in ("Page", "Runtime", "Log"):
                    tab.call(f"{domain}.enable")
                tab.call("Page.navigate", url=url)
                yield tab
        finally:
            process.terminate()


def _until(read: Callable[[], str]) -> str:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            if text := read():
                return text
        except FileNotFoundError:
            if time.monotonic() > end:
                raise
        time.sleep(0.05)  # the browser writes the file when it listens


def ms(text: str) -> float | None:
    number, _, unit = text.partition(" ")
    return None if number == "–" else float(number) * (1000 if unit == "s" else 1)


def choose(tab: Tab, transport: str) -> None:
    """Choose the transport as a person does who has no mouse."""
    tab.value("document.getElementById('transport').focus(), true")
    tab.key(True, **DOWN)
    tab.key(False, **DOWN)
    tab.until("Connecting")
    tab.until("Ready")
    assert tab.value("document.getElementById('transport').value") == transport
    tab.value("document.getElementById('talk').focus(), true")


def run(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        microphone = Path(directory, "microphone.wav")
        hold = microphone_file(microphone)
        with (
            served(arguments.serve) as url,
            browsing(url, microphone, f"{directory}/profile") as tab,
        ):
            tab.until("Ready")
            if arguments.transport != "websocket":
                choose(tab, arguments.transport)
            begun = None
            for number in range(arguments.turns):
                if begun is not None:
                    passed = (time.monotonic() - begun) % LOOP_SECONDS
                    time.sleep(LOOP_SECONDS - passed)  # the clip comes round again
                tab.key(True, **SPACE)
                tab.until("Listening")
                begun = begun or time.monotonic()
                time.sleep(hold)  # the clip is spoken
                if number == 0 and arguments.pictures:
                    tab.picture(arguments.pictures / "page-listening.png", 390, 844)
                tab.key(False, **SPACE)
                tab.until("Speaking")
                if number < arguments.turns - 1:
                    tab.until("Ready")
                else:
                    tab.key(True, **ESCAPE)
                    tab.key(False, **ESCAPE)
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
                    scrolls = "document.documentElement.scrollWidth > innerWidth"
                    if tab.value(scrolls):
                        print(f"{name}: wider than the screen")
                tree = tab.call("Accessibility.getFullAXTree")["nodes"]
                for node in tree:
                    name = node.get("name", {}).get("value")
                    role = node["role"]["value"]
                    if name and role not in ("StaticText", "InlineTextBox", "none"):
                        print(f"{role}: {name}")
            print("console:", tab.log)
    return turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--transport", choices=("websocket", "webrtc"), default="websocket")
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
