"""Ask a small model which tool a request needs, in a prompt of its own, bound by a grammar.

The model answers `no`, or `!name {arguments}`. It is asked only if a trigger of a tool matches, so
the other turns, and every spoken answer, are those of a brain without tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from voxtui.brains.embedded.chat_process import ASK, chatml
from voxtui.dialogue.data import FinishedCall, ToolCall
from voxtui.dialogue.protocols import Past, ReplyOptions
from voxtui.dialogue.tool_interface import Tool, offered

CALL_TOKENS = 96
"""Most tokens of a call."""

READ_TURNS = 2
"""Past turns that are read before a request, where a client offers tools without triggers."""

RESULT_CHARACTERS = 1200
"""Characters of a result that the model reads: some 300 tokens."""

DEPTH = 4
"""Most objects and lists inside each other in the arguments."""

LOOKING = "Let me look."
"""The reply before a result that is not worded yet."""

INSTRUCTION = """\
You choose the tool for what the user says. If he wants one of these done now, answer with its \
line. If he asks a general question, tells something, or says that it is not wanted, answer: no
{lines}"""

NO_TOOL = (
    "Who painted the Mona Lisa?",
    "I did that an hour ago.",
    "What does a barometer measure?",
    "Please don't do that.",
    "My brother always forgets his keys.",
    "Was it still off yesterday?",
    "Should I do it before I go to bed?",
    "Why is grass green?",
)
"""Requests for no tool, between those of the tools."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The question which of `tools` is to be called."""

    prompt: str
    grammar: str
    tools: tuple[Tool, ...]

    def call(self, reply: str) -> ToolCall | None:
        """Return the call that `reply` is; None for `no`, and for one that was cut off."""
        found = re.fullmatch(r"\s*!(\w+) (\{.*\})\s*", reply, re.DOTALL)
        if found is None or found[1] not in {tool.name for tool in self.tools}:
            return None
        try:
            json.loads(found[2])
        except ValueError:
            return None
        return ToolCall(found[1], found[2])


def tool_choice(past: Past, words: str, options: ReplyOptions) -> ToolChoice | None:
    """Return the question for the user's final `words`; None if no tool is triggered."""
    tools = offered(options.tools, words)
    if options.tool_choice not in ("auto", "required"):
        tools = tuple(tool for tool in options.tools if tool.name == options.tool_choice)
    if not tools:
        return None
    exchanges: list[tuple[str, str]] = []
    if any(not tool.triggers for tool in tools):
        exchanges = [(turn.user_text, _reply_of(turn.calls)) for turn in past[-READ_TURNS:]]
    prompt = f"{_front(options.tools, exchanges, words)}{ASK}"
    return ToolChoice(prompt, grammar(tools, options.tool_choice == "auto"), tools)


def tool_prefix(tools: Sequence[Tool]) -> str:
    """Return what all questions about `tools` begin with; empty if no model is offered any."""
    return _front(tools, [], "") if any(tool.line for tool in tools) else ""


def result_line(calls: Sequence[FinishedCall]) -> str:
    """Return the results of calls as the user's next words."""
    results = (f"Result of {f.call.name}: {f.result[:RESULT_CHARACTERS].strip()}" for f in calls)
    return "\n".join((*results, "Say it in one short sentence."))


def _reply_of(calls: Sequence[FinishedCall]) -> str:
    return f"!{calls[0].call.name} {calls[0].call.arguments}" if calls else "no"


def _front(tools: Sequence[Tool], exchanges: Sequence[tuple[str, str]], words: str) -> str:
    known = [tool for tool in tools if tool.line]
    lines = "\n".join(f"!{tool.name} {_shape(tool)} {tool.line}" for tool in known)
    calls = [
        (request, f"!{tool.name} {arguments}")
        for tool in known
        for request, arguments in tool.examples
    ]
    # One of no tool after each call, so that neither answer becomes a habit.
    examples: list[tuple[str, str]] = []
    for number in range(max(len(calls), len(NO_TOOL))):
        examples += calls[number : number + 1]
        examples += [(text, "no") for text in NO_TOOL[number : number + 1]]
    return chatml(INSTRUCTION.format(lines=lines), [*examples, *exchanges], words)


