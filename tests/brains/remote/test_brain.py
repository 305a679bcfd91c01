"""The remote brain against a real server over real sockets, which does what servers do."""

from __future__ import annotations

import base64
import io
import json
import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.fakes import SECONDS, Flag
from tests.openai_server import CERTIFICATE, Told, event, returns, says, sends, serving
from voxtui.brains.remote import connection as wire
from voxtui.brains.remote.brain import RemoteBrain
from voxtui.dialogue.data import Token, UserTranscript, Utterance
from voxtui.dialogue.interfaces import PastTurn
from voxtui.dialogue.marks import Mark, Marks
from voxtui.dialogue.recording import Recording
from voxtui.errors import RemoteError
from voxtui.settings.schema import BrainConfig, Config, GenerationConfig, RemoteBrainConfig

KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def no_key_and_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VOXTUI_API_KEY", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def server() -> Iterator[Told]:
    with serving() as told:
        yield told


@pytest.fixture
def make(server: Told) -> Iterator[Any]:
    """Makes brains for the server, without asking it anything."""
    with ExitStack() as stack:

        def make(generation: GenerationConfig | None = None, **remote: Any) -> RemoteBrain:
            config = RemoteBrainConfig(**{"url": server.url, "model": "a-model", **remote})
            brain = RemoteBrain(
                Config(
                    brain=BrainConfig(name="remote", instruction="Be kind.", remote=config),
                    generation=generation or GenerationConfig(),
                ),
                make.said.append,
            )
            stack.callback(brain.close)
            return brain

        make.said = []
        yield make


def warm(brain: RemoteBrain) -> RemoteBrain:
    brain.warm_up(lambda step, fraction: None)
    return brain


def utterance(seconds: float = 0.5) -> Utterance:
    samples = np.linspace(-1, 1, int(16_000 * seconds), dtype=np.float32)
    return Utterance(samples, ((0.0, seconds),), 0.0)


def replied(brain: RemoteBrain, said: Utterance | str = "hello", past=(), marks=None) -> str:
    items = list(brain.reply(past, said, marks or Marks(), Flag()))
    return "".join(item.text for item in items if isinstance(item, Token))


def refused(brain: RemoteBrain, said: Utterance | str = "hello") -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        replied(brain, said)
    return caught.value


# Streaming.


def test_each_token_is_handed_on_while_the_server_still_works_on_the_next(server, make):
    taken: queue.SimpleQueue[str] = queue.SimpleQueue()

    def answer(exchange):
        exchange.begin()
        for text in ("One", " two", "."):
            exchange.tokens(text)
            assert taken.get(timeout=SECONDS) == text
        exchange.chunk(event(finish="stop"))
        exchange.end()

    server.answers["chat/completions"] = answer
    for item in make().reply((), "hello", Marks(), Flag()):
        if isinstance(item, Token):
            assert item.id is None
            taken.put(item.text)
    assert taken.empty()


CAFE = event("Café 🎈").encode()
STOP = event(finish="stop")


@pytest.mark.parametrize(
    "chunks",
    [
        [CAFE, STOP, "data: [DONE]\n\n"],
        [bytes([byte]) for byte in CAFE + STOP.encode()],
        [CAFE + STOP.encode() + b"data: [DONE]\n\n"],
        [CAFE.replace(b"\n", b"\r\n"), STOP.replace("\n", "\r\n")],
        [": keep-alive\n\n", CAFE, ":\n\n", STOP],
        [b"\xef\xbb\xbf" + b"event: message\nid: 7\nretry: 10\n" + CAFE, STOP],
        [CAFE.replace(b"data: ", b"data:"), STOP, 'data: {"choices": [], "usage": {"n": 1}}\n\n'],
        ['data: {"choices": null}\n\n', CAFE, STOP],
        [event(""), CAFE, event(None), STOP, "data: [DONE]\n\n: and more\n\n"],
        [CAFE, event("", finish="length")],
        ['data: {"choices": [{"index": 0}]}\n\n', CAFE, STOP],
    ],
    ids=["plain", "byte by byte", "at once", "crlf", "comments", "fields", "usage", "null",
         "empty deltas", "no done", "no delta"],
)  # fmt: skip
def test_a_stream_is_understood_however_it_is_cut_and_decorated(server, make, chunks):
    server.answers["chat/completions"] = sends(*chunks)
    assert replied(make()) == "Café 🎈"


def test_no_command_to_the_terminal_comes_through(server, make):
    server.answers["chat/completions"] = says("\x1b]0;title\x07Two\n\t", "lines\x9b2J\r.")
    assert replied(make()) == "]0;titleTwo\n\tlines2J."
    server.answers["audio/transcriptions"] = returns({"text": "so \x1b[31mit\x00 is"})
    heard, *_ = make(transcription_model="w").reply((), utterance(), Marks(), Flag())
    assert heard == UserTranscript("so [31mit is")


