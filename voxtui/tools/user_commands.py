"""The user's own commands: a sentence, typed arguments, and a program to run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from threading import Event as Flag
from typing import Annotated, Any, Literal

import msgspec

from voxtui.dialogue.tool_interface import Tool, ToolResult
from voxtui.errors import InputError
from voxtui.settings.schema import ToolCommand
from voxtui.tools.words import COMMON_WORDS, output_of, pattern, plain, stem

TEXT = r"^[^\s-][^\x00]{0,99}$"
"""Matches a text argument. It does not begin with `-`, so that no program reads it as an option."""

READ_ALOUD = 300
"""Maximum characters of an output that is spoken unchanged; the brain words a longer one."""

DONE = ToolResult("", "Done.")

_ORDER = (
    rf"^(?!\W*{pattern('report')})(?!\W*{pattern('filler')}(?:was|were|did|does|has|had|have|who|why"
    r"|how|what|when|where|which|should|shall|is|are|am|don't|do (?:i|you|we|they)|never|if)\b)"
)
"""Matches at the beginning of words that are no report, question or negation."""


def command_tool(command: ToolCommand) -> Tool:
    """Return the tool of a command. It needs a key unless `ask` is false."""
    values = tuple(_samples(command, place) for place in (0, -1))
    examples = dict.fromkeys(
        (_filled(command.sentence, sample), json.dumps(sample)) for sample in values
    )
    words = re.sub(r"\{\w+\}", " ", command.sentence)
    marks = [word for word in re.findall(r"[^\W\d_]+", words.lower()) if word not in COMMON_WORDS]
    stems = "|".join(map(_forms, marks)) or r"\w"
    kind = _arguments(command)
    _, schemas = msgspec.json.schema_components((kind,))
    return Tool(
        command.name,
        _filled(command.sentence, dict.fromkeys(command.arguments, "…")),
        lambda arguments, cancelled: _run(command, kind, arguments, cancelled),
        json.dumps(schemas[command.name]),
        tuple(examples),
        (rf"{_ORDER}.*\b(?:{stems})",),
        acts=command.ask,
        timeout_s=command.timeout_s + 1,
        rule=lambda text: _match(command, text),
    )


def _forms(word: str) -> str:
    """Return a pattern for a word as it may be recognised, such as `back up` for `backup`."""
    if word == "percent":
        return "percent|%"
    return re.sub(r"(?<=\w)(up|down|off|out)(?=s\?)", r" ?\1", stem(word))


def _kind(command: ToolCommand, name: str) -> tuple[str, ...]:
    """Return the choices of an argument; empty for a whole number or a text."""
    kind = command.arguments[name]
    return () if isinstance(kind, str) else kind


def _arguments(command: ToolCommand) -> Any:
    """Return the type of the arguments, which validates them and describes them to a model."""

    def kind(name: str) -> Any:
        if choices := _kind(command, name):
            return Literal[choices]  # type: ignore[valid-type]
        whole = Annotated[int, msgspec.Meta(ge=0, lt=10**9)]
        text = Annotated[str, msgspec.Meta(pattern=TEXT)]
        return whole if command.arguments[name] == "integer" else text

    fields = [(f"a{number}", kind(name)) for number, name in enumerate(command.arguments)]
    names = {f"a{number}": name for number, name in enumerate(command.arguments)}
    return msgspec.defstruct(command.name, fields, rename=names, forbid_unknown_fields=True)


def _samples(command: ToolCommand, place: int) -> dict[str, Any]:
    """Return arguments for an example."""
    typed = {"integer": (20,), "text": ("this",)}
    choices = {n: typed[k] if isinstance(k, str) else k for n, k in command.arguments.items()}
    return {name: values[place] for name, values in choices.items()}


def _filled(sentence: str, values: Mapping[str, Any]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: str(values[found[1]]), sentence)


def _match(command: ToolCommand, words: str) -> str | None:
    """Return the arguments if `words` are the command's sentence with any of its values."""
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
        return next(c for c in choices if re.fullmatch(re.escape(c), text, re.IGNORECASE))
    return int(text) if command.arguments[name] == "integer" else text


def _run(command: ToolCommand, kind: Any, arguments: str, cancelled: Flag) -> ToolResult:
    try:
        values = msgspec.to_builtins(msgspec.json.decode(arguments, type=kind))
    except msgspec.MsgspecError as error:
        raise InputError(f"{command.name}: {error}.") from error
    line = [_filled(part, values) for part in command.run]
    output = output_of(line, command.timeout_s, cancelled)
    if command.says:
        return ToolResult(output, _filled(command.says, {**values, "output": output}))
    return ToolResult(output, output if len(output) <= READ_ALOUD else "") if output else DONE
