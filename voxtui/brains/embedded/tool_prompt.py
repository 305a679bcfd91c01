"""Ask a small model which tool a request needs, in a prompt of its own, limited by a grammar.

The model answers `no`, or `!name {arguments}`. It is asked only if a trigger of a tool matches, so
other turns, and every spoken answer, are the same as without tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

from msgspec import structs

from voxtui.brains.embedded.chat_process import ASK, ChatRequest, chatml
from voxtui.dialogue.data import FinishedCall, ToolCall
from voxtui.dialogue.protocols import Past, ReplyOptions
from voxtui.dialogue.tool_interface import Tool, offered
from voxtui.settings.schema import Sampling

CALL_TOKENS = 96

READ_TURNS = 2
"""Past turns before the request in the prompt, if a client offers tools without triggers."""

RESULT_CHARACTERS = 1200
"""Maximum characters of a result that the model reads: some 300 tokens."""

LONGEST_LINE = 400
"""Maximum characters of a tool's line."""

DEPTH = 5
"""Maximum nesting of objects, lists and alternatives in the arguments."""

MOST_VALUES = 100
"""Maximum values of a tool's arguments in the grammar; further ones may be anything."""

MOST_WORDS = 100
"""Maximum words of the user that a text may be chosen from."""

SPAN = "spoken"
"""The format, in a schema, of a text that holds only words of the user."""

CLAUSE_ENDS = (".", ",", ":", ";", "!", "?")

ANNOUNCING = frozenset(("that", "remember", "note", "notes", "down", "forget", "saying", "about"))
"""Words after which the text of a note may begin."""

BIAS = -1.5
"""The logit bias of `no`, which the model prefers too often, for tools that only read."""

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
    # Each names what a tool is about.
    "I turned the lights off myself.",
    "How do people remember long lists?",
    "What does RAM stand for?",
    "My sister's laptop has no space left, poor thing.",
    "I wrote a note last night and now it's lost.",
    "Never mind the calendar, I'll look myself.",
    "She told me to start the backup, but I was asleep.",
    "What should I do on Saturday?",
    "My memory is like a sieve these days.",
    "Everybody copied the answer from Tom.",
    "Which notes are in a C major chord?",
    "Do you remember your first birthday?",
    "They charged me far too much.",
    "Is it normal to run out of space in a small flat?",
)
"""Requests for no tool, as examples between those of the tools."""

FEWEST_NO_TOOL = 4
"""Minimum number of such examples for tools that came without any. With eight, the model called 23
of 30 functions of clients and one wrongly; with four, 26 and none."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The question which of `tools` to call."""

    prompt: str
    grammar: str
    tools: tuple[Tool, ...]
    bias: tuple[str, float] | None = None

    def request(self, sampling: Sampling) -> ChatRequest:
        sampling = structs.replace(sampling, temperature=0.0)
        return ChatRequest(self.prompt, sampling, CALL_TOKENS, grammar=self.grammar, bias=self.bias)

    def call(self, reply: str) -> ToolCall | None:
        """Return the call in `reply`; None for `no` and for an incomplete call."""
        found = re.fullmatch(r"\s*!(\w+) (\{.*\})\s*", reply, re.DOTALL)
        if found is None or found[1] not in {tool.name for tool in self.tools}:
            return None
        try:
            json.loads(found[2])
        except ValueError:
            return None
        return ToolCall(found[1], found[2])


def tool_choice(past: Past, words: str, options: ReplyOptions) -> ToolChoice | None:
    """Return the question for the user's final `words`, or None if no tool is triggered."""
    tools = offered(options.tools, words)
    if options.tool_choice not in ("auto", "required"):
        tools = tuple(tool for tool in options.tools if tool.name == options.tool_choice)
    if not tools:
        return None
    exchanges: list[tuple[str, str]] = []
    if any(not tool.triggers for tool in tools):
        exchanges = [(turn.user_text, _reply_of(turn.calls)) for turn in past[-READ_TURNS:]]
    prompt = f"{_front(options.tools, exchanges, words)}{ASK}"
    rules = grammar(tools, options.tool_choice == "auto", words)
    reads = all(tool.triggers and not tool.acts and not tool.heard for tool in tools)
    bias = ("no", BIAS) if reads else None
    return ToolChoice(prompt, rules, tools, bias)


