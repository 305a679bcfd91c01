"""The remote brain: requests, replies and transcripts, against a fake server over real sockets."""

from __future__ import annotations

import base64
import io
import json
import queue
from contextlib import closing
from typing import Any

import pytest
import soundfile

from tests.brains.remote.conftest import refused, replied, utterance, warm, written
from tests.fakes import SECONDS, Flag
from tests.openai_server import FakeServer, event, returns, says, sends, serving
from voxtui.brains.remote import endpoint
from voxtui.brains.remote import http_connection as wire
from voxtui.brains.remote.remote_brain import RemoteBrain
from voxtui.dialogue.data import Token, UserTranscript
from voxtui.dialogue.protocols import PastTurn, ReplyOptions, TurnRequest
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import RemoteError
from voxtui.settings.schema import BrainConfig, Config, GenerationConfig, RemoteBrainConfig

# Streaming.


def test_each_token_is_yielded_before_the_server_sends_the_next(server, make):
    taken: queue.SimpleQueue[str] = queue.SimpleQueue()

    def answer(exchange):
        exchange.begin()
        for text in ("One", " two", "."):
            exchange.tokens(text)
            assert taken.get(timeout=SECONDS) == text
        exchange.chunk(event(finish="stop"))
        exchange.end()

    server.answers["chat/completions"] = answer
    for item in make().reply(TurnRequest((), "hello")):
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
def test_a_stream_is_read_however_it_is_split_and_formatted(server, make, chunks):
    server.answers["chat/completions"] = sends(*chunks)
    assert replied(make()) == "Café 🎈"


def test_control_characters_are_removed_from_replies_and_transcripts(server, make):
    server.answers["chat/completions"] = says("\x1b]0;title\x07Two\n\t", "lines\x9b2J\r.")
    assert replied(make()) == "]0;titleTwo\n\tlines2J."
    server.answers["audio/transcriptions"] = returns({"text": "so \x1b[31mit\x00 is"})
    heard, *_ = make(transcription_model="w").reply(TurnRequest((), utterance()))
    assert heard == UserTranscript("so [31mit is")


def test_lone_surrogates_are_removed(server, make):
    """Some servers split a character outside the basic plane into two surrogates."""
    server.answers["chat/completions"] = says("Yes", "\ud83c", "\udf88", "!")
    brain = make()
    assert replied(brain) == "Yes!"


def test_a_stream_is_read_as_utf8_whatever_its_header_says(server, make):
    def answer(exchange):
        exchange.begin("text/event-stream; charset=latin-1")
        exchange.chunk('data: {"choices": [{"delta": {"content": "Café"}, "finish_reason": "x"}]}')
        exchange.chunk("\n\n")
        exchange.end()

    server.answers["chat/completions"] = answer
    assert replied(make()) == "Café"


def test_an_answer_that_is_not_streamed_is_read(server, make):
    message = {"message": {"content": "All at once."}, "finish_reason": "stop"}
    server.answers["chat/completions"] = returns({"choices": [message]})
    assert replied(make()) == "All at once."


def test_a_reply_ends_at_max_new_tokens_events(server, make):
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
def test_a_broken_stream_is_an_error_after_its_text(server, make, chunks, text, sentence):
    server.answers["chat/completions"] = sends(*chunks)
    brain, came = make(), ""
    with pytest.raises(RemoteError, match=sentence):
        for item in brain.reply(TurnRequest((), "hello")):
            came += item.text if isinstance(item, Token) else ""
    assert came == text
    server.answers["chat/completions"] = says("Well again.")
    assert replied(brain) == "Well again."


def test_a_lost_connection_is_an_error_and_not_retried_after_the_first_token(server, make):
    def answer(exchange):
        exchange.begin()
        exchange.tokens("Half")
        exchange.hang_up()

    server.answers["chat/completions"] = answer
    assert "127.0.0.1" in str(refused(make()))
    assert len(server.chats()) == 1  # no retry after the first token


def test_an_endless_stream_is_cut(server, make, monkeypatch):
    monkeypatch.setattr(wire, "LARGEST_STREAM", 10_000)

    def answer(exchange):
        exchange.begin()
        with pytest.raises(OSError):  # noqa: PT011
            while True:
                exchange.chunk(event(""))

    server.answers["chat/completions"] = answer
    assert "Invalid response" in str(refused(make()))


# The size of a reply.


def test_a_reply_ends_at_32_characters_per_allowed_token(server, make):
    server.answers["chat/completions"] = says("x" * 60, "y" * 60)
    assert replied(make(GenerationConfig(max_new_tokens=3))) == "x" * 60 + "y" * 36


def test_a_reply_in_one_piece_ends_at_that_limit_too(server, make):
    message = {"message": {"content": "x" * 100_000}, "finish_reason": "stop"}
    server.answers["chat/completions"] = returns({"choices": [message]})
    assert len(replied(make())) == 32 * 160


