"""A peer connection as the transport of a session.

Messages use the data channel that the client opens; one track carries the microphone and another
one the answers. No STUN or TURN server is used.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from aiortc import (
    InvalidStateError,
    MediaStreamTrack,
    RTCBundlePolicy,
    RTCConfiguration,
    RTCPeerConnection,
    RTCRtpReceiver,
    RTCRtpSender,
    RTCSessionDescription,
)
from aiortc.exceptions import OperationError
from aiortc.jitterbuffer import JitterFrame
from aiortc.mediastreams import MediaStreamError
from aiortc.rtp import RtpPacket
from av import AudioFrame

from voxtui.serve.openai_types import HttpError
from voxtui.serve.realtime.concealment import Concealment
from voxtui.serve.realtime.jitter_buffer import JitterBuffer
from voxtui.serve.realtime.output_buffer import TRACK_RATE, OutputBuffer
from voxtui.serve.upload import Disconnected

if TYPE_CHECKING:
    from aiortc import RTCDataChannel

    from voxtui.dialogue.data import Samples

CHANNEL = "oai-events"

FRAME_SAMPLES = TRACK_RATE // 50
"""Samples of 20 ms, an Opus packet."""

CONNECT_SECONDS = 15.0

IN_FLIGHT_SECONDS = 0.06
"""Time by which a message overtakes the sound before it: two packets, and the sender's buffer."""

DECODING_SECONDS = 2.0
"""Maximum further wait for the decoder, which is late on a busy machine."""

MOST_MESSAGES = 1000

MOST_RECEIVED = 2000
"""Maximum messages and packets (20 ms) that wait while the session is loading or ending."""

MOST_BUFFERED = 4 * 2**20

MOST_MESSAGE_CHARACTERS = 256 * 1024

FLUSH_SECONDS = 1.0

SILENT_FRAMES = 10
"""Number of silent frames after an answer, so that the receiver does not extend its last sound."""

LATE_SECONDS = 0.2
"""Length of a stall from which the lost time is not made up."""

Received: TypeAlias = "str | bytes | Samples"