def test_half_a_character_is_no_text(server, make):
    """Servers that count in 16 bits send a balloon in two halves, which nothing can write."""
    server.answers["chat/completions"] = says("Yes", "\ud83c", "\udf88", "!")
    brain = make()
    assert replied(brain) == "Yes!"


def test_a_stream_is_utf8_whatever_it_says(server, make):
    def answer(exchange):
        exchange.begin("text/event-stream; charset=latin-1")
        exchange.chunk('data: {"choices": [{"delta": {"content": "Café"}, "finish_reason": "x"}]}')
        exchange.chunk("\n\n")
        exchange.end()

    server.answers["chat/completions"] = answer
    assert replied(make()) == "Café"


def test_a_server_that_does_not_stream_is_understood_too(server, make):
    message = {"message": {"content": "All at once."}, "finish_reason": "stop"}
    server.answers["chat/completions"] = returns({"choices": [message]})
    assert replied(make()) == "All at once."


def test_an_answer_is_no_longer_than_was_asked_for(server, make):
    server.answers["chat/completions"] = says(*"abcdef")
    brain = make(GenerationConfig(max_new_tokens=3))
    assert replied(brain) == "abc"
    assert server.chats()[0].json["max_tokens"] == 3


@pytest.mark.parametrize(
    ("chunks", "text", "sentence"),
    [
        ([event("Half"), event(" of")], "Half of", "connection closed before the end"),
        ([event("Half"), "data: [DONE]\n\n"], "Half", "connection closed before the end"),
        ([event("Half"), 'data: {"error": {"message": "GPU\\nlost"}}\n\n'], "Half",
         "stopped the reply: “GPU lost”"),
        (['data: {"error": "no memory"}\n\n'], "", "stopped the reply: “no memory”"),
        ([event("Half"), "data: {nonsense\n\n"], "Half", "Invalid response from .* .HTTP 200."),
        (["data: 7\n\n"], "", "Invalid response from .* .HTTP 200."),
        (['data: {"choices": 7}\n\n'], "", "Invalid response from .* .HTTP 200."),
        (["data: " + "[" * 100_000 + "\n\n"], "", "Invalid response from .* .HTTP 200."),
        (["data: " + "x" * (1 << 20)], "", "Invalid response from .* .HTTP 200."),
        ([STOP], "", "a-model: empty reply"),
    ],
)  # fmt: skip
def test_a_broken_stream_keeps_its_text_and_is_told(server, make, chunks, text, sentence):
    server.answers["chat/completions"] = sends(*chunks)
    brain, came = make(), ""
    with pytest.raises(RemoteError, match=sentence):
        for item in brain.reply((), "hello", Marks(), Flag()):
            came += item.text if isinstance(item, Token) else ""
    assert came == text
    server.answers["chat/completions"] = says("Well again.")
    assert replied(brain) == "Well again."


def test_a_connection_that_breaks_keeps_its_text_and_is_told(server, make):
    def answer(exchange):
        exchange.begin()
        exchange.tokens("Half")
        exchange.hang_up()

    server.answers["chat/completions"] = answer
    assert "127.0.0.1" in str(refused(make()))
    assert len(server.chats()) == 1  # something had come


def test_a_stream_without_end_is_left(server, make, monkeypatch):
    monkeypatch.setattr(wire, "LARGEST_STREAM", 10_000)

    def answer(exchange):
        exchange.begin()
        with pytest.raises(OSError):  # noqa: PT011
            while True:
                exchange.chunk(event(""))

    server.answers["chat/completions"] = answer
    assert "Invalid response" in str(refused(make()))


# What is asked.


def content(server: Told, message: int = -1) -> Any:
    return server.chats()[-1].json["messages"][message]["content"]


def test_sound_goes_as_a_wav_behind_the_instruction(server, make):
    said = utterance()
    replied(make(), said)
    (message,) = server.chats()[-1].json["messages"]
    text, sound = message["content"]
    assert (message["role"], text) == ("user", {"type": "text", "text": "Be kind."})
    assert (sound["type"], sound["input_audio"]["format"]) == ("input_audio", "wav")
    wav = io.BytesIO(base64.b64decode(sound["input_audio"]["data"]))
    samples, rate = soundfile.read(wav, dtype="float32")
    assert rate == 16_000
    assert samples == pytest.approx(said.samples, abs=1e-4)


def test_older_turns_are_words_where_they_are_known_and_sound_where_not(server, make):
    past = (
        PastTurn(utterance(), "what was said", (Token("Yes"), Token("."))),
        PastTurn(utterance(), None, (Token("No."),)),
        PastTurn("and typed", None, (Token("Well."),)),
    )
    replied(make(), "now", past)
    messages = server.chats()[-1].json["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant"] * 3 + ["user"]
    assert messages[0]["content"] == "Be kind.\n\nwhat was said"
    assert [part["type"] for part in messages[2]["content"]] == ["input_audio"]
    assert [m["content"] for m in messages[4:]] == ["and typed", "Well.", "now"]
    assert [m["content"] for m in messages[1::2]] == ["Yes.", "No.", "Well."]


