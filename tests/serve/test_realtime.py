"""`/v1/realtime` over a real socket, on scripted parts; the client's own types judge each event."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import OpenAI
from openai.types.realtime import (
    RealtimeResponseCreateParamsParam,
    RealtimeServerEvent,
    RealtimeSessionCreateRequestParam,
    RealtimeTranscriptionSessionCreateRequestParam,
)
from pydantic import TypeAdapter

from tests.fakes import ScriptedBrain
from tests.serve.conftest import PATIENCE, Server, serving
from tests.ui.pseudo_terminal import until
from voxtui.dialogue import engine
from voxtui.dialogue.data import ToolCall, Utterance
from voxtui.dialogue.protocols import ReplyOptions, TurnRequest
from voxtui.errors import ModelError
from voxtui.settings.schema import AudioConfig, Config, VadConfig

RATE = 24_000
EVENT = TypeAdapter(RealtimeServerEvent)

PUSH_TO_TALK = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
WORDS = {"audio": {"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}}}

DETECTED = {"audio": {"input": {"turn_detection": {"type": "server_vad"}}}}


class Client:
    """Sends events, and checks each one that it gets."""

    def __init__(self, socket) -> None:
        self.socket = socket
        self.seen: list[dict] = []

    def send(self, kind: str, **fields) -> None:
        self.socket.send_text(json.dumps({"type": kind, **fields}))

    def next(self) -> dict:
        event = json.loads(self.socket.receive_text())
        if not event["type"].startswith("x_"):
            EVENT.validate_python(event)
        assert event["event_id"]
        self.seen.append(event)
        return event

    def until(self, kind: str) -> dict:
        while (event := self.next())["type"] != kind:
            pass
        return event

    def speak(self, seconds: float = 0.5, loud: float = 0.5) -> None:
        sound = np.full(int(seconds * RATE), round(loud * 32767), "<i2").tobytes()
        self.send("input_audio_buffer.append", audio=base64.b64encode(sound).decode())

    def say(self, seconds: float = 0.5) -> None:
        """Speak, commit and ask for an answer, as push-to-talk does."""
        self.speak(seconds)
        self.send("input_audio_buffer.commit")
        self.send("response.create")

    def text(self, text: str, role: str = "user", **fields) -> None:
        kind = "output_text" if role == "assistant" else "input_text"
        item = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        self.send("conversation.item.create", item={**item, **fields.pop("item", {})}, **fields)

    def settled(self) -> None:
        """Wait until the server has taken all that was sent."""
        self.send("conversation.item.retrieve", item_id="none")
        while self.until("error")["error"]["code"] != "item_retrieve_invalid_item_id":
            pass

    def of(self, kind: str) -> list[dict]:
        return [event for event in self.seen if event["type"] == kind]

    def types(self) -> list[str]:
        return [event["type"] for event in self.seen]


@contextmanager
def session(
    server: Server, update: dict | None = None, query: str = "", headers: dict | None = None
) -> Iterator[Client]:
    url = f"/v1/realtime{query}"
    with server.client.websocket(url, headers=headers, max_message_size_bytes=2**22) as socket:
        client = Client(socket)
        client.until("session.created")
        if update is not None:
            client.send("session.update", session=update)
            client.until("session.updated")
        yield client


def free(server: Server) -> int:
    return server.client.get("/readyz").json()["free"]


BRAIN = ScriptedBrain()

shared: list[Server] = []


@pytest.fixture(scope="module", autouse=True)
def one_server():
    with serving(brain=BRAIN, sets=8) as server:
        shared.append(server)
        yield
    shared.clear()


@contextmanager
def given_back() -> Iterator[None]:
    """Wait for the end of the session within, whose engine would use the brain of the next test.

    It ends after its client has left.
    """
    before = free(shared[0])
    yield
    until(lambda: free(shared[0]) >= before)


@contextmanager
def talking(
    *scripts: list,
    update: dict | None = PUSH_TO_TALK,
    config: Config | None = None,
    **brain: object,
) -> Iterator[tuple[Client, ScriptedBrain]]:
    """Open a session; the tests of this file share a server, and script its brain anew."""
    if config is not None:
        with (
            serving(config, brain=(scripted := ScriptedBrain(*scripts))) as server,
            session(server, update) as client,
        ):
            yield client, scripted
        return
    BRAIN.__init__(*scripts, **brain)
    with given_back(), session(shared[0], update) as client:
        yield client, BRAIN


def said(brain: ScriptedBrain) -> list[tuple[str, str]]:
    return [(turn.user_text, turn.reply_text) for turn in brain.pasts[-1]]


def test_messages_from_before_the_beginning_are_done_after_it(monkeypatch):
    warm_up, never = engine.warm_up, threading.Event()
    monkeypatch.setattr(engine, "warm_up", lambda *loads: (never.wait(0.1), warm_up(*loads)))
    BRAIN.__init__(["Yes."])
    with given_back(), shared[0].client.websocket("/v1/realtime") as socket:
        client = Client(socket)
        client.text("Hello?")
        client.send("response.create")
        while client.next()["type"] not in ("response.done", "error"):
            pass
    assert client.types()[:2] == ["session.created", "conversation.item.added"]
    assert client.of("response.done")


def test_a_turn_of_push_to_talk_has_all_events_in_their_order():
    with talking(["Yes. ", "It is."], heard="is it", update=WORDS) as (client, brain):
        client.say()
        done = client.until("response.done")
        order = [kind for kind in client.types() if "delta" not in kind and "session" not in kind]
        transcript = "conversation.item.input_audio_transcription.completed"
        assert [kind for kind in order if kind != transcript] == [
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
            "rate_limits.updated",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
        ]
        (heard,) = client.of(transcript)
        (delta,) = client.of("conversation.item.input_audio_transcription.delta")
        assert (delta["item_id"], delta["delta"]) == (heard["item_id"], "is it")
        assert heard["transcript"] == "is it"
        assert 0.4 < heard["usage"]["seconds"] < 0.6
        spoken = "".join(e["delta"] for e in client.of("response.output_audio_transcript.delta"))
        assert spoken == "Yes. It is."
        sound = b"".join(
            base64.b64decode(e["delta"]) for e in client.of("response.output_audio.delta")
        )
        samples = np.frombuffer(sound, "<i2")
        assert len(samples) == 240 * len("Yes.It is.")
        assert samples[0] == round(0.3 * 32767)
        assert done["response"]["status"] == "completed"
        assert done["response"]["output"][0]["content"][0]["transcript"] == "Yes. It is."
        assert done["response"]["usage"]["output_tokens"] == 2
        assert isinstance(brain.said[0], Utterance)


def test_sound_is_worked_on_before_it_is_committed():
    with talking() as (client, brain):
        client.speak()
        client.settled()
        until(lambda: len(brain.frames) >= 14)  # of 15 whole frames
        assert not brain.said


def test_captions_and_stages_go_only_to_a_client_that_asks_for_them():
    asks = {**WORDS, "x_voxtui": True}
    for update in (WORDS, asks):
        with talking(["Yes."], update=update) as (client, brain):
            client.speak()
            client.settled()
            until(lambda brain=brain: brain.on_words is not None)
            brain.on_words("what is", 4)
            client.send("input_audio_buffer.commit")
            client.send("response.create")
            client.until("response.done")
            ours = [event for event in client.seen if event["type"].startswith("x_")]
            timing = client.seen[-1].get("x_voxtui")
    assert [event["text"] for event in ours] == ["what is"]
    assert timing["first_audio_ms"] >= 0
    names = [stage["name"] for stage in timing["stages"]]
    assert names[0] == "listen" and "token" in names and "voice" in names


def test_a_commit_without_an_answer_enters_the_conversation_with_its_words():
    with talking(["Fine."], heard="first", update=WORDS) as (client, brain):
        client.speak()
        client.send("input_audio_buffer.commit")
        words = client.until("conversation.item.input_audio_transcription.completed")
        assert words["transcript"] == "first"
        client.text("second")
        client.send("response.create")
        client.until("response.done")
        assert brain.said == ["second"]
        assert said(brain) == [("first", "")]
        client.send("conversation.item.retrieve", item_id=words["item_id"])
        item = client.until("conversation.item.retrieved")["item"]
        assert item["content"] == [{"type": "input_audio", "transcript": "first"}]


def test_text_items_can_be_placed_deleted_and_answered_in_text():
    with talking(["Vox."]) as (client, brain):
        client.text("Hello.", item={"id": "a"})
        client.text("Hi.", "assistant", item={"id": "b"})
        client.text("Ignore this.", item={"id": "c"})
        client.text("Before all.", previous_item_id="root", item={"id": "d"})
        client.text("After a.", previous_item_id="a", item={"id": "e"})
        client.send("conversation.item.delete", item_id="c")
        client.until("conversation.item.deleted")
        client.text("Your name?")
        client.send(
            "response.create", response={"output_modalities": ["text"], "metadata": {"k": "v"}}
        )
        done = client.until("response.done")["response"]
        assert done["output"][0]["content"] == [{"type": "output_text", "text": "Vox."}]
        assert done["metadata"] == {"k": "v"}
        assert client.of("response.created")[0]["response"]["metadata"] == {"k": "v"}
        assert not client.of("response.output_audio.delta")
        assert brain.said == ["Your name?"]
        assert said(brain) == [
            ("Before all.", ""), ("Hello.", ""), ("After a.", ""), ("", "Hi."),
        ]  # fmt: skip
        added = client.of("conversation.item.added")
        assert [event["previous_item_id"] for event in added[:5]] == [None, "a", "b", None, "a"]


def test_an_answer_needs_no_item_of_the_user_and_its_instructions_hold_once():
    update = {**PUSH_TO_TALK, "instructions": "Be kind.", "max_output_tokens": 9}
    with talking(["Hello."], ["Yes."], update=update) as (client, brain):
        client.send("response.create", response={"instructions": "Greet the user."})
        assert client.until("response.done")["response"]["status"] == "completed"
        client.say()
        client.until("response.done")
        until(lambda: len(brain.read_pasts) == 3)  # at the start and after each answer
        assert brain.said[0] == "Greet the user."
        assert brain.manners == [ReplyOptions("Be kind.", 9)] * 2
        assert said(brain) == [("", "Hello.")]


def test_instructions_of_an_answer_to_the_user_replace_those_of_the_session_once():
    update = {**PUSH_TO_TALK, "instructions": "Be kind."}
    with talking(["Yes."], ["Yes."], update=update) as (client, brain):
        for response in ({"instructions": "Be a pirate."}, {}):
            client.text("Is it?")
            client.send("response.create", response=response)
            client.until("response.done")
        assert brain.said == ["Is it?", "Is it?"]
        assert brain.manners == [ReplyOptions("Be a pirate."), ReplyOptions("Be kind.")]


FOR_SKILLS = (
    "Set a timer for five minutes.",
    "What time is it?",
    "Remember that my keys are in the blue jar.",
    "What is 12 times 12?",
    "Where do you run?",
)
"""What voxtui itself answers to the person at its own screen"""


def test_a_served_session_has_no_skills():
    with talking(*[["No."]] * len(FOR_SKILLS)) as (client, brain):
        for text in FOR_SKILLS:
            client.text(text)
            client.send("response.create")
            (item,) = client.until("response.done")["response"]["output"]
            assert item["type"] == "message"
            assert item["content"][0]["transcript"] == "No.", text
        assert brain.said == list(FOR_SKILLS)
        assert not any(brain.clocks)  # nor is the model told the time here


def test_a_session_update_starts_to_read_its_instruction_at_once():
    with talking(update={**PUSH_TO_TALK, "instructions": "Be a pirate."}) as (client, brain):
        client.text("You rhyme.", "system")
        client.settled()
        until(lambda: len(brain.listened) >= 2)
        told = [options.instruction for *_, options in brain.listened]
        assert told[-2:] == ["Be a pirate.", "Be a pirate.\n\nYou rhyme."]


def test_a_response_can_be_cancelled_and_the_next_one_works():
    held = threading.Event()
    with talking(["One ", held, "two"], ["Next."]) as (client, _):
        client.say()
        client.until("response.output_audio_transcript.delta")
        client.send("response.create", event_id="mine")
        error = client.until("error")["error"]
        assert error["code"] == "conversation_already_has_active_response"
        assert error["event_id"] == "mine"
        client.send("response.cancel")
        client.settled()
        held.set()
        done = client.until("response.done")["response"]
        assert done["status"] == "cancelled"
        assert done["status_details"]["reason"] == "client_cancelled"
        client.say()
        assert client.until("response.done")["response"]["status"] == "completed"


def test_truncating_leaves_in_the_history_what_was_heard():
    with talking(["One ", "two ", "three."], ["Yes."]) as (client, brain):
        client.say()
        item = client.until("response.done")["response"]["output"][0]["id"]
        place = {"item_id": item, "content_index": 0}
        client.send("conversation.item.truncate", **place, audio_end_ms=90_000)
        assert client.until("error")["error"]["param"] == "audio_end_ms"
        client.send("conversation.item.truncate", **place, audio_end_ms=80)
        assert client.until("conversation.item.truncated")["audio_end_ms"] == 80
        client.send("conversation.item.retrieve", item_id=item)
        shown = client.until("conversation.item.retrieved")["item"]
        assert shown["content"][0]["transcript"] == "One two"
        client.say()
        client.until("response.done")
        assert said(brain)[-1] == ("", "One ")  # whole tokens


def test_sound_that_arrives_during_an_answer_is_the_next_utterance():
    held = threading.Event()
    with talking(["One ", held, "two."], ["Next."]) as (client, brain):
        client.say()
        client.until("response.output_audio_transcript.delta")
        client.speak(1.0)
        client.send("input_audio_buffer.commit")
        client.settled()
        held.set()
        assert client.until("response.done")["response"]["status"] == "completed"
        client.until("input_audio_buffer.committed")
        client.send("response.create")
        assert client.until("response.done")["response"]["status"] == "completed"
        assert 1.0 < brain.said[1].seconds < 1.5


def test_each_commit_during_an_answer_keeps_its_own_sound():
    held = threading.Event()
    with talking(["One ", held, "two."], ["Next."], update=WORDS) as (client, brain):
        client.say()
        client.until("response.output_audio_transcript.delta")
        for seconds in (1.0, 2.0):
            client.speak(seconds)
            client.send("input_audio_buffer.commit")
        client.send("input_audio_buffer.commit", event_id="empty")
        assert client.until("error")["error"]["event_id"] == "empty"
        client.speak(3.0)
        client.send("input_audio_buffer.clear")
        client.settled()
        held.set()
        heard = "conversation.item.input_audio_transcription.completed"
        while len(client.of(heard)) < 3:
            client.next()
        assert [round(event["usage"]["seconds"], 1) for event in client.of(heard)] == [
            pytest.approx(seconds, abs=0.2) for seconds in (0.5, 1.0, 2.0)
        ]
        client.send("response.create")
        assert client.until("response.done")["response"]["status"] == "completed"
        assert brain.said[-1].seconds == pytest.approx(2.0, abs=0.5)


def test_sound_that_was_said_before_speech_was_to_be_detected_is_no_detected_speech(monkeypatch):
    busy, free_again = threading.Event(), threading.Event()
    listen = BRAIN.listen

    def wait(request: TurnRequest, recording, on_words=None) -> None:
        busy.set()
        assert free_again.wait(PATIENCE)
        listen(request, recording, on_words)

    with talking() as (client, brain):
        monkeypatch.setattr(brain, "listen", wait)
        client.send("session.update", session={"instructions": "Be kind."})
        assert busy.wait(PATIENCE)  # so the engine begins the utterance when the update has come
        client.speak(0.6)
        client.send("session.update", session=DETECTED)
        client.settled()
        free_again.set()
        client.speak(0.6)
        client.speak(1.5, loud=0.0)
        client.until("response.done")
        assert len(client.of("input_audio_buffer.speech_started")) == 1


def test_a_cleared_buffer_is_forgotten():
    with talking(["Yes."]) as (client, brain):
        client.speak(1.0)
        client.send("input_audio_buffer.clear")
        client.until("input_audio_buffer.cleared")
        client.send("input_audio_buffer.commit")
        assert client.until("error")["error"]["code"] == "input_audio_buffer_commit_empty"
        client.say(0.4)
        client.until("response.done")
        (utterance,) = brain.said
        assert utterance.seconds < 0.7


def test_silence_is_committed_and_answered_with_nothing():
    with talking(update=WORDS) as (client, brain):
        client.speak(0.5, loud=0.0)
        client.send("input_audio_buffer.commit")
        client.send("response.create")
        done = client.until("response.done")["response"]
        assert done["output"] == []
        assert not brain.said
        (failed,) = client.of("conversation.item.input_audio_transcription.failed")
        assert failed["error"]["message"] == "No speech was found in this sound."


@pytest.mark.parametrize("answered", [True, False])
def test_sound_without_words_says_so(answered):
    with talking(heard="", update=WORDS) as (client, _):
        client.speak()
        client.send("input_audio_buffer.commit")
        if answered:
            client.send("response.create")
        failed = client.until("conversation.item.input_audio_transcription.failed")
        assert failed["error"]["message"] == "No words were recognised in this sound."


@pytest.mark.parametrize("answered", [True, False])
def test_a_recogniser_that_fails_says_why_there_are_no_words(answered):
    broken = [ModelError("The recogniser failed.")]
    with talking(broken, heard=None, transcript=broken, update=WORDS) as (client, _):
        client.speak()
        client.send("input_audio_buffer.commit")
        if answered:
            client.send("response.create")
        failed = client.until("conversation.item.input_audio_transcription.failed")
        assert "The recogniser failed." in failed["error"]["message"]


def test_speech_is_detected_and_answered_by_itself():
    held = threading.Event()
    with talking(["One ", held, "two."], ["Next."], update=None) as (client, brain):
        detection = {"type": "semantic_vad"}
        client.send("session.update", session={"audio": {"input": {"turn_detection": detection}}})
        shown = client.until("session.updated")["session"]["audio"]["input"]["turn_detection"]
        assert shown["interrupt_response"] is True
        client.speak(0.6)
        client.speak(1.5, loud=0.0)
        started = client.until("input_audio_buffer.speech_started")
        stopped = client.until("input_audio_buffer.speech_stopped")
        committed = client.until("input_audio_buffer.committed")
        assert started["item_id"] == stopped["item_id"] == committed["item_id"]
        client.until("response.output_audio_transcript.delta")
        client.speak(0.6)  # over the answer
        client.settled()
        held.set()
        done = client.until("response.done")["response"]
        assert done["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
        client.speak(1.5, loud=0.0)
        client.until("input_audio_buffer.speech_started")
        assert client.until("response.done")["response"]["status"] == "completed"
        assert len(brain.said) == 2


def test_detected_speech_waits_for_response_create_where_the_client_wants_that():
    detection = {"type": "server_vad", "create_response": False, "silence_duration_ms": 200}
    update = {"audio": {"input": {"turn_detection": detection}}}
    with talking(["Yes."], update=update) as (client, _):
        client.speak(0.6)
        client.speak(0.8, loud=0.0)
        client.until("conversation.item.done")
        assert not client.of("response.created")
        client.send("response.create")
        assert client.until("response.done")["response"]["output"]


def place_of(client: Client, number: int) -> tuple[int, int]:
    """Return where an utterance was found, in ms of the sound sent."""
    started = client.of("input_audio_buffer.speech_started")[number]["audio_start_ms"]
    return started, client.of("input_audio_buffer.speech_stopped")[number]["audio_end_ms"]


@pytest.mark.parametrize("pieces", [1, 30])
def test_detected_speech_is_placed_in_the_sound_that_was_sent(pieces):
    detection = {"type": "server_vad", "create_response": False, "silence_duration_ms": 400}
    update = {"audio": {"input": {"turn_detection": detection}}}
    with talking(update=update) as (client, _):
        sound = np.concatenate(
            [np.full(RATE * ms // 1000, loud, "<i2")
             for ms, loud in ((2000, 0), (600, 16000), (3000, 0), (900, 16000), (1000, 0))]
        )  # fmt: skip
        for piece in np.array_split(sound, pieces):
            data = base64.b64encode(piece.tobytes()).decode()
            client.send("input_audio_buffer.append", audio=data)
        while len(client.of("input_audio_buffer.speech_stopped")) < 2:
            client.next()
        for number, (start, end) in enumerate([(2000, 2600), (5600, 6500)]):
            started, stopped = place_of(client, number)
            assert start - 350 - 64 <= started <= start - 350 + 96
            assert end + 400 - 64 <= stopped <= end + 400 + 64


def test_a_transcription_session_answers_nothing():
    with (
        serving(brain=ScriptedBrain(heard="the words")) as server,
        session(server, query="?intent=transcription") as client,
    ):
        assert client.of("session.created")[0]["session"]["type"] == "transcription"
        client.speak(0.6)
        client.speak(1.5, loud=0.0)
        words = client.until("conversation.item.input_audio_transcription.completed")
        assert words["transcript"] == "the words"
        client.send("response.create")
        client.until("error")
        assert not client.of("response.created")


def heard_by(**audio_input) -> dict:
    return {"audio": {"input": audio_input}}


def test_the_detection_in_force_is_shown():
    vad = VadConfig(threshold=0.6, end_ms=900)
    with talking(update=None, config=Config(vad=vad)) as (client, _):
        asked = {"type": "server_vad", "silence_duration_ms": 300}
        client.send("session.update", session=heard_by(turn_detection=asked))
        client.until("session.updated")
        client.send("session.update", session=heard_by(turn_detection={"type": "semantic_vad"}))
        client.until("session.updated")
        first, second, third = (
            event["session"]["audio"]["input"]["turn_detection"]
            for event in client.seen if event["type"].startswith("session.")
        )  # fmt: skip
        common = {"create_response": True, "interrupt_response": True}
        first_wanted = {
            **common, "type": "server_vad", "threshold": 0.6, "silence_duration_ms": 900,
            "prefix_padding_ms": 350, "idle_timeout_ms": None,
        }  # fmt: skip
        assert first == first_wanted
        assert second == {**first_wanted, "silence_duration_ms": 300}
        assert third == {**common, "type": "semantic_vad", "eagerness": "auto"}


WITHOUT_EFFECT = {
    "include": ["item.input_audio_transcription.logprobs"],
    "tracing": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "low"},
    "tool_choice": "none",
}


def test_what_has_no_effect_is_echoed():
    hears = {
        "transcription": {"model": "whisper-1", "language": "en", "prompt": "words"},
        "noise_reduction": {"type": "near_field"},
    }
    update = {**WITHOUT_EFFECT, "audio": {"input": hears, "output": {"voice": {"id": "v"}}}}
    with talking(update=update) as (client, _):
        shown = client.seen[-1]["session"]
        assert {name: shown[name] for name in WITHOUT_EFFECT} == WITHOUT_EFFECT
        assert {name: shown["audio"]["input"][name] for name in hears} == hears
        assert shown["audio"]["output"]["voice"] == {"id": "v"}


def test_each_field_of_the_official_client_is_known():
    """Whatever value is refused, no field of OpenAI's is an unknown one."""
    shapes = [
        ("session.update", RealtimeSessionCreateRequestParam, "session"),
        ("session.update", RealtimeTranscriptionSessionCreateRequestParam, "session"),
        ("response.create", RealtimeResponseCreateParamsParam, "response"),
    ]
    with talking() as (client, _):
        for kind, shape, param in shapes:
            for name in shape.__annotations__:
                client.send(kind, **{param: {name: 1.5}})
                error = client.until("error")["error"]
                assert error["code"] != "unknown_parameter", name
                assert error["param"] == f"{param}.{name}"


