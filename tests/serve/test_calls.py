"""`/v1/realtime/calls` with a real peer of WebRTC over loopback, on scripted parts."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from contextlib import asynccontextmanager
from fractions import Fraction
from urllib.parse import urlsplit

import numpy as np
import psutil
import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from tests.fakes import ScriptedBrain
from tests.serve.conftest import PATIENCE, Server, own_address, serving
from tests.ui.pseudo_terminal import until
from voxtui.dialogue.data import SAMPLE_RATE, Utterance
from voxtui.serve.realtime.calls import addresses
from voxtui.serve.upload import Disconnected
from voxtui.settings.schema import Config, ServeConfig

aiortc = pytest.importorskip("aiortc", reason="the extra [webrtc] is not installed")
from aiortc.codecs.opus import OpusDecoder  # noqa: E402
from av import AudioFrame  # noqa: E402

from voxtui.serve.realtime.webrtc import CHANNEL, Call, hear_only, offer_only  # noqa: E402

PATH = "/v1/realtime/calls"
SDP = {"content-type": "application/sdp"}
EVENT = TypeAdapter(RealtimeServerEvent)
PUSH_TO_TALK = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
RATE, PACKET = 48_000, 960
TONE = (16_000 * np.sin(np.arange(PACKET) * 2 * np.pi * 400 / RATE)).astype(np.int16)[None]


class Mouth(aiortc.MediaStreamTrack):
    """A microphone that hears what the test says."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self.packets = 0
        """of loud sound, still to come"""
        self.quiet = asyncio.Event()
        self.pace = 1.0
        """times as fast as it is spoken"""
        self._count = 0
        self._due = 0.0

    async def recv(self) -> AudioFrame:
        now = asyncio.get_running_loop().time()
        self._due = (self._due or now) + PACKET / RATE / self.pace
        await asyncio.sleep(self._due - now)
        loud, self.packets = self.packets > 0, max(0, self.packets - 1)
        if not loud:
            self.quiet.set()
        frame = AudioFrame.from_ndarray(TONE * loud, "s16", "mono")
        frame.sample_rate, frame.time_base = RATE, Fraction(1, RATE)
        frame.pts = self._count * PACKET
        self._count += 1
        return frame


class Peer:
    def __init__(self, address: str = "127.0.0.1") -> None:
        configuration = aiortc.RTCConfiguration(
            iceServers=[], bundlePolicy=aiortc.RTCBundlePolicy.MAX_BUNDLE
        )
        self.connection = aiortc.RTCPeerConnection(configuration)
        self.mouth = Mouth()
        transceiver = self.connection.addTransceiver(self.mouth)
        offer_only([address], transceiver.receiver)
        self.channel = self.connection.createDataChannel(CHANNEL)
        self.channel.on("message", self._take)
        self.connection.on("track", self._listen)
        self.seen: list[dict] = []
        self.heard: list[np.ndarray] = []
        self._events: asyncio.Queue[dict] = asyncio.Queue()
        self.location = ""

    async def offer(self) -> str:
        await self.connection.setLocalDescription(await self.connection.createOffer())
        return self.connection.localDescription.sdp

    async def call(self, server: Server, session: dict | None = None, **headers: str) -> None:
        sdp = await self.offer()
        if session is None:
            body = {"content": sdp, "headers": {**SDP, **headers}}
        else:
            form = {
                "sdp": (None, sdp, "application/sdp"),
                "session": (None, json.dumps(session), "application/json"),
            }
            body = {"files": form, "headers": headers}
        answer = await asyncio.to_thread(server.client.post, PATH, **body)
        assert answer.status_code == 201, answer.text
        assert answer.headers["content-type"].startswith("application/sdp")
        self.location = answer.headers["location"]
        self.answer = answer.text
        await self.connection.setRemoteDescription(
            aiortc.RTCSessionDescription(answer.text, "answer")
        )

    def send(self, kind: str, **fields) -> None:
        self.channel.send(json.dumps({"type": kind, **fields}))

    async def until(self, kind: str) -> dict:
        while True:
            try:
                event = await asyncio.wait_for(self._events.get(), PATIENCE)
            except TimeoutError:
                raise TimeoutError(f"no {kind} after {self.types()}") from None
            EVENT.validate_python(event)
            self.seen.append(event)
            if event["type"] == kind:
                return event

    async def until_heard(self) -> None:
        """Wait for loud sound of the server. Its events may overtake it."""
        await asyncio.to_thread(
            until, lambda: any(np.abs(sound).max() > 0.1 for sound in self.heard)
        )

    async def speak(self, packets: int = 20) -> None:
        self.mouth.quiet.clear()
        self.mouth.packets = packets
        await self.mouth.quiet.wait()

    def types(self) -> list[str]:
        return [event["type"] for event in self.seen]

    def _take(self, message: str) -> None:
        self._events.put_nowait(json.loads(message))

    def _listen(self, track) -> None:
        async def hear() -> None:
            while True:
                frame = await track.recv()
                self.heard.append(frame.to_ndarray().reshape(-1, 2)[:, 0] / 32768)

        self.ear = asyncio.create_task(hear())