def tool_prefix(tools: Sequence[Tool]) -> str:
    """Return the beginning of all questions about `tools`; empty if no model is offered any."""
    known = any(tool.line and not tool.unheard for tool in tools)
    return _front(tools, [], "") if known else ""


def result_line(calls: Sequence[FinishedCall]) -> str:
    """Return the results of calls, as the user's next words."""
    results = (f"Result of {f.call.name}: {f.result[:RESULT_CHARACTERS].strip()}" for f in calls)
    return "\n".join((*results, "Say it in one short sentence."))


def _reply_of(calls: Sequence[FinishedCall]) -> str:
    return f"!{calls[0].call.name} {calls[0].call.arguments}" if calls else "no"


def _front(tools: Sequence[Tool], exchanges: Sequence[tuple[str, str]], words: str) -> str:
    known = [tool for tool in tools if tool.line and not tool.unheard]
    lines = "\n".join(f"!{tool.name} {_shape(tool)} {tool.line}"[:LONGEST_LINE] for tool in known)
    calls = [
        (request, f"!{tool.name} {arguments}")
        for tool in known
        for request, arguments in tool.examples or (_example(tool),)
    ]
    # One of no tool after each call, so that neither answer becomes a habit.
    examples: list[tuple[str, str]] = []
    fewest = len(NO_TOOL) if any(tool.examples for tool in known) else FEWEST_NO_TOOL
    for number in range(max(len(calls), fewest)):
        examples += calls[number : number + 1]
        examples += [(text, "no") for text in NO_TOOL[number : number + 1]]
    return chatml(INSTRUCTION.format(lines=lines), [*examples, *exchanges], words)


def _example(tool: Tool) -> tuple[str, str]:
    """Return a request, and its arguments, for a tool without examples: its own description."""
    properties = _table(json.loads(tool.schema), "properties")
    values = {name: _sample(_table(properties, name)) for name in properties}
    said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())
    return f"{tool.line.rstrip('.')}: {said}." if said else tool.line, json.dumps(values)


def _sample(about: dict[str, Any]) -> object:
    choices = about.get("enum")
    if isinstance(choices, list) and choices:
        return cast("list[object]", choices)[0]
    return {"integer": 7, "number": 7.5, "boolean": True}.get(str(about.get("type")), "Lima")


def _shape(tool: Tool) -> str:
    """Return the arguments for a model: `{"room": "kitchen"}` or `{"path": string}`."""
    if tool.examples:
        return tool.examples[0][1]
    properties = _table(json.loads(tool.schema), "properties")
    types = ((name, _table(properties, name).get("type")) for name in properties)
    known = ("object", "array", *_BASICS)  # any other text could fake lines of the prompt
    names = (f'"{name}": {kind if kind in known else "value"}' for name, kind in types)
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


def grammar(tools: Sequence[Tool], may_decline: bool, words: str = "") -> str:
    """Return the grammar of the calls that the user's `words` may request, and of `no`."""
    rules: dict[str, str] = {}
    for number, tool in enumerate(tools):
        schema: Mapping[str, Any] = json.loads(tool.schema)
        arguments = _Arguments(schema, rules).object(schema)
        rules[f"t{number}"] = f"{_literal(f'!{tool.name} ')} {arguments}"
    calls = " | ".join(f"t{number}" for number in range(len(tools)))
    rules["root"] = f'"no" | {calls}' if may_decline else calls
    spans = _span(words) if any(f'"{SPAN}"' in tool.schema for tool in tools) else {}
    return "\n".join(f"{name} ::= {rule}" for name, rule in (rules | _BASICS | spans).items())


