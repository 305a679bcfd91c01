"""Functions and JSON by the embedded models, through the stock client."""

from __future__ import annotations

import json

import pytest
from openai import OpenAI

from tests.serve.conftest import PATIENCE, serving
from voxtui.serve.shared_models import warm_pool
from voxtui.settings.schema import BrainConfig, Config, EmbeddedBrainConfig, VoiceConfig

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {argument: {"type": "string"}},
                "required": [argument],
            },
        },
    }
    for name, description, argument in (
        ("get_weather", "Return the weather in a town now.", "town"),
        ("switch_light", "Switch the light in a room on or off.", "room"),
    )
]

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


SMALL = Config(
    brain=BrainConfig(name="embedded", embedded=EmbeddedBrainConfig(model="smollm2-135m")),
    voice=VoiceConfig(engine="none"),
)


@pytest.mark.slow
@pytest.mark.models
def test_calls_and_json_keep_to_their_schemas_whatever_the_model_thinks() -> None:
    with (
        warm_pool(SMALL, print) as pool,
        serving(config=SMALL, pool=pool) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=PATIENCE) as client,
    ):

        def ask(*messages, **fields):
            return client.chat.completions.create(model="voxtui", messages=messages, **fields)

        question = {"role": "user", "content": "What is the weather in Oslo?"}
        answer = ask(question, tools=TOOLS, tool_choice="required")
        choice = answer.choices[0]
        assert choice.finish_reason == "tool_calls"
        assert answer.usage.prompt_tokens > 50
        assert answer.usage.completion_tokens > 3
        (call,) = choice.message.tool_calls
        assert all(isinstance(value, str) for value in json.loads(call.function.arguments).values())
        result = {"role": "tool", "tool_call_id": call.id, "content": "7 degrees, heavy rain"}
        worded = ask(question, choice.message, result, tools=TOOLS).choices[0]
        assert worded.finish_reason == "stop"
        assert worded.message.content
        demanded = {"type": "function", "function": {"name": "switch_light"}}
        (call,) = ask(question, tools=TOOLS, tool_choice=demanded).choices[0].message.tool_calls
        assert call.function.name == "switch_light"
        assert json.loads(call.function.arguments).keys() == {"room"}

        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
        person = ask({"role": "user", "content": "Ada is 36."}, response_format=form).choices[0]
        assert json.loads(person.message.content).keys() == {"name", "age"}