class Call:
    """A transport on `addresses` of this machine, or on all (None), for the event loop's thread."""

    def __init__(self, addresses: list[str] | None) -> None:
        self.output = OutputBuffer()
        self._answers = _AnswerTrack(self.output)
        self._decoding = _Decoding()
        self._addresses = addresses
        self._loop = asyncio.get_running_loop()
        configuration = RTCConfiguration(iceServers=[], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE)
        self._peer = RTCPeerConnection(configuration)
        self._channel: RTCDataChannel | None = None
        self._opened = asyncio.Event()
        """the event that is set once the channel is open, or can never be"""
        self._left = False
        self._closing: asyncio.Task[None] | None = None
        self._messages: asyncio.Queue[str | bytes] = asyncio.Queue(MOST_MESSAGES)
        self._received: asyncio.Queue[Received | None] = asyncio.Queue(MOST_RECEIVED)
        self._tasks = [asyncio.create_task(self._take_messages())]
        self._timer = self._loop.call_later(CONNECT_SECONDS, self._give_up)
        self._peer.on("datachannel", self._take_channel)
        self._peer.on("track", self._take_track)
        self._peer.on("connectionstatechange", self._connection_changed)

    async def answer(self, offer: str) -> str:
        """Return the answer to an offer. Raises HttpError."""
        kinds = [line[2:].split(" ")[0] for line in offer.splitlines() if line.startswith("m=")]
        if sorted(kinds) != ["application", "audio"]:
            raise HttpError(
                400, "The offer must have one audio track and one data channel.", param="sdp"
            )
        transceiver = self._peer.addTransceiver(self._answers, "sendrecv")
        codecs = RTCRtpSender.getCapabilities("audio").codecs
        transceiver.setCodecPreferences([c for c in codecs if c.mimeType == "audio/opus"])
        _tune(transceiver.receiver, self._decoding)
        if self._addresses is not None:
            offer_only(self._addresses, transceiver.receiver)
        try:
            description = RTCSessionDescription(_without_names(offer), "offer")
            await self._peer.setRemoteDescription(description)
            answer = await self._peer.createAnswer()
            await self._peer.setLocalDescription(answer)
        except OperationError as error:
            raise HttpError(400, "The offer has no Opus, or is not valid.", param="sdp") from error
        except (ValueError, KeyError, IndexError, AttributeError, AssertionError) as error:
            raise HttpError(400, "The offer is not valid SDP.", param="sdp") from error
        return self._peer.localDescription.sdp

    async def receive(self) -> Received:
        if self._left and self._received.empty():
            raise Disconnected
        received = await self._received.get()
        if received is None:
            raise Disconnected
        return received

    async def send(self, message: str) -> None:
        await self._opened.wait()
        if self._left or self._channel is None:
            raise Disconnected
        if self._channel.bufferedAmount > MOST_BUFFERED:
            self.leave()
            raise Disconnected
        try:
            self._channel.send(message)
        except InvalidStateError as closed:
            raise Disconnected from closed

    async def close(self, code: int = 0, reason: str = "") -> None:
        """Send what is left, and hang up. WebRTC cannot carry `code` and `reason`."""
        end = self._loop.time() + FLUSH_SECONDS
        while not self._left and self._unsent and self._loop.time() < end:
            await asyncio.sleep(0.01)  # aiortc reports an amount, not that all was sent
        self.leave()
        if self._closing is None:
            self._closing = asyncio.create_task(self._peer.close())
        await asyncio.shield(self._closing)  # aiortc never ends a close that was cancelled

    def leave(self) -> None:
        """End the session, because the client has disconnected or must."""
        self._left = True
        self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._opened.set()
        with suppress(asyncio.QueueFull):  # then `receive` does not wait
            self._received.put_nowait(None)

    @property
    def _unsent(self) -> bool:
        """Return True if messages, or the end of an answer's sound, are still to be sent."""
        messages = self._channel is not None and self._channel.bufferedAmount > 0
        return messages or self._answers.sounding

    def _give_up(self) -> None:
        if not self._opened.is_set():
            self.leave()

    def _connection_changed(self) -> None:
        if self._peer.connectionState in ("failed", "closed"):
            self.leave()

    def _take_channel(self, channel: RTCDataChannel) -> None:
        if channel.label != CHANNEL or self._channel is not None:
            return
        self._channel = channel
        channel.on("message", self._take_message)
        channel.on("close", self.leave)
        self._opened.set()

    def _take_message(self, message: str | bytes) -> None:
        if len(message) > MOST_MESSAGE_CHARACTERS or self._messages.full():
            self.leave()
        else:
            self._messages.put_nowait(message)

    async def _take_messages(self) -> None:
        while True:
            message = await self._messages.get()
            text = message if isinstance(message, str) else message.decode(errors="replace")
            if '"input_audio_buffer.' in text:
                # The sound that was said before it is still on its way.
                await asyncio.sleep(IN_FLIGHT_SECONDS)
                await self._decoding.caught_up()
            await self._received.put(message)

    def _take_track(self, track: MediaStreamTrack) -> None:
        self._tasks.append(asyncio.create_task(self._hear(track)))

    async def _hear(self, track: Any) -> None:
        concealment = Concealment()
        with suppress(MediaStreamError):  # it has ended
            while True:
                frame: AudioFrame = await track.recv()
                samples = frame.to_ndarray().reshape(-1, len(frame.layout.channels))
                if self._received.full():
                    return self.leave()
                mono = samples.mean(axis=1, dtype=np.float32) / 32768
                self._received.put_nowait(concealment.whole(mono, frame.pts or 0))
                self._decoding.decoded(frame.pts or 0)


class _AnswerTrack(MediaStreamTrack):
    """Plays an output buffer in real time, and nothing between the answers.

    Silence would be sent even while the models work, and often late. The receiver would take that
    for network jitter, and delay the answer by it.
    """

    kind = "audio"

    def __init__(self, output: OutputBuffer) -> None:
        super().__init__()
        self._output = output
        self._count = 0
        self._due = 0.0
        self._silent = 0
        """the number of frames since the last sound"""

    @property
    def sounding(self) -> bool:
        """True while an answer, or the silence after it, is being sent."""
        return self._count > 0 and self._silent < SILENT_FRAMES

    async def recv(self) -> AudioFrame:
        loop = asyncio.get_running_loop()
        if self._silent >= SILENT_FRAMES:
            await self._output.begun.wait()
        self._silent = 0 if self._output.begun.is_set() else self._silent + 1
        now = loop.time()
        if now > self._due + LATE_SECONDS:
            self._count += round((now - self._due) * TRACK_RATE / FRAME_SAMPLES) * bool(self._due)
            self._due = now
        await asyncio.sleep(self._due - now)  # the pace of the track is real time
        if self.readyState != "live":
            raise MediaStreamError
        frame = AudioFrame(format="s16", layout="mono", samples=FRAME_SAMPLES)
        frame.planes[0].update(self._output.take(2 * FRAME_SAMPLES))
        frame.sample_rate = TRACK_RATE
        frame.time_base = Fraction(1, TRACK_RATE)
        frame.pts = self._count * FRAME_SAMPLES
        self._count += 1
        self._due += FRAME_SAMPLES / TRACK_RATE
        return frame