def _span(words: str) -> dict[str, str]:
    """Return the rules of a string that is a run of clauses of `words`, so that nothing is made up.

    It begins with a clause, or after a word that announces one, and ends with a clause.
    """
    spoken = re.sub(r'["\\\x00-\x1f]', " ", words).split()[:MOST_WORDS] or [""]
    begins = ["w0"]
    rules: dict[str, str] = {}
    for place, (word, following) in enumerate(pairwise([*spoken, ""])):
        ends = word.endswith(CLAUSE_ENDS)
        if following and (ends or word.lower() in ANNOUNCING):
            begins.append(f"w{place + 1}")
        rest = f' " " w{place + 1}' if following else ""
        rules[f"w{place}"] = _literal(word) + (f" ({rest})?" if ends and rest else rest)
    return {"span": rf'"\"" ({" | ".join(begins)}) "\""', **rules}


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class _Arguments:
    """Writes the arguments of one schema as an expression.

    A schema may come from anybody: parts that are wrong, nested too deeply or too many allow any
    value.
    """

    def __init__(self, root: Mapping[str, Any], rules: dict[str, str]) -> None:
        self._root, self._rules = root, rules
        self._room = MOST_VALUES

    def object(self, schema: Mapping[str, Any], depth: int = 0) -> str:
        """Return an expression for an object: its required properties, then any of the others."""
        properties, needed = _table(schema, "properties"), schema.get("required")
        needed = cast("list[object]", needed) if isinstance(needed, list) else ()
        required = [name for name in properties if name in needed]
        optional = [name for name in properties if name not in required]
        pairs = {
            name: f"{_literal(f'{json.dumps(name)}: ')} ({self._value(about, depth + 1)})"
            for name, about in properties.items()
        }
        chains, rest = list[str](), ""
        for name in reversed(optional):  # rules, because what comes before repeats what follows
            pair = self._rule(pairs[name])
            chains.append(f"{pair} {rest}")
            rest = self._rule(f'(", " {pair})? {rest}')
        if required:
            first = ' ", " '.join(pairs[name] for name in required)
            return f'"{{" {first} {rest} "}}"'
        return f'"{{" ({" | ".join(chains)})? "}}"' if chains else '"{}"'

    def _rule(self, expression: str) -> str:
        name = f"p{len(self._rules)}"
        self._rules[name] = expression
        return name

    def _value(self, schema: object, depth: int) -> str:
        self._room -= 1
        if not isinstance(schema, dict) or depth > DEPTH or self._room < 0:
            return "value"
        about = cast("dict[str, Any]", schema)
        if reference := about.get("$ref"):
            known = _table(self._root, "$defs") | _table(self._root, "definitions")
            return self._value(known.get(str(reference).rpartition("/")[2]), depth + 1)
        choices = about.get("enum", [about["const"]] if "const" in about else None)
        if isinstance(choices, list) and choices:
            literals = (json.dumps(choice, ensure_ascii=False) for choice in cast("Any", choices))
            return " | ".join(map(_literal, literals))
        options = about.get("anyOf") or about.get("oneOf")
        kind: Any = about.get("type", "value")
        if isinstance(kind, list):
            options = [{**about, "type": name} for name in cast("list[object]", kind)]
        if isinstance(options, list) and options:
            values = (self._value(option, depth + 1) for option in cast("list[object]", options))
            return " | ".join(f"({value})" for value in values)
        if kind == "object" and _table(about, "properties"):
            return self.object(about, depth)
        if kind == "array":
            item = self._rule(self._value(about.get("items", {}), depth + 1))
            return f'"[" ({item} (", " {item})*)? "]"'
        if about.get("format") == SPAN:
            return "span"
        if kind == "object":
            return '"{}"'
        return kind if isinstance(kind, str) and kind in _BASICS else "value"


def _table(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = schema.get(name)
    return cast("dict[str, Any]", table) if isinstance(table, dict) else {}