UPDATE, ITEM = "session.update", "conversation.item"
CREATE, NOT, UNKNOWN = "response.create", "not_supported", "unknown_parameter"
HEARD, TURNS, MODALITIES = "session.audio.input", "turn_detection", "session.output_modalities"
CHOICE = {"type": "function", "name": "nothing"}
TOWN = {"type": "object", "properties": {"town": {"type": "string"}}}
RAIN_TOOL = {"type": "function", "name": "get-rain", "description": "Rain?", "parameters": TOWN}
RESULT = {"type": "function_call_output", "output": "3 mm"}
IDLE = {"type": "server_vad", "idle_timeout_ms": 5000}
MIXED = {"type": "server_vad", "eagerness": "low"}
NO_WORDS = {"type": "message", "role": "user", "content": []}
SOUND = [{"type": "input_audio", "audio": "AAAA"}]
LONG = [{"type": "input_text", "text": "x" * 2001}] * 2
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
WRONG = [{"type": "output_text", "text": "Hello."}]


@pytest.mark.parametrize(
    ("kind", "fields", "code", "param"),
    [
        (UPDATE, {"session": {"tool_choice": CHOICE}}, "", "session.tool_choice"),
        (UPDATE, {"session": {"tools": [{"type": "mcp"}]}}, "", "session.tools[0].type"),
        (UPDATE, {"session": {"tools": [RAIN_TOOL] * 2}}, "", "session.tools"),
        (UPDATE, {"session": {"prompt": {"id": "pmpt_1"}}}, NOT, "session.prompt"),
        (UPDATE, {"session": {"temperature": 1}}, UNKNOWN, "session.temperature"),
        (UPDATE, {"session": {"modalities": ["text"]}}, UNKNOWN, "session.modalities"),
        (UPDATE, {"session": {"output_modalities": ["text", "audio"]}}, "", MODALITIES),
        (
            UPDATE,
            {"session": {"audio": {"output": {"speed": 9}}}},
            "",
            "session.audio.output.speed",
        ),
        (UPDATE, {"session": heard_by(format={"type": "audio/pcmu"})}, "", f"{HEARD}.format.type"),
        (UPDATE, {"session": heard_by(formats=1)}, UNKNOWN, f"{HEARD}.formats"),
        (
            UPDATE,
            {"session": heard_by(turn_detection=IDLE)},
            "",
            f"{HEARD}.{TURNS}.idle_timeout_ms",
        ),
        (
            UPDATE,
            {"session": heard_by(turn_detection=MIXED)},
            UNKNOWN,
            f"{HEARD}.{TURNS}.eagerness",
        ),
        (UPDATE, {"session": {"instructions": "x" * 5000}}, "", "session.instructions"),
        (UPDATE, {"sesion": {}}, UNKNOWN, "sesion"),
        ("transcription_session.update", {}, "", "type"),
        (UPDATE, {}, "", "session"),
        ("input_audio_buffer.append", {"audio": "!"}, "", "audio"),
        ("input_audio_buffer.append", {"audio": 5}, "", "audio"),
        ("input_audio_buffer.append", {"audio": "ä"}, "", "audio"),
        ("input_audio_buffer.commit", {}, "input_audio_buffer_commit_empty", None),
        ("response.cancel", {}, "response_cancel_not_active", None),
        (CREATE, {"response": {"conversation": "none"}}, NOT, "response.conversation"),
        (CREATE, {"response": {"input": []}}, NOT, "response.input"),
        (CREATE, {"response": {"tools": [{}]}}, "", "response.tools[0].name"),
        (CREATE, {"response": {"truncation": "auto"}}, UNKNOWN, "response.truncation"),
        (CREATE, {"response": heard_by()}, UNKNOWN, "response.audio.input"),
        (CREATE, {"response": {"max_output_tokens": 0}}, "", "response.max_output_tokens"),
        (CREATE, {"response": {"metadata": {"a": 1}}}, "", "response.metadata"),
        (f"{ITEM}.truncate", {"item_id": "x"}, "item_truncate_invalid_item_id", "item_id"),
        (f"{ITEM}.retrieve", {"item_id": "x"}, "item_retrieve_invalid_item_id", "item_id"),
        (f"{ITEM}.delete", {"item_id": "x"}, "item_delete_invalid_item_id", "item_id"),
        (f"{ITEM}.create", {"item": {"type": "function_call_output"}}, "", "item.call_id"),
        (f"{ITEM}.create", {"item": {**RESULT, "call_id": "none"}}, "", "item.call_id"),
        (f"{ITEM}.create", {"item": NO_WORDS}, "", "item.content"),
        (f"{ITEM}.create", {"item": {**NO_WORDS, "name": "x"}}, UNKNOWN, "item.name"),
        (f"{ITEM}.create", {"item": {**NO_WORDS, "content": LONG}}, "", "item.content"),
        (f"{ITEM}.create", {"item": {**NO_WORDS, "id": "x" * 300}}, "", "item.id"),
        (f"{ITEM}.create", {"item": {**CALL, "arguments": "x" * 5000}}, "", "item.arguments"),
        (f"{ITEM}.create", {"item": {**CALL, "name": "x" * 65}}, "", "item.name"),
        (f"{ITEM}.create", {"item": {**CALL, "call_id": "x" * 300}}, "", "item.call_id"),
        (f"{ITEM}.create", {"item": {**RESULT, "output": "x" * 5000}}, "", "item.output"),
        (f"{ITEM}.create", {"item": {"type": "message", "content": []}}, "", "item.role"),
        (f"{ITEM}.create", {"item": {**NO_WORDS, "content": SOUND}}, "", "item.content"),
        (f"{ITEM}.create", {"item": {**NO_WORDS, "content": WRONG}}, "", "item.content"),
        ("nothing.known", {}, "", "type"),
        ("output_audio_buffer.clear", {}, "", "type"),
    ],
)
def test_what_cannot_be_done_is_an_error_and_the_session_goes_on(manual, kind, fields, code, param):
    manual.send(kind, **fields, event_id="mine")
    error = manual.until("error")["error"]
    assert (error["code"], error["param"]) == (code or "invalid_value", param)
    assert error["event_id"] == "mine"
    assert error["message"]