def sounds_sent(request: Any) -> list[bool]:
    """Of each message of the user, whether it is sound."""
    return [isinstance(m["content"], list) for m in request.json["messages"][::2]]


def test_no_more_sounds_are_sent_than_voxtral_takes(server, make):
    brain = make()
    past = tuple(PastTurn(utterance(), None, (Token("Yes."),)) for _ in range(6))
    replied(brain, utterance(), past)
    assert sounds_sent(server.chats()[-1]) == [False] * 2 + [True] * 5
    assert "[User audio input - 8000 samples" in content(server, 2)
    replied(brain, "typed", past)
    assert sounds_sent(server.chats()[-1]) == [False] + [True] * 5 + [False]


def test_only_what_every_server_knows_is_asked_for_by_default(server, make):
    replied(make())
    asked = server.chats()[-1].json
    assert asked.pop("messages")
    assert asked == {
        "model": "a-model", "stream": True, "stream_options": {"include_usage": True},
        "max_tokens": 160, "temperature": 0.2, "top_p": 0.95,
        "seed": 1,
    }  # fmt: skip


def test_a_refused_extension_names_the_preset_without_it(server, make):
    error = {"error": {"message": "Unrecognized request argument: top_k"}}
    server.answers["chat/completions"] = returns(error, 400)
    refusal = refused(make(GenerationConfig(preset="ultra")))
    assert "(HTTP 400): “Unrecognized request argument: top_k”." in refusal.message
    assert "generation.preset = balanced" in refusal.hint
    assert len(server.chats()) == 1
    assert refused(make()).hint == ""


def test_a_refused_value_is_not_sent_again(server, make):
    said = {"error": {"message": "max_tokens is too large: 160"}}
    server.answers["chat/completions"] = returns(said, 400)
    assert "refused the request (HTTP 400): “max_tokens is too large: 160”." in str(refused(make()))
    assert len(server.chats()) == 1


# The connection.


def test_a_conversation_takes_one_connection_made_before_the_first_word(server, make):
    brain = warm(make())
    for _ in range(3):
        brain.listen((), Recording(), Flag())
        assert replied(brain, utterance()) == "It is noon."
    assert server.connections == 1


def test_a_held_key_keeps_the_connection_from_getting_cold(server, make, monkeypatch):
    monkeypatch.setattr("voxtui.brains.remote.brain.WARM_AGAIN_SECONDS", 0.0)
    brain = warm(make())
    brain.wake()
    replied(brain)
    assert [request.path for request in server.requests] == [
        "/v1/models", "/v1/models", "/v1/chat/completions",
    ]  # fmt: skip


def test_nothing_that_was_said_is_sent_before_the_key_comes_up(server, make):
    brain = warm(make())
    brain.listen((), Recording(), Flag())
    brain.wake()
    brain.close()
    assert {request.path for request in server.requests} == {"/v1/models"}


def test_a_connection_that_the_server_has_closed_is_made_anew_and_the_turn_not_lost(server, make):
    brain = warm(make())

    def dead_once(exchange):
        server.answers["chat/completions"] = says("Here.")
        exchange.hang_up()

    server.answers["chat/completions"] = dead_once
    assert replied(brain) == "Here."
    assert (server.connections, len(server.chats())) == (2, 2)


def test_a_new_connection_that_breaks_is_not_tried_again(server, make):
    server.answers["chat/completions"] = lambda exchange: exchange.hang_up()
    assert "connection lost" in str(refused(make()))
    assert len(server.chats()) == 1


@pytest.mark.parametrize("stage", ["headers", "token", "transcript"])
def test_a_turn_that_is_cancelled_hangs_up_at_once_and_the_next_one_works(server, make, stage):
    stuck = Flag()

    def answer(exchange):
        if stage == "token":
            exchange.begin()
            exchange.tokens("One")
        else:
            stuck.set()
        exchange.until_hung_up()

    path = "audio/transcriptions" if stage == "transcript" else "chat/completions"
    before, server.answers[path] = server.answers[path], answer
    brain = make(transcription_model="whisper" if stage == "transcript" else "")
    cancelled, came = Flag(), []

    def take():
        for item in brain.reply((), utterance(), Marks(), cancelled):
            came.append(item)
            stuck.set()

    taking = threading.Thread(target=take)
    taking.start()
    assert stuck.wait(SECONDS)
    cancelled.set()
    taking.join(SECONDS)
    assert not taking.is_alive()
    assert server.hung_up.wait(SECONDS)
    assert came == ([Token("One")] if stage == "token" else [])
    server.answers[path] = before
    assert replied(brain, utterance()) == "It is noon."


