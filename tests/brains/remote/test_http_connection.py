"""The connection to the server: speed, cancelling, errors and the API key, over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from itertools import count
from types import SimpleNamespace

import pytest

from tests.brains.remote.conftest import KEY, free_port, refused, replied, utterance, warm
from tests.fakes import SECONDS, Flag
from tests.openai_server import CERTIFICATE, event, returns, says, sends, serving
from voxtui.brains.remote import endpoint
from voxtui.brains.remote import http_connection as wire
from voxtui.dialogue.data import Token
from voxtui.dialogue.protocols import TurnRequest
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import RemoteError

# The connection.


def test_a_conversation_uses_one_connection_opened_at_the_start(server, make):
    brain = warm(make())
    for _ in range(3):
        brain.listen(TurnRequest(), Recording())
        assert replied(brain, utterance()) == "It is noon."
    assert server.connections == 1


def test_a_server_may_list_its_models_at_great_length(server, make):
    models = [{"id": "a-model"}, {"id": "another", "description": "x" * (1 << 20)}]
    server.answers["models"] = returns({"data": models})
    assert replied(warm(make(model="another"))) == "It is noon."


def test_frames_keep_the_connection_warm_while_the_key_is_held(server, make, monkeypatch):
    monkeypatch.setattr("voxtui.brains.remote.remote_brain.WARM_AGAIN_SECONDS", 0.0)
    brain = warm(make())
    brain.wake()
    replied(brain)
    assert [request.path for request in server.requests] == [
        "/v1/models", "/v1/models", "/v1/chat/completions",
    ]  # fmt: skip


def test_nothing_of_the_utterance_is_sent_before_the_release(server, make):
    brain = warm(make())
    brain.listen(TurnRequest(), Recording())
    brain.wake()
    brain.close()
    assert {request.path for request in server.requests} == {"/v1/models"}


def test_a_stale_connection_is_replaced_and_the_request_sent_again(server, make):
    brain = warm(make())

    def dead_once(exchange):
        server.answers["chat/completions"] = says("Here.")
        exchange.hang_up()

    server.answers["chat/completions"] = dead_once
    assert replied(brain) == "Here."
    assert (server.connections, len(server.chats())) == (2, 2)


def test_a_new_connection_that_breaks_is_not_retried(server, make):
    server.answers["chat/completions"] = lambda exchange: exchange.hang_up()
    assert "connection lost" in str(refused(make()))
    assert len(server.chats()) == 1


@pytest.mark.parametrize("stage", ["headers", "token", "transcript"])
def test_cancelling_a_turn_closes_the_connection_and_the_next_turn_works(server, make, stage):
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
        for item in brain.reply(TurnRequest((), utterance(), Timestamps(), cancelled)):
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


def test_a_turn_can_be_cancelled_while_connecting(make):
    with socket.socket() as full, ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):  # fill the queue of waiting connections
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        brain = make(url=f"http://127.0.0.1:{full.getsockname()[1]}/v1")
        cancelled = Flag()
        threading.Timer(0.1, cancelled.set).start()
        assert list(brain.reply(TurnRequest((), utterance(), Timestamps(), cancelled))) == []


def test_a_request_abandoned_while_connecting_is_not_sent():
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
        connection = wire.HttpConnection(None, Client())
        request = wire.HttpRequest(connection, "POST", "http://far.example", {})
        assert connecting.wait(SECONDS)
        connection.abandon()
        left.set()
        assert connection.idle.wait(SECONDS)
        assert theirs.recv(100) == b""
        with pytest.raises(OSError, match="Broken pipe"):
            list(request.items(SECONDS))


def test_a_slow_warm_up_request_delays_a_turn_by_a_limited_time(server, make, monkeypatch):
    monkeypatch.setattr(endpoint, "BUSY_SECONDS", 0.1)
    brain, arrived = warm(make()), Flag()

    def hang(exchange):
        arrived.set()
        exchange.until_hung_up()

    server.answers["models"] = hang
    brain.listen(TurnRequest(), Recording())
    assert arrived.wait(SECONDS)
    assert replied(brain) == "It is noon."
    assert server.hung_up.wait(SECONDS)


def test_the_network_share_is_part_of_the_time_to_first_token(server, make):
    thinking = 0.4

    def answer(exchange):
        threading.Event().wait(thinking)
        exchange.begin()
        exchange.tokens("One")
        exchange.chunk(event(finish="stop"))
        exchange.end()

    server.answers["chat/completions"] = answer
    timestamps = Timestamps()
    timestamps.record(Milestone.RELEASED)
    for item in warm(make()).reply(TurnRequest((), utterance(), timestamps)):
        if isinstance(item, Token):
            timestamps.record(Milestone.FIRST_TOKEN)
    reached = timestamps.since_release()
    assert 0 < timestamps.network_s < thinking
    # Only half of it, because a busy machine may deliver the token late.
    assert 0 < reached["sent"] <= reached["first_token"] - thinking / 2


def test_serialising_a_request_is_not_network_time(server, monkeypatch):
    ahead = 0.0

    class Slow(dict):
        """Take 100 s to be serialised."""

        def items(self):
            nonlocal ahead
            ahead = 100.0
            return super().items()

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead)
    monkeypatch.setattr(wire, "time", clock)
    there, timing = endpoint.RemoteEndpoint(server.url, timeout_s=1000.0), endpoint.NetworkTimes()
    assert any(there.request("POST", "chat/completions", timing, json=Slow(model="a-model")))
    there.close()
    assert ahead
    assert 0 < timing.network_s < 50


# Time-outs.


def test_a_suspended_process_does_not_cause_a_time_out(monkeypatch):
    """The clock goes on while Ctrl+Z stops the process."""
    go_on = Flag()

    class Client:
        @contextmanager
        def stream(self, method, url, extensions):
            assert go_on.wait(SECONDS)
            yield SimpleNamespace(status_code=200, headers={}, iter_bytes=lambda: [b'{"id": 1}'])

    items = wire.HttpRequest(wire.HttpConnection(None, Client()), "GET", "", {}).items(SECONDS)
    monkeypatch.setattr(time, "monotonic", count(0.0, 100.0).__next__)
    assert [next(items), next(items)] == [None, None]
    go_on.set()
    assert [item for item in items if item is not None] == [{"id": 1}]


def test_the_time_for_sending_a_long_body_is_no_silence_of_the_server():
    connected, sent = Flag(), Flag()
    socket_of = SimpleNamespace(get_extra_info=lambda name: None)

    class Client:
        @contextmanager
        def stream(self, method, url, extensions):
            extensions["trace"]("connection.connect_tcp.complete", {"return_value": socket_of})
            connected.set()
            assert sent.wait(SECONDS)
            yield SimpleNamespace(status_code=200, headers={}, iter_bytes=lambda: [b"{}"])

        def close(self) -> None: ...

    items = wire.HttpRequest(wire.HttpConnection(None, Client()), "POST", "", {}).items(0.0)
    assert connected.wait(SECONDS)
    assert [next(items), next(items), next(items)] == [None] * 3
    sent.set()
    items.close()


@pytest.mark.parametrize("alive", [False, True], ids=["silent", "only comments"])
def test_a_silent_server_times_out(server, make, alive):
    def answer(exchange):
        exchange.begin()
        exchange.until_hung_up(meanwhile=": still here\n\n" if alive else None)

    server.answers["chat/completions"] = answer
    error = refused(make(timeout_s=0.1))
    assert "no data for 0.1 s" in str(error)
    assert "brain.remote.timeout_s" in error.hint
    assert server.hung_up.wait(SECONDS)


# HTTP errors.


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
def test_each_http_error_is_a_sentence_with_its_status(server, make, status, body, head, sentence):
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
def test_a_model_that_accepts_no_audio_is_recognised(server, make, status, said):
    server.answers["chat/completions"] = returns({"error": {"message": said}}, status)
    error = refused(make(), utterance())
    assert (
        f"a-model at {server.host} does not accept audio (HTTP {status}): “{said}”."
        == error.message
    )
    assert "brain.remote.transcription_model" in error.hint
    assert len(server.chats()) == 1


def test_a_web_page_is_an_invalid_response(server, make):
    server.answers["chat/completions"] = returns("<html>Welcome</html>", 200, "text/html")
    assert str(refused(make())) == f"Invalid response from {server.host} (HTTP 200)."


def test_an_answer_that_is_not_utf8_is_an_invalid_response(server, make):
    server.answers["chat/completions"] = lambda exchange: exchange.whole(b"\xff\xfe{}")
    assert str(refused(make())) == f"Invalid response from {server.host} (HTTP 200)."


def test_an_error_with_an_endless_body_shows_its_status(server, make):
    def answer(exchange):
        exchange.begin("text/plain", 500)
        with pytest.raises(OSError):  # noqa: PT011
            while True:
                exchange.chunk("no GPU " * 1000)

    server.answers["chat/completions"] = answer
    error = refused(make())
    assert error.message.startswith(f"{server.host}: server error (HTTP 500): “no GPU no GPU")
    assert len(error.message) < 300


def test_an_error_whose_body_never_arrives_shows_its_status(server, make):
    def answer(exchange):
        exchange.begin("text/plain", 500)
        exchange.until_hung_up()

    server.answers["chat/completions"] = answer
    assert refused(make(timeout_s=0.1)).message == f"{server.host}: server error (HTTP 500)."


# The API key.


def test_the_api_key_is_sent_to_the_server_only(server, make, monkeypatch, capfd, caplog):
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


def test_the_api_key_is_hidden_in_an_error_that_repeats_it(server, make, monkeypatch):
    monkeypatch.setenv("VOXTUI_API_KEY", KEY)
    server.answers["chat/completions"] = returns({"error": f"bad key {KEY}!"}, 401)
    error = refused(make())
    assert "rejected the API key (HTTP 401): “bad key …!”." in str(error)
    assert KEY not in str(error)


def test_the_api_key_is_hidden_in_an_error_within_a_stream(server, make, monkeypatch):
    monkeypatch.setenv("VOXTUI_API_KEY", KEY)
    server.answers["chat/completions"] = sends(
        event("One"), f'data: {{"error": "{KEY} has no credit"}}\n\n'
    )
    assert "“… has no credit”" in str(refused(make()))


def test_without_an_api_key_no_header_is_sent(server, make):
    replied(make())
    assert "authorization" not in server.chats()[0].headers


@pytest.mark.parametrize("key", ["two words", "schlüssel", "a\nb"])
def test_an_api_key_that_no_header_can_carry_is_refused(make, monkeypatch, key):
    monkeypatch.setenv("VOXTUI_API_KEY", key)
    with pytest.raises(RemoteError, match="VOXTUI_API_KEY contains characters") as caught:
        make()
    assert key not in str(caught.value)


# Hosts, TLS and proxies.


def test_a_refused_connection_names_its_errno(make):
    port = free_port()
    error = refused(make(url=f"http://127.0.0.1:{port}/v1"))
    assert error.message == f"127.0.0.1:{port}: cannot connect: Connection refused (errno 111)."
    assert "brain.remote.url" in error.hint


def test_an_unknown_host_names_its_errno(make, monkeypatch):
    def unknown(*arguments, **options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert refused(make(url="https://nowhere.example/v1")).message == (
        f"nowhere.example: cannot connect: Name or service not known (errno {socket.EAI_NONAME})."
    )


def test_an_invalid_host_name_is_an_error(make):
    assert "cannot connect: invalid address" in str(
        refused(make(url=f"http://{'a' * 300}.example/v1"))
    )


def test_an_untrusted_certificate_is_refused_before_anything_is_sent(make):
    with serving(tls=True) as server:
        error = refused(make(url=server.url))
        assert "certificate verify failed" in error.message
        assert "SSL_CERT_FILE" in error.hint
        assert server.requests == []


def test_a_turn_over_tls_with_an_own_certificate_can_be_cancelled(make, monkeypatch):
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
        for _ in brain.reply(TurnRequest((), utterance(), Timestamps(), cancelled)):
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
    monkeypatch.setattr(endpoint, "CONNECT_SECONDS", 0.1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        error = refused(make(url=f"https://127.0.0.1:{silent.getsockname()[1]}/v1"))
    assert "cannot connect: no answer within 0.1 s." in error.message


def test_the_unspecified_address_is_this_machine(server, make, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    brain = warm(make(url=server.url.replace("127.0.0.1", "0.0.0.0")))
    assert replied(brain) == "It is noon."
    assert make.notices == []


def test_no_proxy_is_used_for_this_machine(server, make, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    assert replied(make()) == "It is noon."


def test_the_proxy_of_the_environment_is_used_for_other_hosts(server, make, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
    assert replied(make(url="http://far.example/v1")) == "It is noon."
    assert server.chats()[0].path == "http://far.example/v1/chat/completions"


def test_an_unusable_proxy_is_an_error(make, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    brain = make(url="http://far.example/v1")
    brain.listen(TurnRequest(), Recording())
    assert "cannot use the proxy of the environment" in str(refused(brain))