DEEP = '{"type": "session.update", "session": ' + '{"a": ' * 5000 + "1" + "}" * 5001


def test_what_is_no_json_is_an_error_too(manual):
    for message in ("{", "[]", "5", '"text"', "[" * 100_000, DEEP):
        manual.socket.send_text(message)
        assert manual.until("error")["error"]["message"]


@pytest.fixture(scope="module")
def manual():
    with talking() as (client, _):
        yield client


def test_a_brain_that_fails_fails_one_response():
    with talking([ModelError("Out of memory.")], ["Yes."]) as (client, _):
        client.say()
        done = client.until("response.done")["response"]
        assert done["status"] == "failed"
        assert "Out of memory." in done["status_details"]["error"]["message"]
        client.say()
        assert client.until("response.done")["response"]["status"] == "completed"


def test_an_utterance_has_a_longest_length():
    with talking(config=Config(audio=AudioConfig(max_utterance_s=1))) as (client, _):
        client.speak(0.9)
        client.speak(0.9)
        assert client.until("error")["error"]["param"] == "audio"
        client.send("input_audio_buffer.commit")
        client.until("input_audio_buffer.committed")


@pytest.mark.parametrize("detects", [False, True])
def test_sound_that_waits_for_an_answer_has_a_longest_length(detects):
    go_on = threading.Event()
    vad = {"type": "server_vad", "interrupt_response": False} if detects else None
    config = Config(audio=AudioConfig(max_utterance_s=1))
    update = heard_by(turn_detection=vad)
    with talking([go_on, "One."], update=update, config=config) as (client, _):
        client.send("response.create")
        client.until("response.created")
        for _ in range(2):
            client.speak(0.7)
            if not detects:
                client.send("input_audio_buffer.commit")
        error = client.until("error")["error"]
        assert (error["param"], "Wait for response.done" in error["message"]) == ("audio", True)
        go_on.set()
        client.until("response.done")