def test_a_turn_can_be_cancelled_while_it_still_connects(make):
    with socket.socket() as full, ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):  # what waits to be accepted fills the queue: no more connect
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        brain = make(url=f"http://127.0.0.1:{full.getsockname()[1]}/v1")
        cancelled = Flag()
        threading.Timer(0.1, cancelled.set).start()
        assert list(brain.reply((), utterance(), Marks(), cancelled)) == []


def test_what_was_cancelled_while_it_connected_is_not_sent_afterwards():
    connecting, left, (ours, theirs) = Flag(), Flag(), socket.socketpair()

    class Client:
        @contextmanager
        def stream(self, method, url, extensions):
            connecting.set()
            assert left.wait(SECONDS)
            connected = SimpleNamespace(get_extra_info=lambda name: ours)
            extensions["trace"]("connection.connect_tcp.complete", {"return_value": connected})
            ours.send(b"what was said")
            yield

        def close(self) -> None:
            ours.close()

    with theirs:
        connection = wire.Connection(None, Client())
        request = wire.Request(connection, "POST", "http://far.example", {})
        assert connecting.wait(SECONDS)
        connection.abandon()
        left.set()
        assert connection.idle.wait(SECONDS)
        assert theirs.recv(100) == b""
        with pytest.raises(OSError, match="Broken pipe"):
            list(request.items(SECONDS))


def test_a_slow_answer_to_the_warming_request_is_not_waited_for_long(server, make, monkeypatch):
    monkeypatch.setattr(wire, "BUSY_SECONDS", 0.1)
    brain = warm(make())
    server.answers["models"] = lambda exchange: exchange.until_hung_up()
    brain.listen((), Recording(), Flag())
    assert replied(brain) == "It is noon."
    assert server.hung_up.wait(SECONDS)


def test_what_the_network_took_is_a_part_of_the_time_to_the_first_token(server, make):
    thinking = 0.4

    def answer(exchange):
        threading.Event().wait(thinking)
        exchange.begin()
        exchange.tokens("One")
        exchange.chunk(event(finish="stop"))
        exchange.end()

    server.answers["chat/completions"] = answer
    marks = Marks()
    marks.mark(Mark.RELEASED)
    for item in warm(make()).reply((), utterance(), marks, Flag()):
        if isinstance(item, Token):
            marks.mark(Mark.FIRST_TOKEN)
    reached = marks.since_release()
    assert 0 < marks.network_s < thinking
    # Not to the millisecond: on a busy machine this side may look up late.
    assert 0 < reached["sent"] <= reached["first_token"] - thinking / 2


def test_what_makes_a_request_ready_is_not_the_networks(server, monkeypatch):
    ahead = 0.0

    class Slow(dict):
        """Takes 100 s to be written as JSON."""

        def items(self):
            nonlocal ahead
            ahead = 100.0
            return super().items()

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead)
    monkeypatch.setattr(wire, "time", clock)
    there, timing = wire.Endpoint(server.url, timeout_s=1000.0), wire.Timing()
    assert any(there.request("POST", "chat/completions", timing, json=Slow(model="a-model")))
    there.close()
    assert ahead
    assert 0 < timing.network_s < 50


# Patience.


def test_a_server_is_not_late_because_the_process_was_suspended(monkeypatch):
    """While it is stopped by Ctrl+Z, the clock goes on."""
    go_on = Flag()

    class Client:
        @contextmanager
        def stream(self, method, url, extensions):
            assert go_on.wait(SECONDS)
            yield SimpleNamespace(status_code=200, headers={}, iter_bytes=lambda: [b'{"id": 1}'])

    items = wire.Request(wire.Connection(None, Client()), "GET", "", {}).items(SECONDS)
    monkeypatch.setattr(time, "monotonic", count(0.0, 100.0).__next__)
    assert [next(items), next(items)] == [None, None]
    go_on.set()
    assert [item for item in items if item is not None] == [{"id": 1}]


@pytest.mark.parametrize("alive", [False, True], ids=["silent", "only comments"])
def test_a_server_that_says_nothing_is_given_up(server, make, alive):
    def answer(exchange):
        exchange.begin()
        exchange.until_hung_up(meanwhile=": still here\n\n" if alive else None)

    server.answers["chat/completions"] = answer
    error = refused(make(timeout_s=0.1))
    assert "no data for 0.1 s" in str(error)
    assert "brain.remote.timeout_s" in error.hint
    assert server.hung_up.wait(SECONDS)


# Refusals.