@asynccontextmanager
async def calling(server: Server, session: dict | None = None, **headers: str):
    peer = Peer(urlsplit(server.url).hostname)
    try:
        await peer.call(server, session, **headers)
        await peer.until("session.created")
        yield peer
    finally:
        await peer.connection.close()
        peer.ear.cancel()


def said(brain: ScriptedBrain) -> list[tuple[str, str]]:
    return [(turn.user_text, turn.reply_text) for turn in brain.pasts[-1]]


def loud_seconds(utterance: Utterance) -> float:
    loud = np.flatnonzero(np.abs(utterance.samples) > 0.1)
    return (loud[-1] - loud[0]) / SAMPLE_RATE


@pytest.mark.parametrize("pace", [0.8, 3.0, 12.0])
@pytest.mark.parametrize("detects", [False, True])
async def test_no_sound_of_a_call_is_lost_at_any_pace(pace, detects):
    brain = ScriptedBrain(["Yes."], ["Yes."])
    vad = {"type": "server_vad", "silence_duration_ms": 500, "interrupt_response": False}
    update = {"audio": {"input": {"turn_detection": vad if detects else None}}}
    with serving(brain=brain) as server:
        async with calling(server, {"type": "realtime", **update}) as peer:
            for _ in range(2):
                peer.mouth.pace = pace
                await peer.speak(60)
                peer.mouth.pace = 1.0
                if not detects:
                    peer.send("input_audio_buffer.commit")
                    peer.send("response.create")
                await peer.until("response.done")
            first, second = (loud_seconds(said) for said in brain.said)
            assert first == pytest.approx(1.2, abs=0.04)
            assert second == pytest.approx(1.2, abs=0.04)


async def test_a_commit_waits_for_a_decoder_that_is_behind(monkeypatch):
    decode = OpusDecoder.decode

    def slow(self: OpusDecoder, encoded: object) -> object:
        time.sleep(0.01)  # a busy machine
        return decode(self, encoded)

    monkeypatch.setattr(OpusDecoder, "decode", slow)
    brain = ScriptedBrain(["Yes."])
    with serving(brain=brain) as server:
        async with calling(server, PUSH_TO_TALK) as peer:
            peer.mouth.pace = 12.0
            await peer.speak(60)
            peer.mouth.pace = 1.0
            peer.send("input_audio_buffer.commit")
            peer.send("response.create")
            await peer.until("response.done")
            assert loud_seconds(brain.said[0]) == pytest.approx(1.2, abs=0.04)


TEXT = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "More."}]}


