r"""Gateways before a model server: what a session costs them, and two of them behind nginx.

    python -m benchmarks.clients.gateway [--url http://127.0.0.1:8931/v1 --model tiny-voxtral] \
        [--start COMMAND] [-- options of the gateways]

Without --url the model server is one whose parts only wait. COMMAND starts the model server of
--url; between two turns of all clients it is killed and started again. nginx must be installed.
Prints a line for each number; fails if a client behind nginx is not answered.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import math
import os
import re
import shlex
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import wave
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmarks.serve.process import ON_LOOPBACK, Server, started
from benchmarks.serve.realtime_client import PIECE_SECONDS, RATE, Answer, Line, messages
from voxtui.audio.clips import load_clip
from voxtui.audio.resampling import resample
from voxtui.dialogue.data import SAMPLE_RATE
from voxtui.errors import RemoteError
from voxtui.storage.derived_latencies import spread
from voxtui.wiring import target_clips

HERE = Path(__file__).absolute().parent

SPOKEN_SECONDS = 10.0

TEXT = (
    "The kettle is on, the bread is in the oven, and the soup needs ten more minutes. "
    "Would you lay the table, please, and call the others when you are done?"
)

CLIENTS, TURNS = 8, 5

NGINX_SECONDS = 10.0

MODEL_SERVER_SECONDS = 600.0

COUNTED = re.compile(r'requests_total\{endpoint="realtime",status="101"\} (\S+)')


Gateway = Callable[..., list[str]]
"""Returns the arguments that start a gateway with that many sessions, on a port."""


def gateway(url: str, model: str, more: Sequence[str], sessions: int, port: int = 0) -> list[str]:
    """Return the arguments that start a gateway."""
    return [
        "serve", "--brain", "remote", *ON_LOOPBACK, "--port", str(port),
        "--sessions", str(sessions), "--set", f"brain.remote.url={url}",
        "--set", f"brain.remote.model={model}", *more,
    ]  # fmt: skip


def memory(gateway: Gateway) -> None:
    """Print the memory of a gateway, and that of one session more."""
    for sessions in (1, 4):
        with started("voxtui", gateway(sessions)) as server:
            held = psutil.Process(server.pid).memory_info().rss / 2**20
        print(f"{sessions} sessions: {held:.0f} MB, ready after {server.start_seconds:.0f} s")


async def listen(server: Server, spoken: list[bytes]) -> None:
    line = await Line.open(server.url)
    began = time.monotonic()
    for count, message in enumerate(spoken, 1):
        await asyncio.sleep(began + count * PIECE_SECONDS - time.monotonic())
        await line.send(message)
    line.close()


def processor_time(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def cost(gateway: Gateway, spoken: list[bytes]) -> None:
    """Print the seconds of a core per second of sound, in each direction."""
    with started("voxtui", gateway(1)) as server:
        process = psutil.Process(server.pid)
        say(server)  # the first use of the voice and of the detector is dearer
        asyncio.run(listen(server, spoken[:25]))
        before = processor_time(process)
        asyncio.run(listen(server, spoken))
        heard = processor_time(process) - before
        before = processor_time(process)
        seconds = say(server)
        spoke = processor_time(process) - before
    print(f"listening: {heard / (len(spoken) * PIECE_SECONDS):.3f} of a core")
    print(f"speaking: {spoke / seconds:.3f} of a core for each second of speech")


def say(server: Server) -> float:
    """Return the seconds of the speech of TEXT."""
    request = urllib.request.Request(
        f"{server.url}/audio/speech", json.dumps({"input": TEXT}).encode()
    )
    with urllib.request.urlopen(request) as answer:
        sound = io.BytesIO(answer.read())
    with wave.open(sound) as file:
        return (len(sound.getvalue()) - 44) / 2 / file.getframerate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def nginx(first: int, second: int) -> Generator[str]:
    """Run nginx before two ports, and yield the URL of its API."""
    port = free_port()
    text = (HERE / "nginx.conf").read_text()
    for name, value in (("first", first), ("second", second), ("port", port)):
        text = text.replace(f"{{{name}}}", str(value))
    with TemporaryDirectory() as folder:
        (Path(folder) / "nginx.conf").write_text(text)
        process = subprocess.Popen(["nginx", "-p", folder, "-c", "nginx.conf"])
        try:
            wait_for(port)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait()


def wait_for(port: int) -> None:
    until = time.monotonic() + NGINX_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)  # nginx starts


async def converse(url: str, spoken: list[bytes]) -> list[Answer]:
    line = await Line.open(url)
    answers = [await line.turn(spoken) for _ in range(TURNS)]
    line.close()
    return answers


async def converse_all(url: str, spoken: list[bytes]) -> list[Answer]:
    found = await asyncio.gather(*(converse(url, spoken) for _ in range(CLIENTS)))
    return [answer for one in found for answer in one]


def report(who: str, answers: list[Answer]) -> None:
    text = spread(answer.first_text_ms for answer in answers)
    sound = spread(answer.first_sound_ms for answer in answers)
    assert text is not None
    print(f"{who}: {len(answers)} answers, first text p50 {text.p50:.0f} ms, p95 {text.p95:.0f}")
    if sound is not None:  # what a model with random weights says cannot always be spoken
        print(f"  {sound.n} with sound, first sound p50 {sound.p50:.0f} ms, p95 {sound.p95:.0f}")


def events_apart(url: str) -> float:
    """Return the seconds between the first and the last piece of a streamed answer."""
    body = {"stream": True, "messages": [{"role": "user", "content": "Hello."}]}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request) as answer:
        answer.readline()
        began = time.monotonic()
        while answer.readline():
            pass
    return time.monotonic() - began


def sessions_of(server: Server) -> int:
    with urllib.request.urlopen(server.url.replace("/v1", "/metrics")) as metrics:
        found = COUNTED.search(metrics.read().decode())
    return int(float(found[1])) if found else 0


def behind_nginx(gateway: Gateway, spoken: list[bytes]) -> None:
    """Have CLIENTS talk to two gateways through nginx. Raises RemoteError for a missing answer."""
    ports = free_port(), free_port()
    with ExitStack() as stack:
        gateways = [
            stack.enter_context(started("voxtui", gateway(CLIENTS // 2, port))) for port in ports
        ]
        proxy = stack.enter_context(nginx(*ports))
        report(
            "1 client, one gateway, without nginx", asyncio.run(converse(gateways[0].url, spoken))
        )
        report("1 client, through nginx", asyncio.run(converse(proxy, spoken)))
        report(f"{CLIENTS} clients, two gateways", asyncio.run(converse_all(proxy, spoken)))
        for server in gateways:
            print(f"{server.url}: {sessions_of(server)} sessions")
        print(f"a streamed answer came over {events_apart(proxy) * 1000:.0f} ms, not at once")


class ModelServer:
    """A process group that answers at `url` and can be killed."""

    def __init__(self, command: str, url: str) -> None:
        self._command = shlex.split(command)
        self._url = url
        self.start()

    def start(self) -> None:
        """Start it. Print the seconds until it lists its models, and its memory."""
        began = time.monotonic()
        self._process = subprocess.Popen(
            self._command, start_new_session=True, stdout=subprocess.DEVNULL
        )
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > began + MODEL_SERVER_SECONDS:
                raise RemoteError(f"{self._command[0]} does not answer at {self._url}.")
            time.sleep(0.5)
        processes = [main := psutil.Process(self._process.pid), *main.children(recursive=True)]
        resident = sum(process.memory_info().rss for process in processes) / 2**20
        seconds = time.monotonic() - began
        print(f"model server: ready after {seconds:.0f} s, {resident:.0f} MB")

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/models", timeout=5):
                return True
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False


async def timed_failure(line: Line, spoken: list[bytes]) -> tuple[float, str]:
    """Talk to a gateway whose model server is dead. Return the seconds taken, and the reason."""
    began = time.monotonic()
    try:
        await line.turn(spoken)
    except RemoteError as error:
        return time.monotonic() - began, str(error)
    raise AssertionError("A gateway answered without a model server.")


async def across_a_kill(url: str, spoken: list[bytes], server: ModelServer) -> None:
    """Have CLIENTS talk before the model server is killed, while it is dead, and later."""
    lines = await asyncio.gather(*(Line.open(url) for _ in range(CLIENTS)))

    async def turns(who: str) -> None:
        for turn in range(2):
            answers = await asyncio.gather(*(line.turn(spoken) for line in lines))
            report(f"{CLIENTS} clients, one gateway, {who}, turn {turn + 1}", answers)

    await turns("before the kill")
    server.kill()
    failures = await asyncio.gather(*(timed_failure(line, spoken) for line in lines))
    said = len(spoken) * PIECE_SECONDS
    print(f"model server killed: {len(failures)} turns failed, the last one "
          f"{max(seconds for seconds, _ in failures) - said:.1f} s after the question")  # fmt: skip
    for reason in sorted({reason for _, reason in failures}):
        print(f"  {reason}")
    pings = [asyncio.create_task(line.keep_open()) for line in lines]
    await asyncio.to_thread(server.start)
    for task in pings:
        task.cancel()
    await asyncio.gather(*pings, return_exceptions=True)
    await turns("after it, in the same sessions")
    for line in lines:
        line.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="the API of the model server")
    parser.add_argument("--model", default="whisper-1")
    parser.add_argument("--start", metavar="COMMAND", help="starts the model server of --url")
    parser.add_argument("serve", nargs="*", help="options of the gateways, after --")
    asked = parser.parse_args()
    clip = load_clip(target_clips()[0], math.inf)
    spoken = messages(resample(clip.samples, SAMPLE_RATE, RATE))
    long = (spoken * math.ceil(SPOKEN_SECONDS / PIECE_SECONDS / len(spoken)))[
        : round(SPOKEN_SECONDS / PIECE_SECONDS)
    ]
    with ExitStack() as stack:
        url = asked.url
        if url is None:
            url = stack.enter_context(
                started("benchmarks.serve.scripted_server", [str(CLIENTS)])
            ).url
        make = partial(gateway, url, asked.model, asked.serve)
        if asked.start:
            stack.callback((server := ModelServer(asked.start, url)).kill)
            with started("voxtui", make(CLIENTS)) as one:
                asyncio.run(across_a_kill(one.url, spoken, server))
        memory(make)
        cost(make, long)
        behind_nginx(make, spoken)


if __name__ == "__main__":
    main()