def test_empty_events_do_not_extend_the_time_out_forever(server, make, monkeypatch):
    monkeypatch.setattr("voxtui.brains.remote.remote_brain.MAX_WAITS", 2)

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
    timestamps = Timestamps()
    assert replied(make(), timestamps=timestamps) == "It is noon."
    assert timestamps.tokens == tokens


# Requests.


def content(server: FakeServer, message: int = -1) -> Any:
    return server.chats()[-1].json["messages"][message]["content"]


def test_audio_is_sent_as_a_wav_after_the_instruction(server, make):
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


def test_earlier_turns_are_text_if_known_and_audio_otherwise(server, make):
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


def test_the_time_is_text_before_the_words_or_the_sound(server, make):
    morning, now = "(It is Sunday, 8:04.)", ReplyOptions(clock="(8:06)")
    past = (
        PastTurn("Good morning.", None, (Token("Hello."),), clock=morning),
        PastTurn(utterance(), None, (Token("Yes."),), clock="(8:05)"),
    )
    list(make().reply(TurnRequest(past, utterance(), options=now)))
    first, _, second, _, third = (m["content"] for m in server.chats()[-1].json["messages"])
    assert first == f"Be kind.\n\n{morning}\nGood morning."
    assert [part.get("text", part["type"]) for part in second] == ["(8:05)", "input_audio"]
    assert [part.get("text", part["type"]) for part in third] == ["(8:06)", "input_audio"]
    list(make().reply(TurnRequest((), utterance(), options=now)))
    (message,) = server.chats()[-1].json["messages"]
    assert message["content"][0]["text"] == "Be kind.\n\n(8:06)"
    list(make().reply(TurnRequest((), "Why?", options=now)))
    assert content(server, 0) == "Be kind.\n\n(8:06)\nWhy?"


def sounds_sent(request: Any) -> list[bool]:
    """Return True for each user message that is audio."""
    return [isinstance(m["content"], list) for m in request.json["messages"][::2]]


def test_a_manner_replaces_the_instruction_and_limits_the_reply(server, make):
    past = (PastTurn("", None, (Token("Hello."),)), PastTurn("A note.", None, ()))
    list(
        make().reply(
            TurnRequest(past, "Who?", options=ReplyOptions("Be a pirate.", max_new_tokens=3))
        )
    )
    sent = server.chats()[-1].json
    assert sent["max_tokens"] == 3
    assert [(m["role"], m["content"]) for m in sent["messages"]] == [
        ("assistant", "Hello."), ("user", "Be a pirate.\n\nA note."), ("user", "Who?"),
    ]  # fmt: skip


def test_at_most_five_clips_are_sent(server, make):
    brain = make()
    past = tuple(PastTurn(utterance(), None, (Token("Yes."),)) for _ in range(6))
    replied(brain, utterance(), past)
    assert sounds_sent(server.chats()[-1]) == [False] * 2 + [True] * 5
    assert "[User audio input - 8000 samples" in content(server, 2)
    replied(brain, "typed", past)
    assert sounds_sent(server.chats()[-1]) == [False] + [True] * 5 + [False]


def test_the_default_parameters_are_openais(server, make):
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


# Start-up.


def test_the_only_model_is_used(server, make):
    brain = warm(make(model=""))
    assert brain.description == f"remote: {server.host} gets your voice and words (a-model)"
    replied(brain)
    assert server.chats()[0].json["model"] == "a-model"
    assert make.notices == []


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
def test_without_exactly_one_model_a_name_is_required(server, make, answer, sentence):
    server.answers["models"] = answer
    with pytest.raises(RemoteError, match=r"brain\.remote\.model") as caught:
        warm(make(model=""))
    assert caught.value.message == f"{server.host} {sentence}"


def test_a_model_that_is_not_listed_is_used_with_a_notice(server, make):
    brain = warm(make(model="another"))
    assert make.notices == [f"another is not listed: {server.host} has a-model."]
    server.answers["chat/completions"] = returns({"message": "no such model"}, 404)
    assert refused(brain).hint == f"{server.host} has a-model."


def test_a_url_without_v1_has_a_hint(server, make):
    server.answers["models"] = returns("", 404)
    brain = make(url=f"{server.url}/", model="")
    with pytest.raises(RemoteError, match=r"does not list its models\. Set brain\.remote\.model"):
        warm(brain)
    server.answers["v2/models"] = returns("", 404)
    warm(make(url=f"{server.url}/v2"))
    assert make.notices == [
        f"{server.host} does not list its models. brain.remote.url usually ends with /v1."
    ]
    server.answers["v2/chat/completions"] = returns("", 404)
    assert refused(make(url=f"{server.url}/v2")).hint == "brain.remote.url usually ends with /v1."


def test_a_missing_api_key_is_an_error_at_the_start(server, make):
    server.answers["models"] = returns("", 401)
    with pytest.raises(RemoteError, match="requires an API key"):
        warm(make())


def test_a_server_that_was_down_at_the_start_is_asked_for_its_model_later(server, make):
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