async def test_a_call_is_heard_and_answered_on_its_tracks_and_cut_off_where_it_was_played():
    brain = ScriptedBrain(["Yes, it is."], ["One ", "two ", "and so on. " * 200], ["Next."])
    with serving(brain=brain) as server:
        async with calling(server, {**PUSH_TO_TALK, "model": "gpt-realtime"}) as peer:
            assert peer.seen[0]["session"]["audio"]["input"]["turn_detection"] is None
            await peer.speak()
            # The commit goes another way than the sound, and may overtake it.
            await asyncio.to_thread(until, lambda: sum(loud for _, loud in brain.frames) >= 11)
            peer.send("input_audio_buffer.commit")
            peer.send("response.create")
            started = await peer.until("output_audio_buffer.started")
            stopped = await peer.until("output_audio_buffer.stopped")
            assert started["response_id"] == stopped["response_id"]
            assert "response.done" in peer.types()
            assert "response.output_audio.delta" not in peer.types()
            assert 0.3 < brain.said[0].seconds < 0.9
            await peer.until_heard()

            peer.send("input_audio_buffer.append", audio="AAAA")
            assert "track" in (await peer.until("error"))["error"]["message"]
            peer.send("conversation.item.create", item=TEXT)
            peer.send("response.create")
            await peer.until("output_audio_buffer.started")
            if brain.said[-1:] != ["More."] or peer.types().count("response.done") < 2:
                await peer.until("response.done")
            peer.send("output_audio_buffer.clear")
            await peer.until("output_audio_buffer.cleared")
            cut = await peer.until("conversation.item.truncated")
            assert cut["audio_end_ms"] < 20_000  # of 22 s
            peer.send("conversation.item.create", item=TEXT)
            peer.send("response.create")
            await peer.until("response.done")
            assert len(said(brain)[-1][1]) < 2000
            # Addresses of this machine only: no server elsewhere was asked for one.
            found = [line.split()[4] for line in peer.answer.splitlines() if "candidate:" in line]
            here = {each.address for adapter in psutil.net_if_addrs().values() for each in adapter}
            assert "127.0.0.1" in found and {*found} <= here

            gone = await asyncio.to_thread(server.client.post, f"{peer.location}/hangup")
            assert gone.status_code == 200
        until(lambda: server.client.get("/readyz").json()["free"])
        assert server.client.post(f"{peer.location}/hangup").status_code == 404


@pytest.mark.slow
async def test_speech_over_an_answer_stops_it_although_its_response_is_done():
    brain = ScriptedBrain(["And so on. " * 200], ["Next."])
    with serving(brain=brain) as server:
        secret = {"session": {"type": "realtime", "output_modalities": ["audio"]}}
        secret = await asyncio.to_thread(
            server.client.post, "/v1/realtime/client_secrets", json=secret
        )
        key = f"Bearer {secret.json()['value']}"
        async with calling(server, Authorization=key) as peer:
            peer.send("conversation.item.create", item=TEXT)
            peer.send("response.create")
            done = await peer.until("response.done")
            assert done["response"]["status"] == "completed"
            peer.mouth.packets = 30
            await peer.until("output_audio_buffer.cleared")
            assert peer.types()[-2] == "input_audio_buffer.speech_started"
            cut = await peer.until("conversation.item.truncated")
            assert cut["audio_end_ms"] < 20_000  # of 22 s
            server.stop()  # the call ends by itself: its client would wait half a minute
            while peer.connection.connectionState != "closed":
                await asyncio.sleep(0.01)  # aiortc has no future for it


@pytest.mark.slow
async def test_a_stop_of_the_server_lets_the_answer_be_played_to_its_end():
    with serving(brain=ScriptedBrain(["A second of sound. " * 5])) as server:
        async with calling(server, PUSH_TO_TALK) as peer:
            peer.send("conversation.item.create", item=TEXT)
            peer.send("response.create")
            await peer.until("output_audio_buffer.started")
            server.stop()
            await peer.until("output_audio_buffer.stopped")
            while peer.connection.connectionState != "closed":
                await asyncio.sleep(0.01)  # aiortc has no future for it


def refused(answer, status: int) -> str:
    assert answer.status_code == status, answer.text
    return answer.json()["error"]["message"]


