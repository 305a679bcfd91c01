"""Tools over OpenAI's API, against a fake server over real sockets."""

import json

import pytest

from tests.openai_server import event, sends
from voxtui.dialogue.data import FinishedCall, Token, ToolCall, UserTranscript
from voxtui.dialogue.protocols import PastTurn, ReplyOptions, TurnRequest
from voxtui.dialogue.tool_interface import Tool, ToolResult
from voxtui.errors import RemoteError

SCHEMA = '{"type": "object", "properties": {"place": {"type": "string"}}}'


def nothing(arguments, cancelled) -> ToolResult:
    return ToolResult("")


WEATHER = Tool("weather", "the weather now", nothing, SCHEMA, shared=True)
NOTES = Tool("notes", "the user's notes", nothing)
CALL = ToolCall("weather", '{"place": "Oslo"}', "call_7")


def piece(**function: str) -> str:
    delta = {"tool_calls": [{"index": 0, "id": "call_7", "function": function}]}
    return f"data: {json.dumps({'choices': [{'delta': delta}]})}\n\n"


def test_a_call_is_read_however_it_is_split(server, make):
    server.answers["chat/completions"] = sends(
        piece(name="weather", arguments=""),
        piece(arguments='{"place": '),
        piece(arguments='"Oslo"}'),
        event(None, finish="tool_calls"),
    )
    options = ReplyOptions(tools=(WEATHER, NOTES))
    items = list(make().reply(TurnRequest((), "rain in Oslo?", options=options)))
    assert items == [UserTranscript("rain in Oslo?"), CALL]
    sent = server.requests[-1].json
    # The notes may not leave this machine.
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["weather"]
    assert sent["tools"][0]["function"]["parameters"] == json.loads(SCHEMA)
    assert sent["tool_choice"] == "auto"


def test_a_call_of_a_tool_that_was_not_offered_is_none(server, make):
    server.answers["chat/completions"] = sends(
        piece(name="notes", arguments="{}"), event(None, finish="tool_calls")
    )
    options = ReplyOptions(tools=(WEATHER, NOTES))
    items = list(make().reply(TurnRequest((), "rain?", options=options)))
    assert items == [UserTranscript("rain?"), ToolCall("")]


def test_a_result_goes_back_beside_its_call_and_no_more_is_called(server, make):
    server.answers["chat/completions"] = sends(event("Rain."), event(finish="stop"))
    options = ReplyOptions(tools=(WEATHER,))
    calls = (FinishedCall(CALL, "12 degrees, rain"),)
    items = list(make().reply(TurnRequest((), "rain?", options=options, calls=calls)))
    assert items[1:] == [Token("Rain.")]
    sent = server.requests[-1].json
    assert sent["tool_choice"] == "none"
    called, result = sent["messages"][-2:]
    assert called["tool_calls"][0]["function"]["arguments"] == '{"place": "Oslo"}'
    assert result == {"role": "tool", "tool_call_id": "call_7", "content": "12 degrees, rain"}


def test_a_turn_whose_answer_is_private_is_not_sent(server, make):
    server.answers["chat/completions"] = sends(event("Hello."), event(finish="stop"))
    past = (
        PastTurn("what are my notes", None, (Token("The code is 4712."),), private=True),
        PastTurn("hello", None, (Token("Hello."),)),
    )
    list(make().reply(TurnRequest(past, "hi")))
    sent = server.requests[-1].json
    assert "4712" not in json.dumps(sent)
    assert "tools" not in sent


def test_a_call_that_is_cut_off_or_strange_ends_nothing(server, make):
    for function in ({"name": "weather", "arguments": "{" * 20_000}, {"arguments": "{}"}):
        server.answers["chat/completions"] = sends(
            piece(**function), event("Yes."), event(finish="stop")
        )
        options = ReplyOptions(tools=(WEATHER,))
        items = list(make().reply(TurnRequest((), "rain?", options=options)))
        assert Token("Yes.") in items


def test_half_a_character_in_a_name_is_an_invalid_response(server, make):
    delta = {"tool_calls": [{"index": 0, "\ud800": "x"}]}
    answer = f"data: {json.dumps({'choices': [{'delta': delta}], 'usage': {chr(0xD800): 1}})}\n\n"
    server.answers["chat/completions"] = sends(answer)
    with pytest.raises(RemoteError, match="Invalid response"):
        list(make().reply(TurnRequest((), "rain?", options=ReplyOptions(tools=(WEATHER,)))))


def test_a_call_with_half_a_character_can_be_sent_back(server, make):
    server.answers["chat/completions"] = sends(
        piece(name="weather", arguments='{"place": "Oslo\ud800"}'), event(None, finish="tool_calls")
    )
    options = ReplyOptions(tools=(WEATHER,))
    *_, call = make().reply(TurnRequest((), "rain?", options=options))
    server.answers["chat/completions"] = sends(event("Rain."), event(finish="stop"))
    calls = (FinishedCall(call, "rain"),)
    items = list(make().reply(TurnRequest((), "rain?", options=options, calls=calls)))
    assert items[1:] == [Token("Rain.")]