@pytest.mark.parametrize(
    ("status", "body", "head", "sentence"),
    [
        (401, {"error": {"message": "who?"}}, {}, "requires an API key (HTTP 401): “who?”."),
        (403, "", {}, "requires an API key (HTTP 403). Set VOXTUI_API_KEY."),
        (404, {"message": "no a-model"}, {}, "model or address not found (HTTP 404): “no a-model”"),
        (404, "<html>nginx</html>", {}, "not found (HTTP 404). Check brain.remote.url."),
        (400, '[{"error": "no such thing"}]', {}, '(HTTP 400): “[{"error": "no such thing"}]”.'),
        (400, {"error": {"code": 7}}, {}, '(HTTP 400): “{"code": 7}”.'),
        (422, {"detail": [{"loc": ["body", "n"], "msg": "Too few"}]}, {}, '"msg": "Too few"'),
        (413, "", {}, "Request too large for 127.0.0.1"),
        (429, {"error": "slow down"}, {"Retry_After": "7"}, "“slow down”. Try again in 7 s."),
        (429, "", {"Retry_After": "99999999999999"}, "exceeded (HTTP 429). Try again later."),
        (429, "", {"Retry_After": "999999999"}, "exceeded (HTTP 429). Try again later."),
        (429, "", {"Retry_After": "Wed, 21 Oct 2026 07:28:00 GMT"}, "429). Try again later."),
        (500, {"detail": "bug"}, {}, "server error (HTTP 500): “bug”."),
        (503, "\x1b[31mred\nalert", {}, "red alert”. Its model may still be loading."),
        (307, "", {"Location": "https://me:pw@evil.example:8443/v1"},
         "redirects to evil.example:8443 (HTTP 307)."),
        (307, "", {"Location": "/v2"}, "redirects to another address (HTTP 307)."),
        (418, "a teapot", {}, "refused the request (HTTP 418): “a teapot”."),
        (
            400,
            {"error": {"message": "exceeds the available context size"}},
            {},
            "context size”. Start a new conversation",
        ),
    ],
)  # fmt: skip
def test_a_refusal_is_a_sentence(server, make, status, body, head, sentence):
    server.answers["chat/completions"] = returns(body, status, "text/plain", **head)
    assert sentence in str(refused(make()))


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "At most 0 audio(s) may be provided in one prompt."),
        (500, "audio input is not supported - hint: you may need to provide the mmproj"),
        (404, "No endpoints found that support input audio"),
    ],
)
def test_a_model_that_takes_no_sound_is_told_from_other_refusals(server, make, status, said):
    server.answers["chat/completions"] = returns({"error": {"message": said}}, status)
    error = refused(make(), utterance())
    assert (
        f"a-model at {server.host} does not accept audio (HTTP {status}): “{said}”."
        == error.message
    )
    assert "brain.remote.transcription_model" in error.hint
    assert len(server.chats()) == 1


def test_a_web_page_in_place_of_an_answer_is_told(server, make):
    server.answers["chat/completions"] = returns("<html>Welcome</html>", 200, "text/html")
    assert str(refused(make())) == f"Invalid response from {server.host} (HTTP 200)."


def test_an_answer_that_is_no_text_is_told(server, make):
    server.answers["chat/completions"] = lambda exchange: exchange.whole(b"\xff\xfe{}")
    assert str(refused(make())) == f"Invalid response from {server.host} (HTTP 200)."


def test_the_endless_body_of_an_error_is_told_as_its_status(server, make):
    def answer(exchange):
        exchange.begin("text/plain", 500)
        with pytest.raises(OSError):  # noqa: PT011
            while True:
                exchange.chunk("no GPU " * 1000)

    server.answers["chat/completions"] = answer
    error = refused(make())
    assert error.message.startswith(f"{server.host}: server error (HTTP 500): “no GPU no GPU")
    assert len(error.message) < 300


def test_an_error_whose_body_does_not_arrive_is_told_as_its_status(server, make):
    def answer(exchange):
        exchange.begin("text/plain", 500)
        exchange.until_hung_up()

    server.answers["chat/completions"] = answer
    assert refused(make(timeout_s=0.1)).message == f"{server.host}: server error (HTTP 500)."


# The size of a reply.


def test_a_reply_ends_at_32_characters_per_allowed_token(server, make):
    server.answers["chat/completions"] = says("x" * 60, "y" * 60)
    assert replied(make(GenerationConfig(max_new_tokens=3))) == "x" * 60 + "y" * 36


def test_a_reply_in_one_piece_ends_there_too(server, make):
    message = {"message": {"content": "x" * 100_000}, "finish_reason": "stop"}
    server.answers["chat/completions"] = returns({"choices": [message]})
    assert len(replied(make())) == 32 * 160


