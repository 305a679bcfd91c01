from __future__ import annotations

import asyncio
import base64
import errno
import io
import json
import os
import threading

import httpx2
import numpy as np
import pytest
import soundfile
from openai import BadRequestError, NotFoundError, OpenAI
from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from tests.fakes import BeepVoice, LoudIsSpeech, ScriptedBrain
from tests.serve.conftest import PATIENCE, counted, documented, serving, spoken
from tests.ui.pseudo_terminal import until
from voxtui.dialogue.data import ToolCall, Utterance
from voxtui.errors import ForeignSpeech, ModelError
from voxtui.serve.app import build_app
from voxtui.serve.endpoints.chat_completion import REFUSED, ChatCompletion
from voxtui.serve.shared_models import ModelSet, Pool
from voxtui.settings.schema import Config

BRAIN = ScriptedBrain()
PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server():
    with serving(brain=BRAIN) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    url = f"{server.url}/v1"
    with OpenAI(base_url=url, api_key="none", max_retries=0, timeout=PATIENCE) as openai:
        yield openai


def sound(seconds: float = 1.0) -> dict:
    file = io.BytesIO()
    soundfile.write(file, spoken(seconds, pause=0.0), 16_000, format="WAV")
    data = base64.b64encode(file.getvalue()).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def ask(client: OpenAI, *messages: dict, script: list | None = None, **fields):
    BRAIN.__init__(script or ["It is ", "Paris."])
    return client.chat.completions.create(model="gpt-4o", messages=list(messages), **fields)  # type: ignore[call-overload]


def user(content) -> dict:
    return {"role": "user", "content": content}


def calling(arguments: str) -> dict:
    called = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": "call_1", "function": called}]}


SILENCE = {"type": "input_audio", "input_audio": {"data": ""}}


def test_the_stock_client_asks_with_a_sound(client):
    answer = ask(client, user([sound()]))
    assert answer.choices[0].message.content == "It is Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 2
    (said,) = BRAIN.said
    assert isinstance(said, Utterance)
    assert said.seconds == pytest.approx(1.0)
    assert np.abs(said.samples).max() == pytest.approx(0.5, abs=0.01)


def test_the_conversation_and_its_instruction_reach_the_brain(client):
    ask(
        client,
        {"role": "system", "content": "Be brief."},
        user([sound(2.0), {"type": "text", "text": "What is that?"}]),
        {"role": "assistant", "content": "A bird."},
        user("Which one?"),
        max_tokens=5,
    )
    (past,) = BRAIN.pasts
    told = [(turn.user_text, turn.reply_text) for turn in past]
    assert told == [("2.0 seconds.\nWhat is that?", ""), ("", "A bird.")]
    (options,) = BRAIN.manners
    assert (options.instruction, options.max_new_tokens) == ("Be brief.", 5)
    assert BRAIN.said == ["Which one?"]