def test_an_unencrypted_connection_has_a_notice(make, monkeypatch):
    monkeypatch.setattr(endpoint, "is_loopback", lambda url: False)
    warm(make())
    assert "not encrypted" in make.notices[0]


def test_warming_up_can_be_aborted(server, make):
    server.answers["models"] = lambda exchange: exchange.until_hung_up()

    def enough(step, fraction):
        raise KeyError(step)

    with pytest.raises(KeyError):
        make().warm_up(enough)
    assert server.hung_up.wait(SECONDS)


def test_a_missing_url_is_an_error():
    with pytest.raises(RemoteError, match=r"brain\.remote\.url is not set"):
        RemoteBrain(Config())


# Transcription.


def test_a_transcription_model_transcribes_before_the_chat_model_answers(server, make):
    brain = warm(make(transcription_model="whisper"))
    timestamps = Timestamps()
    timestamps.record(Milestone.RELEASED)
    past = (PastTurn(utterance(), None, (Token("Yes."),)),)
    items = list(brain.reply(TurnRequest(past, utterance(), timestamps)))
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
    reached = timestamps.since_release()
    assert reached["sent"] < reached["transcribed"] < timestamps.network_s + reached["transcribed"]
    assert server.connections == 1


def test_the_language_of_the_conversation_goes_with_the_sound(server):
    remote = RemoteBrainConfig(url=server.url, model="a-model", transcription_model="whisper")
    config = Config(brain=BrainConfig(name="remote", language="fr", remote=remote))
    with closing(RemoteBrain(config)) as brain:
        replied(warm(brain), utterance())
        assert brain.language("Bonjour.", Timestamps()) == "fr"
    assert b'name="language"\r\n\r\nfr\r\n' in server.requests[-2].body


def test_the_two_models_may_be_on_two_servers(server, make):
    with serving() as other:
        brain = warm(make(transcription_model="whisper", transcription_url=other.url))
        brain.listen(TurnRequest(), Recording())
        assert make.notices == [f"whisper is not listed: {other.host} has a-model."]
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


def test_typed_text_is_not_transcribed(server, make):
    replied(make(transcription_model="whisper"))
    assert len(server.requests) == 1


def test_an_empty_transcript_gets_no_reply(server, make):
    server.answers["audio/transcriptions"] = returns({"text": " \n"})
    assert list(make(transcription_model="w").reply(TurnRequest((), utterance()))) == []
    assert server.chats() == []


@pytest.mark.parametrize("answer", [{"texts": []}, {"error": "failed to read WAV"}, {"text": 7}])
def test_an_answer_without_a_transcript_is_an_error(server, make, answer):
    server.answers["audio/transcriptions"] = returns(answer)
    error = refused(make(transcription_model="w"), utterance())
    assert str(error) == f"Invalid response from {server.host} (HTTP 200)."


def test_a_transcript_is_one_line(server, make):
    """whisper.cpp's server writes a line per segment."""
    server.answers["audio/transcriptions"] = returns({"text": " It was\n late,\n and dark.\n"})
    brain = make(transcription_model="w")
    heard, *_ = brain.reply(TurnRequest((), utterance()))
    assert heard == UserTranscript("It was late, and dark.")
    assert written(brain) == "It was late, and dark."


@pytest.mark.parametrize(("status", "body"), [(413, ""), (400, "exceeds the context length")])
def test_audio_that_is_too_long_to_transcribe_has_its_own_hint(server, make, status, body):
    server.answers["audio/transcriptions"] = returns(body, status, "text/plain")
    error = refused(make(transcription_model="w"), utterance())
    assert error.hint == "Speak in shorter turns."


def test_an_utterance_can_be_transcribed_after_the_reply(server, make):
    assert written(make()) == "what was said"
    assert server.chats() == []


@pytest.mark.parametrize("status", [400, 404, 501])
def test_the_chat_model_transcribes_if_the_server_has_no_transcriptions(server, make, status):
    server.answers["audio/transcriptions"] = returns("", status)
    server.answers["chat/completions"] = says("what", " was said")
    brain = make()
    assert written(brain) == written(brain) == "what was said"
    assert len(server.requests) == 3  # transcriptions are tried once
    sound, text = content(server)
    assert sound["type"] == "input_audio"
    assert text["text"].startswith("Write down word for word")
    assert server.chats()[-1].json["temperature"] == 0
    assert server.chats()[-1].json["max_tokens"] == 16 + 7  # 15 tokens per second


def test_a_configured_transcription_model_is_not_replaced(server, make):
    server.answers["audio/transcriptions"] = returns("", 404)
    with pytest.raises(RemoteError, match="model or address not found"):
        written(make(transcription_model="whisper"))


def test_transcribe_yields_empty_tokens_while_waiting(server, make):
    pulled = Flag()

    def answer(exchange):
        assert pulled.wait(SECONDS)
        exchange.whole({"text": "late"})

    server.answers["audio/transcriptions"] = answer
    tokens = make().transcribe(utterance(), Flag())
    assert next(tokens) == Token("")
    pulled.set()
    assert "".join(token.text for token in tokens) == "late"