def test_all_system_items_have_a_longest_length(manual):
    manual.text("x" * 3000, "system")
    manual.text("x" * 3000, "system")
    assert manual.until("error")["error"]["param"] == "item.content"


def test_a_client_that_comes_back_at_once_gets_the_set_that_it_had():
    with serving() as server:
        for _ in range(3):
            with session(server):
                pass


def test_one_session_more_is_told_so_and_the_set_is_free_afterwards():
    path = "/v1/realtime"
    with serving(hand_over_s=0.0) as server:
        with session(server), server.client.websocket(path) as socket:
            error = json.loads(socket.receive_text())
            EVENT.validate_python(error)
            assert error["error"]["code"] == "session_limit_reached"
            with pytest.raises(Exception, match="1013"):
                socket.receive_text()
        until(lambda: free(server))
        with session(server):
            pass


def test_the_subprotocol_with_the_key_is_never_echoed():
    protocols = ["realtime", "openai-insecure-api-key.secret"]
    with serving(token="secret") as server:
        with server.client.websocket("/v1/realtime", subprotocols=protocols) as socket:
            assert "session.created" in socket.receive_text()
            assert socket.subprotocol == "realtime"
        with pytest.raises(Exception, match="401"), server.client.websocket("/v1/realtime"):
            pass