def test_a_stream_brings_each_token_when_it_exists(client):
    held = threading.Event()
    stream = ask(
        client, user("Where?"), script=["It is ", held, "Paris."], stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = iter(stream)
    first = next(chunks)
    assert first.choices[0].delta.content == "It is "
    assert first.choices[0].delta.role == "assistant"
    held.set()
    rest = list(chunks)
    assert rest[0].choices[0].delta.content == "Paris."
    assert rest[1].choices[0].finish_reason == "stop"
    assert rest[2].usage.completion_tokens == 2


def test_a_client_that_leaves_ends_the_answer(server, client):
    held = threading.Event()
    stream = ask(client, user("Where?"), script=["It is ", held, "Paris."], stream=True)
    next(iter(stream))
    stream.close()
    (cancelled,) = BRAIN.flags
    assert cancelled.wait(PATIENCE)
    held.set()
    until(lambda: 'status="499"' in server.client.get("/metrics").text)


async def test_a_server_that_stops_tells_who_waits_for_an_answer():
    held = threading.Event()
    brain = ScriptedBrain(["It is ", held, "Paris."])
    parts = ModelSet(counted, LoudIsSpeech(), BeepVoice(), brain, LoudIsSpeech())
    app, _ = build_app(Config(), Pool([parts]), None, frozenset(), "127.0.0.1")
    # Without a server, whose loop would cancel a second time and so hide what the first one did.
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        asked = asyncio.create_task(client.post(PATH, json={"messages": [user("Where?")]}))
        try:
            await asyncio.to_thread(until, lambda: brain.flags)
            asked.cancel()
            answer = await asked
        finally:
            held.set()
    assert (answer.status_code, brain.flags[0].is_set()) == (503, True)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"n": 2}, "n is not supported"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "name"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}] * 2}, "same name"),
        (
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "f", "parameters": {"type": "string"}},
                    }
                ]
            },
            "no object",
        ),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "no tool 'f'"),
        (
            {"messages": [user("Hello."), {"role": "tool", "tool_call_id": "x", "content": "3"}]},
            "No call has the id 'x'",
        ),
        ({"functions": [{"name": "f"}]}, "functions is not"),
        ({"function_call": "auto"}, "function_call is not"),
        ({"logprobs": True}, "logprobs is not"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "json_schema"),
        ({"response_format": {"type": "json_schema"}}, "json_schema is missing"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": ""}, "stop"),
        ({"modalities": ["text", "audio"]}, "/v1/audio/speech"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"model": "nothing"}, "nothing"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "Hi."}]}, "last message"),
        ({"messages": [user("")]}, "empty"),
        ({"messages": [user("x" * 5000)]}, "4000"),
        ({"messages": [calling("x" * 5000), user("Hello.")]}, "4000"),
        ({"messages": [user([SILENCE] * 33)]}, "32 sounds"),
        ({"messages": [user([{"type": "image_url", "image_url": {"url": "x"}}])]}, "image_url"),
        ({"messages": [user([{"type": "input_audio", "input_audio": {"data": "!"}}])]}, "base64"),
        ({"messages": [user([{"type": "input_audio", "input_audio": {"data": "aGk="}}])]}, "sound"),
    ],
)
def test_what_cannot_be_done_is_refused(server, fields, words):
    answer = server.client.post(PATH, json={"messages": [user("Hello.")], **fields})
    assert answer.status_code in (400, 404), answer.text
    assert words in answer.json()["error"]["message"]


def test_a_failure_is_an_error_also_within_a_stream(client):
    failure = ModelError("Out of memory.")
    with pytest.raises(Exception, match="Out of memory"):
        ask(client, user("Where?"), script=[failure])
    with pytest.raises(Exception, match="Out of memory"):
        list(ask(client, user("Where?"), script=["It is ", failure], stream=True))


def test_only_a_full_disk_is_called_one(server):
    for number, status, code in ((errno.ENOSPC, 507, "disk_full"), (errno.EPIPE, 500, None)):
        BRAIN.__init__([OSError(number, os.strerror(number))])
        answer = server.client.post(PATH, json={"messages": [user("Where?")]})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (status, code)
        assert os.strerror(number) in error["message"]


