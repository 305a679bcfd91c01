"""A call over a link that loses packets of sound: which words the server understands.

    python -m benchmarks.clients.lossy [--questions 20] [--loss 0 2 5 10] [-- serve options]

Our own WebRTC peer asks spoken questions of a `voxtui serve` that it starts. It loses a share of
the packets of sound, in both directions, at random and each on its own. Prints a line for each
share. Needs the extra [webrtc].
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import urllib.request
from fractions import Fraction
from typing import Any
from urllib.parse import urljoin

import numpy as np
from aiortc import (
    MediaStreamTrack,
    RTCBundlePolicy,
    RTCConfiguration,
    RTCPeerConnection,
    RTCSessionDescription,
)
from av import AudioFrame

from benchmarks.accuracy import questions
from benchmarks.serve.process import ON_LOOPBACK, Server, started
from benchmarks.word_errors import word_errors
from voxtui.audio.resampling import resample
from voxtui.dialogue.data import SAMPLE_RATE, as_pcm
from voxtui.serve.realtime.calls import CALLS_PATH
from voxtui.serve.realtime.webrtc import CHANNEL, FRAME_SAMPLES, TRACK_RATE, offer_only

PATIENCE_SECONDS = 60.0

SESSION = {
    "type": "transcription",
    "audio": {"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}},
}

WORDS = "conversation.item.input_audio_transcription.completed"


class Microphone(MediaStreamTrack):
    """Sends the samples of `say` in real time, and silence otherwise."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._unsent = np.zeros(0, np.float32)
        self._count = 0
        self._begun = 0.0
        self._over = asyncio.Event()

    async def say(self, samples: np.ndarray) -> None:
        """Speak `samples` (at TRACK_RATE), and return after the last one."""
        self._unsent = samples
        self._over.clear()
        await self._over.wait()

    async def recv(self) -> AudioFrame:
        now = asyncio.get_running_loop().time
        self._begun = self._begun or now()
        await asyncio.sleep(self._begun + self._count * FRAME_SAMPLES / TRACK_RATE - now())
        piece, self._unsent = self._unsent[:FRAME_SAMPLES], self._unsent[FRAME_SAMPLES:]
        if not len(piece):
            self._over.set()
        sound = np.frombuffer(as_pcm(np.pad(piece, (0, FRAME_SAMPLES - len(piece)))), "<i2")
        frame = AudioFrame.from_ndarray(sound[None], "s16", "mono")
        frame.sample_rate, frame.time_base = TRACK_RATE, Fraction(1, TRACK_RATE)
        frame.pts = self._count * FRAME_SAMPLES
        self._count += 1
        return frame


class Caller:
    """A peer that loses a share of the packets of sound."""

    def __init__(self, loss: float) -> None:
        self.sent = self.lost = 0
        self.microphone = Microphone()
        configuration = RTCConfiguration(iceServers=[], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE)
        self._peer = RTCPeerConnection(configuration)
        transceiver = self._peer.addTransceiver(self.microphone)
        offer_only(["127.0.0.1"], transceiver.receiver)
        self._lose(transceiver.sender.transport, loss)
        self._channel = self._peer.createDataChannel(CHANNEL)
        self._channel.on("message", lambda text: self._events.put_nowait(json.loads(text)))
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def _lose(self, transport: Any, loss: float) -> None:
        chance = random.Random(1)
        send, take = transport._send_rtp, transport._handle_rtp_data  # noqa: SLF001

        async def send_some(data: bytes) -> None:
            self.sent += 1
            if chance.random() >= loss:
                await send(data)
            else:
                self.lost += 1

        async def take_some(data: bytes, arrival_time_ms: int) -> None:
            if chance.random() >= loss:
                await take(data, arrival_time_ms)

        transport._send_rtp, transport._handle_rtp_data = send_some, take_some  # noqa: SLF001

    async def call(self, server: Server) -> None:
        await self._peer.setLocalDescription(await self._peer.createOffer())
        offer = self._peer.localDescription.sdp.encode()
        request = urllib.request.Request(
            urljoin(server.url, CALLS_PATH), offer, {"content-type": "application/sdp"}
        )

        def post() -> str:
            with urllib.request.urlopen(request) as answer:
                return answer.read().decode()

        answer = await asyncio.to_thread(post)
        await self._peer.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        await self._until("session.created")
        self._send("session.update", session=SESSION)
        await self._until("session.updated")

    async def understood(self, samples: np.ndarray) -> str:
        """Return the words that the server recognises in `samples`."""
        await self.microphone.say(samples)
        self._send("input_audio_buffer.commit")
        return (await self._until(WORDS))["transcript"]

    async def close(self) -> None:
        await self._peer.close()

    def _send(self, kind: str, **fields: Any) -> None:
        self._channel.send(json.dumps({"type": kind, **fields}))

    async def _until(self, kind: str) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (event := await self._events.get())["type"] != kind:
                if event["type"] == "error":
                    raise RuntimeError(event["error"]["message"])
        return event


async def measure(server: Server, loss: float, count: int) -> str:
    caller = Caller(loss)
    try:
        await caller.call(server)
        heard = [
            (text, await caller.understood(resample(samples, SAMPLE_RATE, TRACK_RATE)))
            for samples, text, _ in questions(count)
        ]
    finally:
        await caller.close()
    errors = word_errors(heard)
    assert errors is not None
    same = sum(not word_errors([pair]) for pair in heard)
    return (
        f"{loss:4.0%} lost ({caller.lost} of {caller.sent} packets): {same} of {len(heard)} "
        f"questions without an error, word errors {errors:.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--loss", type=float, nargs="+", default=[0, 2, 5, 10], help="percent")
    parser.add_argument("serve", nargs="*", help="options of voxtui serve, after --")
    asked = parser.parse_args()
    with started("voxtui", ["serve", *asked.serve, *ON_LOOPBACK]) as server:
        for loss in asked.loss:
            print(asyncio.run(measure(server, loss / 100, asked.questions)), flush=True)


if __name__ == "__main__":
    main()