def test_a_client_secret_opens_its_session_and_nothing_else(monkeypatch):
    url = "/v1/realtime/client_secrets"
    with serving(token="secret") as server:
        assert server.client.post(url).status_code == 401
        with OpenAI(base_url=f"{server.url}/v1", api_key="secret", max_retries=0) as openai:
            made = openai.realtime.client_secrets.create(
                expires_after={"anchor": "created_at", "seconds": 60},
                session={"type": "realtime", "instructions": "Be a pirate."},
            )
            with pytest.raises(Exception, match="seconds"):
                openai.realtime.client_secrets.create(expires_after={"seconds": 5})
        assert made.value.startswith("ek_")
        assert 0 < made.expires_at - time.time() <= 60
        assert made.session.instructions == "Be a pirate."
        key = {"Authorization": f"Bearer {made.value}"}
        assert server.client.get("/v1/models", headers=key).status_code == 401
        assert server.client.post(url, headers=key).status_code == 401
        with server.client.websocket("/v1/realtime", headers=key) as socket:
            shown = json.loads(socket.receive_text())["session"]
            assert shown["instructions"] == "Be a pirate."
        later = time.monotonic() + 61
        monkeypatch.setattr("voxtui.serve.realtime.client_secrets.monotonic", lambda: later)
        with (
            pytest.raises(Exception, match="401"),
            server.client.websocket("/v1/realtime", headers=key),
        ):
            pass