def test_a_question_in_a_foreign_language_is_refused_without_words_for_the_window(server):
    BRAIN.__init__([ForeignSpeech()])
    answer = server.client.post(PATH, json={"messages": [user([sound()])]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")
    assert answer.json()["error"]["message"] == ForeignSpeech().message


def test_the_stock_client_understands_a_refusal(client):
    with pytest.raises(BadRequestError, match="n is not supported"):
        ask(client, user("Hello."), n=2)


@pytest.mark.parametrize(
    "field", ["n", "tools", "tool_choice", "logprobs", "response_format", "stop"]
)
def test_a_refusal_names_the_field(server, field):
    values = {"n": 2, "tools": [1], "tool_choice": "no", "logprobs": True, "stop": 5,
              "response_format": {"type": "xml"}}  # fmt: skip
    body = {"messages": [user("Hello.")], field: values[field]}
    assert server.client.post(PATH, json=body).json()["error"]["param"] == field


def test_every_field_of_openai_is_obeyed_without_effect_or_refused():
    fields = set(CompletionCreateParamsBase.__annotations__) | {"stream"}
    obeyed, without_effect, refused = documented("chat")
    assert obeyed >= set(ChatCompletion.__struct_fields__) and refused == set(REFUSED)
    assert fields - obeyed - without_effect - refused == set()
    assert not without_effect & (obeyed | refused)


def test_values_that_ask_for_nothing_are_taken(client):
    nothing = {"n": 1, "tools": [], "tool_choice": "none", "logprobs": False, "stop": None,
               "response_format": {"type": "text"}, "temperature": 0.2, "seed": 1}  # fmt: skip
    assert ask(client, user("Where?"), **nothing).choices[0].message.content == "It is Paris."


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("stop", "text"),
    [("Par", "It is "), (["x", "is P"], "It "), ("Parma", "It is Paris."), (["It"], ""),
     ("s", "It i"), ("Paris.", "It is ")],
)  # fmt: skip
def test_an_answer_ends_before_what_stops_it(client, stop, text, stream):
    script = ["It ", "is P", "ar", "is."]
    answer = ask(client, user("Where?"), script=script, stop=stop, stream=stream)
    if not stream:
        assert answer.choices[0].message.content == text
        assert answer.choices[0].finish_reason == "stop"
        return
    chunks = [*answer]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_the_answer_names_the_chat_model_and_counts_the_prompt(client):
    class Counting(ScriptedBrain):
        def reply(self, request):
            request.timestamps.prompt_tokens = 12
            yield from super().reply(request)

    BRAIN.__class__ = Counting
    try:
        answer = ask(client, user("Where?"), script=["Paris", "", "."])
    finally:
        BRAIN.__class__ = ScriptedBrain
    assert "moonshine" not in answer.model
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (12, 3, 15)
    names = [model.id for model in client.models.list()]
    assert answer.model in names
    assert client.models.retrieve(answer.model).id == answer.model
    assert client.models.retrieve("voxtui").id == "voxtui"
    with pytest.raises(NotFoundError, match="nothing"):
        client.models.retrieve("nothing")
    for name in names:
        BRAIN.__init__(["Yes."])
        client.chat.completions.create(model=name, messages=[user("Hello.")])  # type: ignore[list-item]


def schema_format(schema: dict) -> dict:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": ["integer", "null"]}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("form", "schema"),
    [({"type": "json_object"}, {"type": "object"}), (schema_format(PERSON), PERSON)],
)
def test_the_brain_is_held_to_the_schema(client, form, schema):
    answer = ask(client, user("Who?"), script=['{"name":', '"Ada"}'], response_format=form)
    assert answer.choices[0].message.content == '{"name":"Ada"}'
    (options,) = BRAIN.manners
    assert json.loads(options.json_schema) == schema
    assert options.instruction == "Answer with JSON only."


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_no_json_is_never_an_answer(client, stream):
    with pytest.raises(Exception, match="did not keep to response_format"):
        answer = ask(client, user("Who?"), response_format={"type": "json_object"}, stream=stream)
        list(answer)


def test_json_that_is_cut_off_says_so(client):
    json_mode = {"type": "json_object"}
    answer = ask(client, user("Who?"), script=["{", '"a"'], response_format=json_mode, max_tokens=2)
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "string", "pattern": "a"}, "pattern"),
        ({"items": {"oneOf": [{}]}}, "oneOf"),
        ({"$ref": "https://example.com/schema"}, "not in its own"),
        ({"$ref": "#/$defs/none", "$defs": {"some": {}}}, "not in its own"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "leads back to itself"),
        (
            {
                "properties": {"a": {"$ref": "#/$defs/a"}},
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            },
            "leads back to itself",
        ),
        ({"type": "text"}, "text"),
        ({"minLength": 3, "maxLength": 2}, "larger"),
        ({**PERSON, "required": ["town"]}, "'town' is required"),
        ({"enum": []}, "enum"),
        ({"description": "x" * 16_000}, "16000 bytes"),
    ],
)
def test_a_schema_that_would_not_be_kept_is_refused_by_its_keyword(server, schema, why):
    body = {"messages": [user("Hello.")], "response_format": schema_format(schema)}
    error = server.client.post(PATH, json=body).json()["error"]
    assert (error["param"], error["code"]) == ("response_format", "unsupported_value")
    assert why in error["message"]