def _without_names(offer: str) -> str:
    """Return an offer without candidates that only multicast DNS can resolve.

    A browser hides its addresses behind such names. They are not needed, because its first packet
    shows the address. The offer also has no end of candidates, so that packet is awaited.
    """
    kept = [
        line for line in offer.splitlines()
        if not (line.startswith("a=candidate:") and ".local " in line)
        and not line.startswith("a=end-of-candidates")
    ]  # fmt: skip
    return "\r\n".join(kept) + "\r\n"


class _Decoding:
    """A jitter buffer of aiortc without a delay, because each packet of Opus is a frame.

    It knows which packets the decoder, on a thread of its own, has not returned yet.
    """

    def __init__(self) -> None:
        self._origin: int | None = None
        self._added = self._decoded = 0
        """the times of the latest added and decoded packets, in samples since the first one"""
        self._returned = asyncio.Event()

    def add(self, packet: RtpPacket) -> tuple[bool, JitterFrame | None]:
        encoded: Any = packet
        data = encoded._data  # noqa: SLF001
        if not data:
            return False, None
        if self._origin is None:
            self._origin = packet.timestamp
        self._added = packet.timestamp - self._origin
        return False, JitterFrame(data, packet.timestamp)

    def decoded(self, at: int) -> None:
        """Take note of the frame that begins at sample `at`."""
        self._decoded = at
        self._returned.set()

    async def caught_up(self) -> None:
        """Wait until all received packets are decoded, or for DECODING_SECONDS."""
        last = self._added
        with suppress(TimeoutError):
            async with asyncio.timeout(DECODING_SECONDS):
                while self._behind(last):
                    self._returned.clear()
                    await self._returned.wait()

    def _behind(self, last: int) -> bool:
        return 0 < (last - self._decoded) % 2**32 < 2**31  # times wrap after 32 bits


def _tune(receiver: RTCRtpReceiver, decoding: _Decoding) -> None:
    """Decode each packet of sound at once, in order.

    aiortc's buffer holds a packet until the next one arrives, so it also drops the one before each
    lost packet, and stays late after that. It has no setting for this.
    """
    private: Any = receiver
    private.__dict__["_RTCRtpReceiver__jitter_buffer"] = decoding
    take, order = private._handle_rtp_packet, JitterBuffer[RtpPacket]()  # noqa: SLF001

    async def take_in_order(packet: RtpPacket, arrival_time_ms: int) -> None:
        for ready in order.add(packet.sequence_number, packet):
            await take(ready, arrival_time_ms=arrival_time_ms)

    private._handle_rtp_packet = take_in_order  # noqa: SLF001


def offer_only(ours: list[str], receiver: RTCRtpReceiver) -> None:
    """Have a connection use only the addresses `ours`, for which aioice has no setting.

    It would omit loopback, and offer every other address to other machines. Beside loopback the
    other addresses are offered to this machine only, because Firefox does not use loopback.
    """
    ice: Any = receiver.transport.transport.iceGatherer
    connection = ice._connection  # noqa: SLF001
    gather = connection.get_component_candidates

    async def gather_ours(component: int, addresses: list[str], timeout: int = 5) -> Any:
        if "127.0.0.1" not in ours:
            return await gather(component, ours, timeout)
        here = {*ours, *addresses}
        found = await gather(component, sorted(here), timeout)
        for protocol in connection._protocols:  # noqa: SLF001
            hear_only(here, protocol)
        return found

    connection.get_component_candidates = gather_ours


def hear_only(hosts: set[str], protocol: Any) -> None:
    """Drop packets of other hosts. No system accepts one that pretends to come from itself."""
    take = protocol.datagram_received

    def take_ours(data: bytes, sender: tuple[str, int]) -> None:
        if sender[0] in hosts:
            take(data, sender)

    protocol.datagram_received = take_ours