def test_an_unknown_model_is_refused(server):
    with pytest.raises(Exception, match="404"), server.client.websocket("/v1/realtime?model=no"):
        pass


@pytest.mark.parametrize(
    ("limit", "words"), [("IDLE_SECONDS", "said anything"), ("SESSION_SECONDS", "lasts")]
)
def test_a_session_that_ends_by_itself_says_why(monkeypatch, limit, words):
    monkeypatch.setattr(f"voxtui.serve.realtime.connection.{limit}", 0.01)
    with given_back(), shared[0].client.websocket("/v1/realtime") as socket:
        client = Client(socket)
        error = client.until("error")["error"]  # perhaps before the session has begun
        assert error["code"] == "session_expired"
        assert words in error["message"]
        with pytest.raises(Exception, match="1000"):
            client.next()


def test_a_stop_of_the_server_lets_the_answer_end():
    held = threading.Event()
    with (
        serving(brain=ScriptedBrain(["One ", held, "two."])) as server,
        session(server, PUSH_TO_TALK) as client,
    ):
        client.say()
        client.until("response.output_audio_transcript.delta")
        server.stop()
        held.set()
        done = client.until("response.done")["response"]
        assert done["status"] == "completed"
        with pytest.raises(Exception, match="1001"):
            client.next()