WEATHER = {
    "name": "get-weather",
    "description": "Return the weather\nin a town.",
    "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
}
TOOLS = [{"type": "function", "function": WEATHER}]
RAIN = ToolCall("get_weather", '{"town": "Oslo"}')


@pytest.mark.parametrize(
    ("choice", "of_the_brain"),
    [("auto", "auto"), ("required", "required"),
     ({"type": "function", "function": {"name": "get-weather"}}, "get_weather")],
)  # fmt: skip
def test_a_function_of_the_client_is_called(client, choice, of_the_brain):
    question = user("Does it rain in Oslo?")
    answer = ask(client, question, script=[RAIN], tools=TOOLS, tool_choice=choice)
    (options,) = BRAIN.manners
    (tool,) = options.tools
    assert (tool.name, tool.line) == ("get_weather", "Return the weather in a town.")
    assert json.loads(tool.schema) == WEATHER["parameters"]
    assert tool.run is None
    assert options.tool_choice == of_the_brain
    assert answer.choices[0].finish_reason == "tool_calls"
    message = answer.choices[0].message
    assert message.content is None
    (call,) = message.tool_calls
    assert (call.function.name, call.function.arguments) == ("get-weather", RAIN.arguments)

    result = {"role": "tool", "tool_call_id": call.id, "content": "3 mm"}
    answer = ask(client, question, message, result, script=["Yes, 3 mm."], tools=TOOLS)
    assert answer.choices[0].message.content == "Yes, 3 mm."
    (request,) = BRAIN.requests
    assert request.user_input == "Does it rain in Oslo?"
    assert [(done.call.name, done.result) for done in request.calls] == [("get_weather", "3 mm")]
    assert not request.past

    thinks = {**message.model_dump(exclude_none=True), "content": "Let me look."}
    ask(client, question, thinks, result, script=["Yes."], tools=TOOLS)
    (request,) = BRAIN.requests
    assert (request.user_input, request.past) == ("Does it rain in Oslo?", [])

    said = {"role": "assistant", "content": "Yes, 3 mm."}
    ask(client, question, message, result, said, user("And now?"), script=["No."], tools=TOOLS)
    (request,) = BRAIN.requests
    assert [len(turn.calls) for turn in request.past] == [1, 0]
    assert not request.calls


def test_a_stream_of_null_is_no_stream(server):
    body = {"messages": [user("Hello.")], "stream": None}
    assert server.client.post(PATH, json=body).json()["object"] == "chat.completion"


def test_a_call_within_a_stream_is_one_delta(client):
    chunks = [*ask(client, user("Rain?"), script=[RAIN], tools=TOOLS, stream=True)]
    (delta,) = chunks[0].choices[0].delta.tool_calls
    assert delta.function.name == "get-weather"
    assert (delta.index, delta.function.arguments) == (0, RAIN.arguments)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_with_the_choice_none_no_tool_is_offered(client):
    ask(client, user("Rain?"), tools=TOOLS, tool_choice="none")
    assert BRAIN.manners[0].tools == ()


def test_a_schema_is_refused_by_name_with_voxtral():
    class Voxtral(ScriptedBrain):
        name = "voxtral"

    body = {"messages": [user("Rain?")], "response_format": {"type": "json_object"}}
    with serving(brain=Voxtral()) as server:
        answer = server.client.post(PATH, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "response_format")
