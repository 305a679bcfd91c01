"""Functions and JSON by the embedded models, through the stock client."""

from __future__ import annotations

import json

import pytest
from openai import OpenAI

from tests.serve.conftest import PATIENCE, serving
from voxtui.serve.shared_models import warm_pool
from voxtui.settings.schema import Config

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


@pytest.mark.slow
@pytest.mark.models
def test_a_function_is_called_its_result_worded_and_json_keeps_to_its_schema() -> None:
    with (
        warm_pool(Config(), print) as pool,
        serving(pool=pool) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=PATIENCE) as client,
    ):

        def ask(*messages, **fields):
            return client.chat.completions.create(model="voxtui", messages=messages, **fields)

        question = {"role": "user", "content": "What is the weather in Oslo?"}
        choice = ask(question, tools=TOOLS).choices[0]
        assert choice.finish_reason == "tool_calls", choice
        (call,) = choice.message.tool_calls
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments) == {"town": "Oslo"}
        result = {"role": "tool", "tool_call_id": call.id, "content": "7 degrees, heavy rain"}
        answer = ask(question, choice.message, result, tools=TOOLS).choices[0]
        assert answer.finish_reason == "stop"
        assert "rain" in answer.message.content
        demanded = {"type": "function", "function": {"name": "switch_light"}}
        (call,) = ask(question, tools=TOOLS, tool_choice=demanded).choices[0].message.tool_calls
        assert call.function.name == "switch_light"

        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
        told = {"role": "user", "content": "Ada Lovelace was 36 years old. Who, and how old?"}
        answer = ask(told, response_format=form)
        assert json.loads(answer.choices[0].message.content) == {"name": "Ada Lovelace", "age": 36}
        assert answer.usage.prompt_tokens > 10
