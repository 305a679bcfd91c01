"""Chromium and Firefox without a screen, driven by their own protocols, for `benchmarks.page`.

Chromium is driven by its DevTools protocol and hears a file in a loop. Firefox is driven by
WebDriver BiDi and hears a virtual microphone (PulseAudio), because it has no such file.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import soundfile

from tests.virtual_audio import VirtualAudio
from voxtui.audio.resampling import resample

CLIP = Path(__file__).parents[1] / "assets/clips/capital-of-france.wav"
RATE = 48_000
LEAD_SECONDS, LOOP_SECONDS = 1.0, 8.0
"""Start of the clip, and its period, because it is played in a loop."""

TAIL_SECONDS = 0.2
"""Time from the end of the clip to the release."""

PATIENCE = 60.0
STATUS = "document.getElementById('status')?.textContent ?? ''"

DEVTOOLS_KEYS = {
    "ArrowDown": {"key": "ArrowDown", "code": "ArrowDown", "windowsVirtualKeyCode": 40},
    "Enter": {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
    "Escape": {"key": "Escape", "code": "Escape", "windowsVirtualKeyCode": 27},
    "Space": {"key": " ", "code": "Space", "windowsVirtualKeyCode": 32},
}
WEBDRIVER_KEYS = {"ArrowDown": "\ue015", "Enter": "\ue007", "Escape": "\ue00c", "Space": " "}

PREFERENCES = {
    "media.navigator.permission.disabled": True,  # no question about the microphone
    "media.autoplay.default": 0,
    "app.normandy.enabled": False,
    "browser.aboutwelcome.enabled": False,
    "browser.safebrowsing.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.update.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,",
    "toolkit.telemetry.enabled": False,
}
"""Firefox's preferences, by which it asks nothing and reaches no other host."""