def _shape(tool: Tool) -> str:
    """Return the arguments as a model reads them: `{"room": "kitchen"}` or `{"path": string}`."""
    if tool.examples:
        return tool.examples[0][1]
    properties: Mapping[str, Any] = json.loads(tool.schema).get("properties", {})
    names = (f'"{name}": {about.get("type", "value")}' for name, about in properties.items())
    return f"{{{', '.join(names)}}}"


# The grammar (GBNF) of calls.

_BASICS = {
    "string": r'"\"" char* "\""',
    "char": r'[^"\\\x00-\x1f] | "\\" ["\\nt]',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,11})',
    "number": '"-"? ("0" | [1-9] [0-9]{0,11}) ("." [0-9]{1,9})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "value": "string | number | boolean | null",
}


def grammar(tools: Sequence[Tool], may_decline: bool) -> str:
    """Return the grammar of a call of one of `tools`, or of `no`."""
    rules: dict[str, str] = {}
    for number, tool in enumerate(tools):
        schema: Mapping[str, Any] = json.loads(tool.schema)
        arguments = _Arguments(schema).object(schema)
        rules[f"t{number}"] = f"{_literal(f'!{tool.name} ')} {arguments}"
    calls = " | ".join(f"t{number}" for number in range(len(tools)))
    rules["root"] = f'"no" | {calls}' if may_decline else calls
    return "\n".join(f"{name} ::= {rule}" for name, rule in (rules | _BASICS).items())


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class _Arguments:
    """Writes the arguments of one schema as an expression."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def object(self, schema: Mapping[str, Any], depth: int = 0) -> str:
        """Return an expression for an object: its required properties, then any of the others."""
        properties: Mapping[str, Any] = schema.get("properties", {})
        required = [name for name in properties if name in schema.get("required", ())]
        optional = [name for name in properties if name not in required]
        pairs = {
            name: f"{_literal(f'{json.dumps(name)}: ')} ({self._value(about, depth + 1)})"
            for name, about in properties.items()
        }
        first = ' ", " '.join(pairs[name] for name in required)
        if required:
            rest = "".join(f' (", " {pairs[name]})?' for name in optional)
            return f'"{{" {first}{rest} "}}"'
        chains = [
            " ".join((pairs[name], *(f'(", " {pairs[more]})?' for more in optional[place + 1 :])))
            for place, name in enumerate(optional)
        ]
        return f'"{{" ({" | ".join(chains)})? "}}"' if chains else '"{}"'

    def _value(self, schema: Mapping[str, Any], depth: int) -> str:
        if reference := schema.get("$ref"):
            known = self._root.get("$defs", {}) | self._root.get("definitions", {})
            schema = known.get(str(reference).rpartition("/")[2], {})
        if choices := schema.get("enum", [schema["const"]] if "const" in schema else None):
            return " | ".join(_literal(json.dumps(c, ensure_ascii=False)) for c in choices)
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return " | ".join(f"({self._value(option, depth)})" for option in options)
        kind: Any = schema.get("type", "value")
        if isinstance(kind, list):
            kinds = cast("list[str]", kind)
            options = [{**schema, "type": one} for one in kinds]
            return " | ".join(f"({self._value(option, depth)})" for option in options)
        if depth < DEPTH and kind == "object" and schema.get("properties"):
            return self.object(schema, depth)
        if depth < DEPTH and kind == "array":
            item = f"({self._value(schema.get('items', {}), depth + 1)})"
            return f'"[" ({item} (", " {item})*)? "]"'
        return kind if kind in _BASICS else '"{}"' if kind == "object" else "value"