def test_empty_events_do_not_prolong_the_wait_for_ever(server, make, monkeypatch):
    monkeypatch.setattr("voxtui.brains.remote.brain.MAX_WAITS", 2)

    def answer(exchange):
        exchange.begin()
        exchange.until_hung_up(meanwhile=event(""))

    server.answers["chat/completions"] = answer
    error = refused(make(timeout_s=0.2))
    assert error.message == f"{server.host}: no text for 0.4 s."
    assert server.hung_up.wait(SECONDS)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"completion_tokens": 7}, 7),
        ({"completion_tokens": 7, "completion_tokens_details": {"reasoning_tokens": 4}}, 3),
        ({"completion_tokens": 7, "completion_tokens_details": None}, 7),
        ({"completion_tokens": "7"}, None),
        (None, None),
    ],
)
def test_the_tokens_are_those_that_the_server_counts(server, make, usage, tokens):
    counted = f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
    server.answers["chat/completions"] = sends(event("It is noon."), STOP, counted)
    marks = Marks()
    assert replied(make(), marks=marks) == "It is noon."
    assert marks.tokens == tokens


# The key.


def test_the_key_goes_to_the_server_and_nowhere_else(server, make, monkeypatch, capfd, caplog):
    caplog.set_level("INFO")
    monkeypatch.setenv("VOXTUI_API_KEY", f" {KEY}\n")
    with serving() as other:
        server.answers["chat/completions"] = returns(
            "", 307, Location=f"{other.url}/chat/completions"
        )
        error = refused(make())
        assert other.requests == []
    assert server.chats()[0].headers["authorization"] == f"Bearer {KEY}"
    assert f"redirects to {other.host} (HTTP 307)" in str(error)
    assert KEY not in caplog.text + "".join(capfd.readouterr())


def test_a_server_that_repeats_the_key_does_not_get_it_shown(server, make, monkeypatch):
    monkeypatch.setenv("VOXTUI_API_KEY", KEY)
    server.answers["chat/completions"] = returns({"error": f"bad key {KEY}!"}, 401)
    error = refused(make())
    assert "rejected the API key (HTTP 401): “bad key …!”." in str(error)
    assert KEY not in str(error)


def test_nor_in_the_middle_of_an_answer(server, make, monkeypatch):
    monkeypatch.setenv("VOXTUI_API_KEY", KEY)
    server.answers["chat/completions"] = sends(
        event("One"), f'data: {{"error": "{KEY} has no credit"}}\n\n'
    )
    assert "“… has no credit”" in str(refused(make()))


def test_without_a_key_none_is_sent(server, make):
    replied(make())
    assert "authorization" not in server.chats()[0].headers


@pytest.mark.parametrize("key", ["two words", "schlüssel", "a\nb"])
def test_a_key_that_no_header_can_carry_is_refused(make, monkeypatch, key):
    monkeypatch.setenv("VOXTUI_API_KEY", key)
    with pytest.raises(RemoteError, match="VOXTUI_API_KEY contains characters") as caught:
        make()
    assert key not in str(caught.value)


# The way there.


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_a_server_that_is_not_there_is_told(make):
    port = free_port()
    error = refused(make(url=f"http://127.0.0.1:{port}/v1"))
    assert error.message == f"127.0.0.1:{port}: cannot connect: Connection refused (errno 111)."
    assert "brain.remote.url" in error.hint