class Tab(ABC):
    """A page with a person in front of it. `log` has the errors of its console."""

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
            if answer.get("method") == "log.entryAdded" and answer["params"]["level"] == "error":
                self.log.append(answer["params"]["text"])
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']} {answer.get('message', '')}")
        return answer["result"]

    def press(self, name: str) -> None:
        self.key(True, name)
        self.key(False, name)

    def place(self, element: str) -> tuple[float, float]:
        """Return the middle of the element with that id, where a finger touches it."""
        box = f"document.getElementById('{element}').getBoundingClientRect()"
        x, y = self.value(f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({box})")
        return x, y

    def tap(self, element: str) -> None:
        self.touch(True, element)
        self.touch(False, element)

    def until(self, text: str) -> str:
        """Wait until the status contains `text`. Return the status."""
        end = time.monotonic() + PATIENCE
        while text not in (status := self.value(STATUS)):
            if time.monotonic() > end:
                whole = self.value("document.body.innerText")
                raise TimeoutError(f"{status!r} instead of {text!r}: {whole} {self.log}")
            time.sleep(0.005)  # the page has no event for a driver outside
        return status

    @abstractmethod
    def open(self, url: str) -> None: ...

    @abstractmethod
    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""

    @abstractmethod
    def key(self, down: bool, name: str) -> None:
        """Press or release a key of WEBDRIVER_KEYS."""

    @abstractmethod
    def touch(self, down: bool, element: str) -> None:
        """Put a finger on the element with that id, or lift it."""

    @abstractmethod
    def write(self, text: str) -> None:
        """Type into the focused field."""

    @abstractmethod
    def picture(self, path: Path, width: int, height: int, scheme: str = "dark") -> None:
        """Write a picture of the page in that size. Firefox has one scheme for all pictures."""

    @abstractmethod
    def ready(self) -> None:
        """Wait until the clip may be played."""

    @abstractmethod
    def speak(self) -> None:
        """Return after the clip was played into the microphone."""

    def labels(self) -> Iterator[str]:
        """Yield the texts of a screen reader, which Firefox's protocol does not report."""
        return iter(())


class Chromium(Tab):
    _begun: float | None = None

    def open(self, url: str) -> None:
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"][
            "value"
        ]

    def key(self, down: bool, name: str) -> None:
        kind = "keyDown" if down else "keyUp"
        self.call("Input.dispatchKeyEvent", type=kind, **DEVTOOLS_KEYS[name])

    def touch(self, down: bool, element: str) -> None:
        x, y = self.place(element)
        kind, points = ("touchStart", [{"x": x, "y": y}]) if down else ("touchEnd", [])
        self.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)

    def write(self, text: str) -> None:
        for letter in text:
            for kind in ("keyDown", "keyUp"):
                self.call("Input.dispatchKeyEvent", type=kind, key=letter, text=letter)

    def picture(self, path: Path, width: int, height: int, scheme: str = "dark") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        path.write_bytes(b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def ready(self) -> None:
        if self._begun is not None:
            passed = (time.monotonic() - self._begun) % LOOP_SECONDS
            time.sleep(LOOP_SECONDS - passed)  # the clip comes round again

    def speak(self) -> None:
        self._begun = self._begun or time.monotonic()
        time.sleep(LEAD_SECONDS + soundfile.info(CLIP).duration + TAIL_SECONDS)

    def labels(self) -> Iterator[str]:
        for node in self.call("Accessibility.getFullAXTree")["nodes"]:
            name, role = node.get("name", {}).get("value"), node["role"]["value"]
            if name and role not in ("StaticText", "InlineTextBox", "none"):
                yield f"{role}: {name}"


class Firefox(Tab):
    def __init__(self, socket: Any, audio: VirtualAudio) -> None:
        super().__init__(socket)
        self._audio = audio
        self._context = ""

    def open(self, url: str) -> None:
        self.call("session.new", capabilities={})
        self._context = self.call("browsingContext.getTree")["contexts"][0]["context"]
        self.call("session.subscribe", events=["log.entryAdded"])
        self._do("browsingContext.navigate", url=url, wait="complete")

    def _do(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.call(method, context=self._context, **parameters)

    def value(self, expression: str) -> Any:
        done = self.call(
            "script.evaluate",
            expression=f"JSON.stringify({expression}) ?? 'null'",
            target={"context": self._context},
            awaitPromise=False,
        )
        if done["type"] == "exception":
            raise RuntimeError(done["exceptionDetails"]["text"])
        return json.loads(done["result"]["value"])

    def key(self, down: bool, name: str) -> None:
        action = {"type": "keyDown" if down else "keyUp", "value": WEBDRIVER_KEYS[name]}
        self._act("key", "keyboard", [action])

    def touch(self, down: bool, element: str) -> None:
        self._touch(element, down=down, up=not down)

    def tap(self, element: str) -> None:
        self._touch(element, down=True, up=True)  # two actions take longer than a tap may

    def _touch(self, element: str, down: bool, up: bool) -> None:
        x, y = self.place(element)
        actions: list[dict[str, Any]] = []
        if down:
            move = {"type": "pointerMove", "x": round(x), "y": round(y)}
            actions += [move, {"type": "pointerDown", "button": 0}]
        if up:
            actions += [{"type": "pointerUp", "button": 0}]
        self._act("pointer", "finger", actions, parameters={"pointerType": "touch"})

    def write(self, text: str) -> None:
        kinds = "keyDown", "keyUp"
        keys = [{"type": kind, "value": letter} for letter in text for kind in kinds]
        self._act("key", "keyboard", keys)

    def _act(self, kind: str, name: str, actions: list[dict[str, Any]], **more: Any) -> None:
        source = {"type": kind, "id": name, "actions": actions, **more}
        self._do("input.performActions", actions=[source])

    def picture(self, path: Path, width: int, height: int, scheme: str = "dark") -> None:
        viewport = {"width": width, "height": height}
        self._do("browsingContext.setViewport", viewport=viewport, devicePixelRatio=1)
        path.write_bytes(b64decode(self._do("browsingContext.captureScreenshot")["data"]))

    def ready(self) -> None: ...

    def speak(self) -> None:
        self._audio.say(CLIP).wait()
        time.sleep(TAIL_SECONDS)


@contextmanager
def chromium(url: str, directory: Path) -> Iterator[Tab]:
    microphone = directory / "microphone.wav"
    samples, rate = soundfile.read(CLIP, dtype="float32")
    heard = np.zeros(int(LOOP_SECONDS * RATE), np.float32)
    clip = resample(samples, rate, RATE)
    start = int(LEAD_SECONDS * RATE)
    heard[start : start + len(clip)] = clip
    soundfile.write(microphone, heard, RATE, subtype="PCM_16")
    flags = (
        "--headless", "--no-sandbox", "--remote-debugging-port=0", f"--user-data-dir={directory}",
        "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={microphone}", "--disable-gpu",
        "--disable-features=WebRtcHideLocalIpsWithMdns", "--allow-loopback-in-peer-connection",
        "--autoplay-policy=no-user-gesture-required", "about:blank",
    )  # fmt: skip
    with running("chromium", *flags):
        port = _until((directory / "DevToolsActivePort").read_text).split()[0]
        targets = httpx2.get(f"http://127.0.0.1:{port}/json").json()
        address = next(t["webSocketDebuggerUrl"] for t in targets if t["type"] == "page")
        with _connected(address) as socket:
            tab = Chromium(socket)
            tab.open(url)
            yield tab


@contextmanager
def firefox(url: str, directory: Path) -> Iterator[Tab]:
    settings = (f"user_pref({json.dumps(k)}, {json.dumps(v)});" for k, v in PREFERENCES.items())
    (directory / "user.js").write_text("\n".join(settings))
    with ExitStack() as stack:
        audio = stack.enter_context(VirtualAudio())
        stack.enter_context(audio.environment())
        flags = "--headless", "--no-remote", "--remote-debugging-port=0", "--profile"
        stack.enter_context(running("firefox-esr", *flags, str(directory), "about:blank"))
        port = json.loads(_until((directory / "WebDriverBiDiServer.json").read_text))["ws_port"]
        socket = stack.enter_context(_connected(f"ws://127.0.0.1:{port}/session"))
        tab = Firefox(socket, audio)
        tab.open(url)
        yield tab


BROWSERS = {"chromium": chromium, "firefox": firefox}


@contextmanager
def running(*command: str) -> Iterator[None]:
    environment = {**os.environ, "MOZ_CRASHREPORTER_DISABLE": "1"}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet) as process:
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    with (
        httpx2.Client(timeout=PATIENCE) as client,
        client.websocket(
            address.replace("ws://", "http://"), max_message_size_bytes=2**26
        ) as socket,
    ):
        yield socket


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