async def test_an_offer_that_cannot_be_met_is_refused_with_a_reason(server, monkeypatch):
    post = server.client.post
    peer = Peer()
    offer = await peer.offer()
    await peer.connection.close()
    ask = {"content": offer, "headers": SDP}

    def asked(**changed):
        return asyncio.to_thread(post, PATH, **{**ask, **changed})

    assert "one audio track" in refused(await asked(content="nonsense"), 400)
    assert "one audio track" in refused(await asked(content=offer + "m=video 9 UDP 96\r\n"), 400)
    assert "Opus" in refused(await asked(content=offer.replace("opus", "speex")), 400)
    assert "SDP" in refused(await asked(content="m=audio 1\r\nm=application 1\r\n"), 400)
    assert "bytes" in refused(await asked(content="x" * 70_000), 413)
    assert "application/sdp" in refused(await asked(headers={}), 400)
    form = {"session": (None, "{}")}
    assert "sdp" in refused(await asyncio.to_thread(post, PATH, files=form), 400)
    form = {"sdp": (None, offer), "session": (None, "{")}
    assert refused(await asyncio.to_thread(post, PATH, files=form), 400)
    form["session"] = (None, json.dumps({"audio": {"output": {"speed": 9}}}))
    assert "1.5" in refused(await asyncio.to_thread(post, PATH, files=form), 400)
    assert refused(await asked(headers={**SDP, "Origin": "https://evil.example"}), 403)
    assert refused(await asyncio.to_thread(post, f"{PATH}?model=no", **ask), 404)
    assert server.client.get("/readyz").json()["free"] == 1
    monkeypatch.setitem(sys.modules, "voxtui.serve.realtime.webrtc", None)
    message = refused(await asked(), 501)
    assert "make setup EXTRAS=webrtc" in message


@pytest.mark.slow
async def test_one_call_more_is_refused_and_one_that_never_connects_is_given_up(monkeypatch):
    connect_seconds = "voxtui.serve.realtime.webrtc.CONNECT_SECONDS"
    monkeypatch.setattr(connect_seconds, PATIENCE)
    with serving(token="secret", hand_over_s=0.0) as server:
        peer = Peer()
        ask = {"content": await peer.offer(), "headers": SDP}
        await peer.connection.close()
        assert "key" in refused(await asyncio.to_thread(server.client.post, PATH, **ask), 401)
        ask["headers"] = {**SDP, "Authorization": "Bearer secret"}
        first, second = await asyncio.gather(
            *[asyncio.to_thread(server.client.post, PATH, **ask) for _ in range(2)]
        )
        assert sorted([first.status_code, second.status_code]) == [201, 429]
        (call,) = [answer for answer in (first, second) if answer.status_code == 201]

        def free() -> bool:
            return server.client.get("/readyz", headers=ask["headers"]).json()["free"] == 1

        assert not free()
        key = {"Authorization": "Bearer secret"}
        assert server.client.post(f"{call.headers['location']}/hangup", headers=key).is_success
        until(free)
        monkeypatch.setattr(connect_seconds, 0.1)
        assert (await asyncio.to_thread(server.client.post, PATH, **ask)).status_code == 201
        until(free)


@pytest.mark.slow
async def test_a_call_off_loopback_needs_the_key_and_uses_the_address_of_the_network():
    config = Config(serve=ServeConfig(host="0.0.0.0"))
    brain = ScriptedBrain(["Fine, thank you. " * 5])
    with serving(config, token="secret", brain=brain, address=own_address()) as server:
        for authorization in ("", "Bearer wrong"):
            headers = {**SDP, "Authorization": authorization}
            answer = await asyncio.to_thread(server.client.post, PATH, headers=headers)
            assert "key" in refused(answer, 401)
        async with calling(server, PUSH_TO_TALK, Authorization="Bearer secret") as peer:
            assert own_address() in peer.answer
            assert " 127.0.0.1 " not in peer.answer
            await peer.speak()
            peer.send("input_audio_buffer.commit")
            peer.send("response.create")
            await peer.until("output_audio_buffer.stopped")
            await peer.until_heard()