ACTIONS = (
    "speak", "commit", "create", "cancel", "clear", "text", "delete", "truncate", "manual",
    "detected", "silence", "settled",
)  # fmt: skip


def act(client: Client, action: str) -> None:
    """Do one thing that a client may do at any time."""
    items = [event["item"]["id"] for event in client.of("conversation.item.added")]
    latest = items[-1] if items else "none"
    match action:
        case "speak":
            client.speak(0.4)
        case "silence":
            client.speak(1.2, loud=0.0)
        case "commit" | "clear":
            client.send(f"input_audio_buffer.{action}")
        case "create" | "cancel":
            client.send(f"response.{action}")
        case "text":
            client.text("Well?")
        case "delete":
            client.send("conversation.item.delete", item_id=latest)
        case "truncate":
            client.send(
                "conversation.item.truncate", item_id=latest, content_index=0, audio_end_ms=30
            )
        case "manual":
            client.send("session.update", session=PUSH_TO_TALK)
        case "detected":
            client.send("session.update", session=DETECTED)
        case _:
            client.settled()


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(ACTIONS), max_size=14))
def test_in_any_order_each_answer_ends_once_and_the_session_stays_usable(actions):
    BRAIN.__init__(*([["One ", "two."]] * 20))
    with given_back(), session(shared[0], PUSH_TO_TALK) as client:
        for action in actions:
            act(client, action)
        act(client, "manual")
        client.settled()
        while len(client.of("response.created")) > len(client.of("response.done")):
            client.next()
        client.send("input_audio_buffer.clear")
        client.until("input_audio_buffer.cleared")
        client.text("Still there?")
        client.send("response.create", response={"metadata": {"which": "last"}})
        while client.until("response.done")["response"]["metadata"] != {"which": "last"}:
            pass
        assert client.seen[-1]["response"]["status"] == "completed"
    begun: str | None = None
    for event in client.seen:
        kind, response = event["type"], event.get("response_id")
        if kind == "response.created":
            assert begun is None  # one at a time
            begun = event["response"]["id"]
        elif kind == "response.done":
            assert event["response"]["id"] == begun
            begun = None
        elif response is not None:
            assert response == begun  # nothing before, nothing afterwards
    added = [event["item"]["id"] for event in client.of("conversation.item.added")]
    done = [event["item"]["id"] for event in client.of("conversation.item.done")]
    assert len(set(added)) == len(added)
    assert sorted(done) == sorted(added)