def test_a_host_that_is_not_there_is_told(make, monkeypatch):
    def unknown(*arguments, **options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert refused(make(url="https://nowhere.example/v1")).message == (
        f"nowhere.example: cannot connect: Name or service not known (errno {socket.EAI_NONAME})."
    )


def test_a_host_that_cannot_be_one_is_told(make):
    assert "cannot connect: invalid address" in str(
        refused(make(url=f"http://{'a' * 300}.example/v1"))
    )


def test_a_certificate_is_verified(make):
    with serving(tls=True) as server:
        error = refused(make(url=server.url))
        assert "certificate verify failed" in error.message
        assert "SSL_CERT_FILE" in error.hint
        assert server.requests == []


def test_a_certificate_of_ones_own_can_be_trusted_and_a_turn_be_cancelled(make, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with serving(tls=True) as server:
        brain = warm(make(url=server.url))
        assert replied(brain, utterance()) == "It is noon."

        def answer(exchange):
            exchange.begin()
            exchange.tokens("One")
            exchange.until_hung_up()

        server.answers["chat/completions"] = answer
        cancelled = Flag()
        for _ in brain.reply((), utterance(), Marks(), cancelled):
            cancelled.set()
        assert server.hung_up.wait(SECONDS)
        server.answers["chat/completions"] = says("Again.")
        assert replied(brain) == "Again."
        assert server.connections == 2


def test_a_server_without_tls_cannot_be_connected_to(server, make):
    error = refused(make(url=server.url.replace("http:", "https:")))
    assert f"{server.host}: cannot connect: [SSL" in error.message
    assert "voxtui doctor" in error.hint


def test_a_server_that_does_not_answer_the_tls_handshake_is_given_up(make, monkeypatch):
    monkeypatch.setattr(wire, "CONNECT_SECONDS", 0.1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        error = refused(make(url=f"https://127.0.0.1:{silent.getsockname()[1]}/v1"))
    assert "cannot connect: no answer within 0.1 s." in error.message


def test_what_servers_print_as_their_address_is_this_machine(server, make, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    brain = warm(make(url=server.url.replace("127.0.0.1", "0.0.0.0")))
    assert replied(brain) == "It is noon."
    assert make.said == []


def test_no_proxy_is_asked_for_this_machine(server, make, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    assert replied(make()) == "It is noon."


def test_elsewhere_the_proxy_of_the_environment_is_asked(server, make, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
    assert replied(make(url="http://far.example/v1")) == "It is noon."
    assert server.chats()[0].path == "http://far.example/v1/chat/completions"


def test_a_proxy_that_cannot_be_used_is_told(make, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    brain = make(url="http://far.example/v1")
    brain.listen((), Recording(), Flag())
    assert "cannot use the proxy of the environment" in str(refused(brain))


# Start-up.


def test_the_start_finds_the_only_model(server, make):
    brain = warm(make(model=""))
    assert brain.description == f"remote: {server.host} gets your voice and words (a-model)"
    replied(brain)
    assert server.chats()[0].json["model"] == "a-model"
    assert make.said == []


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (returns({"data": [{"id": "one"}, {"id": "two"}]}), "has one, two."),
        (returns({"data": [{"id": str(n)} for n in range(9)]}), "has 0, 1, 2, 3, 4 and 4 more."),
        (returns({"data": []}), "has no model."),
        (returns("", 404), "does not list its models."),
        (returns({"models": 7}), "does not list its models."),
    ],
)
def test_a_model_that_must_be_named_is_asked_for(server, make, answer, sentence):
    server.answers["models"] = answer
    with pytest.raises(RemoteError, match=r"brain\.remote\.model") as caught:
        warm(make(model=""))
    assert caught.value.message == f"{server.host} {sentence}"


def test_a_model_that_is_not_listed_is_used_and_told(server, make):
    brain = warm(make(model="another"))
    assert make.said == [f"another is not listed: {server.host} has a-model."]
    server.answers["chat/completions"] = returns({"message": "no such model"}, 404)
    assert refused(brain).hint == f"{server.host} has a-model."


def test_an_address_that_may_lack_its_end_is_told(server, make):
    server.answers["models"] = returns("", 404)
    brain = make(url=f"{server.url}/", model="")
    with pytest.raises(RemoteError, match=r"does not list its models\. Set brain\.remote\.model"):
        warm(brain)
    server.answers["v2/models"] = returns("", 404)
    warm(make(url=f"{server.url}/v2"))
    assert make.said == [
        f"{server.host} does not list its models. brain.remote.url usually ends with /v1."
    ]
    server.answers["v2/chat/completions"] = returns("", 404)
    assert refused(make(url=f"{server.url}/v2")).hint == "brain.remote.url usually ends with /v1."


def test_a_refused_key_is_told_at_the_start(server, make):
    server.answers["models"] = returns("", 401)
    with pytest.raises(RemoteError, match="requires an API key"):
        warm(make())


def test_a_server_that_comes_back_after_the_start_answers_with_its_only_model(server, make):
    brain = make(model="")
    server.answers["models"] = returns("", 503)
    with pytest.raises(RemoteError, match=r"server error \(HTTP 503\)"):
        warm(brain)
    assert "server error (HTTP 503)" in str(refused(brain))
    server.answers["models"] = returns({"data": [{"id": "a-model"}]})
    replied(brain)
    replied(brain)
    assert [chat.json["model"] for chat in server.chats()] == ["a-model", "a-model"]
    assert [request.path for request in server.requests].count("/v1/models") == 3


def test_what_others_can_listen_to_is_told(make, monkeypatch):
    monkeypatch.setattr(wire, "is_loopback", lambda url: False)
    warm(make())
    assert "not encrypted" in make.said[0]


def test_a_start_that_nobody_waits_for_ends(server, make):
    server.answers["models"] = lambda exchange: exchange.until_hung_up()

    def enough(step, fraction):
        raise KeyError(step)

    with pytest.raises(KeyError):
        make().warm_up(enough)
    assert server.hung_up.wait(SECONDS)


def test_no_server_named_is_told():
    with pytest.raises(RemoteError, match=r"brain\.remote\.url is not set"):
        RemoteBrain(Config())


# A model that writes down what was said.


def test_a_cascade_writes_down_and_answers(server, make):
    brain = warm(make(transcription_model="whisper"))
    marks = Marks()
    marks.mark(Mark.RELEASED)
    past = (PastTurn(utterance(), None, (Token("Yes."),)),)
    items = list(brain.reply(past, utterance(), marks, Flag()))
    assert items[0] == UserTranscript("what was said")
    assert "".join(item.text for item in items[1:]) == "It is noon."
    written = server.requests[-2]
    assert written.path == "/v1/audio/transcriptions"
    assert b'name="model"\r\n\r\nwhisper\r\n' in written.body
    assert b'filename="speech.wav"' in written.body
    assert b"RIFF" in written.body
    messages = server.chats()[-1].json["messages"]
    assert messages[0] == {"role": "system", "content": "Be kind."}
    assert messages[1]["content"].startswith("[User audio input")
    assert messages[-1] == {"role": "user", "content": "what was said"}
    reached = marks.since_release()
    assert reached["sent"] < reached["transcribed"] < marks.network_s + reached["transcribed"]
    assert server.connections == 1


def test_the_two_models_may_be_at_two_servers(server, make):
    with serving() as other:
        brain = warm(make(transcription_model="whisper", transcription_url=other.url))
        brain.listen((), Recording(), Flag())
        assert make.said == [f"whisper is not listed: {other.host} has a-model."]
        assert replied(brain, utterance()) == "It is noon."
        assert written(brain) == "what was said"
        assert {request.path for request in other.requests} == {
            "/v1/models", "/v1/audio/transcriptions",
        }  # fmt: skip
        assert {request.path for request in server.requests} == {
            "/v1/models", "/v1/chat/completions",
        }  # fmt: skip
        assert brain.description.startswith(
            f"remote: {other.host} and {server.host} get your voice"
        )
        assert (server.connections, other.connections) == (1, 1)


def test_typed_words_need_not_be_written_down(server, make):
    replied(make(transcription_model="whisper"))
    assert len(server.requests) == 1


def test_nothing_heard_is_nothing_answered(server, make):
    server.answers["audio/transcriptions"] = returns({"text": " \n"})
    assert list(make(transcription_model="w").reply((), utterance(), Marks(), Flag())) == []
    assert server.chats() == []


@pytest.mark.parametrize("answer", [{"texts": []}, {"error": "failed to read WAV"}, {"text": 7}])
def test_an_answer_without_a_transcript_is_an_error(server, make, answer):
    server.answers["audio/transcriptions"] = returns(answer)
    error = refused(make(transcription_model="w"), utterance())
    assert str(error) == f"Invalid response from {server.host} (HTTP 200)."


def test_a_transcript_is_one_line(server, make):
    """whisper.cpp's server writes a line for each of its segments."""
    server.answers["audio/transcriptions"] = returns({"text": " It was\n late,\n and dark.\n"})
    brain = make(transcription_model="w")
    heard, *_ = brain.reply((), utterance(), Marks(), Flag())
    assert heard == UserTranscript("It was late, and dark.")
    assert written(brain) == "It was late, and dark."


@pytest.mark.parametrize(("status", "body"), [(413, ""), (400, "exceeds the context length")])
def test_sound_too_long_to_write_down_has_nothing_to_do_with_what_was_said_before(
    server, make, status, body
):
    server.answers["audio/transcriptions"] = returns(body, status, "text/plain")
    error = refused(make(transcription_model="w"), utterance())
    assert error.hint == "Speak in shorter turns."


def written(brain: RemoteBrain) -> str:
    return "".join(token.text for token in brain.transcribe(utterance(), Flag()))


def test_what_the_model_heard_can_be_written_down_afterwards(server, make):
    assert written(make()) == "what was said"
    assert server.chats() == []


@pytest.mark.parametrize("status", [400, 404, 501])
def test_without_an_address_for_it_the_chat_model_writes_down(server, make, status):
    server.answers["audio/transcriptions"] = returns("", status)
    server.answers["chat/completions"] = says("what", " was said")
    brain = make()
    assert written(brain) == written(brain) == "what was said"
    assert len(server.requests) == 3  # it is not asked for again
    sound, text = content(server)
    assert sound["type"] == "input_audio"
    assert text["text"].startswith("Write down word for word")
    assert server.chats()[-1].json["temperature"] == 0
    assert server.chats()[-1].json["max_tokens"] == 16 + 5  # ten a second


def test_a_model_that_was_named_for_it_is_not_replaced(server, make):
    server.answers["audio/transcriptions"] = returns("", 404)
    with pytest.raises(RemoteError, match="model or address not found"):
        written(make(transcription_model="whisper"))


def test_who_waits_for_a_transcript_is_not_held_up(server, make):
    pulled = Flag()

    def answer(exchange):
        assert pulled.wait(SECONDS)
        exchange.whole({"text": "late"})

    server.answers["audio/transcriptions"] = answer
    tokens = make().transcribe(utterance(), Flag())
    assert next(tokens) == Token("")
    pulled.set()
    assert "".join(token.text for token in tokens) == "late"
