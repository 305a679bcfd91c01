"""The user's own commands: a sentence, typed arguments, and an argument list."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from threading import Event as Flag
from typing import Any

import msgspec

from voxtui.dialogue.tool_interface import Tool, ToolResult
from voxtui.errors import InputError
from voxtui.settings.schema import ToolCommand
from voxtui.tools.words import COMMON_WORDS, output_of, plain, stem

TEXT = r"[^\s-][^\0]{0,99}"
"""A text argument. It does not begin with `-`, so that no program takes it for an option."""

READ_ALOUD = 300
"""characters of an output that is spoken as it is; the brain words a longer one"""

DONE = ToolResult("", "Done.")

_NO_ORDER = (
    r"(?:(?:my|our|his|her|their) [^,;]*$"
    r"|(?:was|were|did|does|has|had|have|who|why|how|what|when|where|which|should|shall|is|are|am"
    r"|don't|do|never|if"
    r"|(?:i|we|he|she|they|you)(?:'ve|'d| have| had)?(?: already| just| never| always)?"
    r" (?:\w+ed|forgot|left|did|was|were|had|put|got|saw|told|said))\b)"
)
"""Beginnings of a question, a negation or a report, none of which is an order."""

_ORDER = rf"^(?!\W*(?:(?:and|but|so|well|oh) )*{_NO_ORDER})"


def command_tool(command: ToolCommand) -> Tool:
    """Return the tool of a command. Its key is asked for unless `ask` is false."""
    values = tuple(_samples(command, place) for place in (0, -1))
    examples = dict.fromkeys(
        (_filled(command.sentence, sample), json.dumps(sample)) for sample in values
    )
    words = re.sub(r"\{\w+\}", " ", command.sentence)
    marks = [word for word in re.findall(r"[^\W\d_]+", words.lower()) if word not in COMMON_WORDS]
    stems = "|".join(stem(mark) for mark in marks) or r"\w"
    return Tool(
        command.name,
        _filled(command.sentence, dict.fromkeys(command.arguments, "…")),
        lambda arguments, cancelled: _run(command, arguments, cancelled),
        json.dumps(_schema(command)),
        tuple(examples),
        (rf"{_ORDER}.*\b(?:{stems})",),
        acts=command.ask,
        timeout_s=command.timeout_s + 1,
        rule=lambda text: _match(command, text),
    )


def _kind(command: ToolCommand, name: str) -> tuple[str, ...]:
    """Return the choices of an argument; empty: a whole number or a text."""
    kind = command.arguments[name]
    return () if isinstance(kind, str) else kind


def _schema(command: ToolCommand) -> Mapping[str, Any]:
    def of(name: str) -> Mapping[str, Any]:
        if choices := _kind(command, name):
            return {"type": "string", "enum": choices}
        return {"type": "integer" if command.arguments[name] == "integer" else "string"}

    return {
        "type": "object",
        "properties": {name: of(name) for name in command.arguments},
        "required": [*command.arguments],
    }


def _samples(command: ToolCommand, place: int) -> dict[str, Any]:
    """Return arguments for an example."""
    return {
        name: choices[place]
        if (choices := _kind(command, name))
        else 20
        if kind == "integer"
        else "this"
        for name, kind in command.arguments.items()
    }


def _filled(sentence: str, values: Mapping[str, Any]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: str(values[found[1]]), sentence)


def _match(command: ToolCommand, words: str) -> str | None:
    """Return the arguments if `words` are the command's sentence, in any of its values."""
    pieces = re.split(r"\{(\w+)\}", plain(command.sentence))
    pattern = ""
    for place, piece in enumerate(pieces):
        if place % 2 == 0:
            pattern += re.sub(r"(?:\\ )+", r"\\ ", re.escape(piece))
        elif choices := _kind(command, piece):
            pattern += f"(?P<{piece}>{'|'.join(map(re.escape, choices))})"
        else:
            kind = r"\d+" if command.arguments[piece] == "integer" else ".+"
            pattern += f"(?P<{piece}>{kind})"
    if (found := re.fullmatch(pattern, plain(words), re.IGNORECASE)) is None:
        return None
    values = {name: _value(command, name, text) for name, text in found.groupdict().items()}
    return json.dumps(values)


def _value(command: ToolCommand, name: str, text: str) -> Any:
    """Return a value as the configuration writes it."""
    if choices := _kind(command, name):
        return next(choice for choice in choices if choice.lower() == text.lower())
    return int(text) if command.arguments[name] == "integer" else text


def _run(command: ToolCommand, arguments: str, cancelled: Flag) -> ToolResult:
    values = _checked(command, arguments)
    line = [_filled(part, values) for part in command.run]
    output = output_of(line, command.timeout_s, cancelled)
    if command.says:
        return ToolResult(output, _filled(command.says, {**values, "output": output}))
    return ToolResult(output, output if len(output) <= READ_ALOUD else "") if output else DONE


def _checked(command: ToolCommand, arguments: str) -> dict[str, Any]:
    """Return the arguments if they are those of `command`. Raises InputError."""
    try:
        values = msgspec.json.decode(arguments, type=dict[str, int | str])
    except msgspec.MsgspecError:
        values = {"": ""}
    if set(values) != set(command.arguments):
        raise InputError(f"{command.name} needs: {', '.join(command.arguments) or 'nothing'}.")
    checked: dict[str, Any] = {}
    for name, value in values.items():
        choices = _kind(command, name)
        if choices:
            fits = value in choices
        elif command.arguments[name] == "integer":
            fits = isinstance(value, int) and abs(value) < 10**9
        else:
            fits = isinstance(value, str) and re.fullmatch(TEXT, value) is not None
        if not fits:
            raise InputError(f"{command.name}: {name} cannot be {str(value)[:60]!r}.")
        checked[name] = value
    return checked