async def test_a_browser_without_loopback_reaches_a_server_on_loopback_by_another_address():
    with serving(brain=ScriptedBrain()) as server:
        peer = Peer(own_address())  # what Firefox has
        try:
            await peer.call(server)
            await peer.until("session.created")
        finally:
            await peer.connection.close()
            peer.ear.cancel()


async def test_a_call_on_loopback_hears_nothing_of_another_machine():
    heard: list[bytes] = []

    class Protocol(asyncio.DatagramProtocol):
        def datagram_received(self, data, addr):
            heard.append(data)

    loop = asyncio.get_running_loop()
    receiver, protocol = await loop.create_datagram_endpoint(Protocol, local_addr=("127.0.0.1", 0))
    hear_only({"127.0.0.1"}, protocol)
    with (
        socket.socket(type=socket.SOCK_DGRAM) as here,
        socket.socket(type=socket.SOCK_DGRAM) as far,
    ):
        far.bind(("127.0.0.2", 0))  # in the place of another machine
        for sender, data in ((far, b"far"), (here, b"here")):
            sender.sendto(data, receiver.get_extra_info("sockname"))
    await asyncio.to_thread(until, lambda: heard)
    receiver.close()
    assert heard == [b"here"]


async def test_a_call_asks_no_name_server_where_the_server_listens(monkeypatch):
    asked, real = [], socket.getaddrinfo

    def lookup(host, *arguments, **named):
        if host != "voxtui.test":
            return real(host, *arguments, **named)
        asked.append(host)
        return real("127.0.0.1", *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with serving(Config(serve=ServeConfig(host="voxtui.test"))) as server:
        async with calling(server, PUSH_TO_TALK) as peer:
            assert " 127.0.0.1 " in peer.answer
    assert asked == ["voxtui.test"]


def test_a_call_uses_the_addresses_on_which_the_server_listens():
    assert addresses("127.0.0.1") == ["127.0.0.1"]
    assert addresses("::1") == ["::1"]
    assert addresses("192.0.2.7") == ["192.0.2.7"]
    assert addresses("0.0.0.0") is None and addresses("::") is None


@pytest.mark.slow
async def test_no_time_is_lost_with_lost_packets():
    call, peer, sent = Call(["127.0.0.1"]), Peer(), 0
    transport = peer.connection.getTransceivers()[0].sender.transport
    send = transport._send_rtp  # noqa: SLF001

    async def send_some(data: bytes) -> None:
        nonlocal sent
        sent += 1
        if sent % 4:
            await send(data)

    transport._send_rtp = send_some  # noqa: SLF001
    loud = quiet = 0
    try:
        answer = aiortc.RTCSessionDescription(await call.answer(await peer.offer()), "answer")
        await peer.connection.setRemoteDescription(answer)
        async with asyncio.timeout(PATIENCE):
            await call.receive()
            peer.mouth.packets = 40
            while not loud or quiet < 5:
                sound = await call.receive()
                is_loud = np.abs(sound).max() > 0.01
                loud += is_loud * len(sound) // PACKET
                quiet = 0 if is_loud else quiet + 1
        assert 39 <= loud <= 42  # what was lost is filled
    finally:
        await call.close()
        await peer.connection.close()
        peer.ear.cancel()


@pytest.mark.slow
async def test_a_client_that_sends_more_than_is_taken_is_hung_up(monkeypatch):
    for limit in ("MOST_MESSAGES", "MOST_RECEIVED"):
        monkeypatch.setattr(f"voxtui.serve.realtime.webrtc.{limit}", 20)
    call, peer, received = Call(["127.0.0.1"]), Peer(), 0
    try:
        answer = aiortc.RTCSessionDescription(await call.answer(await peer.offer()), "answer")
        await peer.connection.setRemoteDescription(answer)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(Disconnected):
                while True:  # nobody takes the packets of the microphone
                    await call.send("{}")
                    await asyncio.sleep(0.02)  # the pace of the packets
            with pytest.raises(Disconnected):
                while True:
                    await call.receive()
                    received += 1
        assert received == 20
    finally:
        await call.close()
        await peer.connection.close()
        peer.ear.cancel()