def test_a_function_of_the_client_is_called_and_its_result_worded():
    BRAIN.__init__([ToolCall("get_rain", '{"town": "Oslo"}')], ["Yes, ", "3 mm."])
    update = {**WORDS, "tools": [RAIN_TOOL], "tool_choice": "required"}
    with given_back(), session(shared[0], update) as client:
        client.say()
        done = client.until("response.done")["response"]
        assert done["status"] == "completed"
        (call,) = done["output"]
        assert (call["type"], call["name"]) == ("function_call", "get-rain")
        assert json.loads(call["arguments"]) == {"town": "Oslo"}
        (arguments,) = client.of("response.function_call_arguments.done")
        assert arguments["call_id"] == call["call_id"]
        (options,) = BRAIN.manners
        assert [tool.name for tool in options.tools] == ["get_rain"]
        assert options.tool_choice == "required"
        result = {**RESULT, "call_id": call["call_id"]}
        client.send("conversation.item.create", item=result)
        client.send("response.create")
        done = client.until("response.done")["response"]
        assert done["output"][0]["content"][0]["transcript"] == "Yes, 3 mm."
        (finished,) = BRAIN.requests[-1].calls
        assert (finished.call.name, finished.result) == ("get_rain", "3 mm")
        assert not BRAIN.requests[-1].past


def test_a_function_is_called_for_instructions_alone_and_its_result_worded():
    BRAIN.__init__([ToolCall("get_rain", "{}")], ["3 mm."], ["No."])
    update = {**PUSH_TO_TALK, "instructions": "Be kind.", "tools": [RAIN_TOOL]}
    request = "How much rain is in Oslo? Use the tool."
    with given_back(), session(shared[0], update) as client:
        # as livekit does, which repeats the session's instructions
        client.send("response.create", response={"instructions": f"Be kind.\n{request}"})
        (call,) = client.until("response.done")["response"]["output"]
        assert (call["type"], call["name"]) == ("function_call", "get-rain")
        client.send("conversation.item.create", item={**RESULT, "call_id": call["call_id"]})
        client.send("response.create")
        client.until("response.done")
        client.text("Thanks.")
        client.send("response.create")
        client.until("response.done")
    first, second, third = BRAIN.requests
    assert (first.user_input, second.user_input) == (request, request)
    assert {turn.options.instruction for turn in BRAIN.requests} == {"Be kind."}
    assert [finished.result for finished in second.calls] == ["3 mm"]
    assert [(turn.user_text, turn.reply_text) for turn in third.past] == [
        (request, ""), ("", "3 mm."),
    ]  # fmt: skip


def test_a_field_that_is_refused_leaves_the_others_in_force(manual):
    manual.send(UPDATE, session={"prompt": {"id": "pmpt_1"}, "instructions": "Be brief."})
    assert manual.until("session.updated")["session"]["instructions"] == "Be brief."
    assert manual.until("error")["error"]["param"] == "session.prompt"
