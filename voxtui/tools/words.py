"""Helpers of the tools' rules: requests as patterns, and the words of a call."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event as Flag
from typing import Any

from voxtui.dialogue.tool_interface import Run, Tool
from voxtui.errors import InputError, strip_control_characters
from voxtui.skills.rules.forms import compile_forms, expand, read_tables
from voxtui.skills.rules.normalise import normalise, strip_courtesy

LONGEST_REQUEST = 300
"""Maximum characters of a request; rules ignore a longer text."""

COMMON_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and at by down for from in into it of off on out start stop switch the to turn set up"
        " with please my all put make run show go",
    )
)
"""Words that do not identify a tool."""

_TABLES = read_tables(Path(__file__).with_name("requests.toml"))
_PARTS = _TABLES.pop("parts")
_FORMS = compile_forms({name: table["forms"] for name, table in _TABLES.items()}, _PARTS)

OUTPUT_BYTES = 4096
TICK_SECONDS = 0.02


def plain(words: str) -> str:
    """Return a request without courtesy, with numbers as digits; empty if it is too long."""
    return "" if len(words) > LONGEST_REQUEST else strip_courtesy(normalise(words))


def tool(name: str, run: Run, rule: Callable[[str], str | None], **fields: Any) -> Tool:
    """Return a tool that requests.toml describes."""
    table = _TABLES[name]
    triggers = tuple(expand(line, _PARTS) for line in table["triggers"])
    examples = tuple((words, arguments) for words, arguments in table["examples"])
    return Tool(name, table["line"], run, examples=examples, triggers=triggers, rule=rule, **fields)


def request(name: str, words: str) -> Mapping[str, str] | None:
    """Return the groups of a form of the tool `name` that matches all of `words`, or None."""
    found = next(filter(None, (form.fullmatch(words) for form in _FORMS[name])), None)
    return found and found.groupdict("")


def without_arguments(name: str) -> Callable[[str], str | None]:
    """Return the rule of a tool that has no arguments."""
    return lambda words: "{}" if request(name, plain(words)) is not None else None


def pattern(part: str) -> str:
    """Return a part of requests.toml as a regular expression."""
    return expand(f"{{{part}}}", _PARTS)


def stem(word: str) -> str:
    """Return a pattern for `word` and its plural or singular."""
    return re.escape(word.removesuffix("s")) + r"s?\b"


def output_of(
    command: Sequence[str], seconds: float, cancelled: Flag, most: int = OUTPUT_BYTES
) -> str:
    """Run a command without a shell, and return the first `most` bytes of its output.

    Ends it after `seconds`, or once `cancelled` is set. Raises InputError.
    """
    name = command[0]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,  # so that it gets no Ctrl-C
        )
    except OSError as error:
        raise InputError(f"{name} cannot be run: {error.strerror}.") from error
    assert process.stdout is not None
    with process.stdout:
        try:
            output, cut = _read(process, time.monotonic() + seconds, cancelled, most)
        except InputError:
            _kill_group(process)
            raise
        if cut:  # it may print for ever
            _kill_group(process)
    process.wait()
    if process.returncode > 0:
        raise InputError(f"{name} failed with exit code {process.returncode}. {output[:200]}")
    if process.returncode < 0 and not cut:
        raise InputError(f"{name} was ended by signal {-process.returncode}. {output[:200]}")
    return output


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill `process`, which was not waited for, and what it started. Raises InputError."""
    try:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    except PermissionError as error:
        if process.poll() is None:  # else it has ended, and macOS refuses that
            raise InputError(
                "The command took too long, and goes on: it runs as another user."
            ) from error
    process.wait()


def _read(
    process: subprocess.Popen[bytes], until: float, cancelled: Flag, most: int
) -> tuple[str, bool]:
    """Return what `process` prints until it ends, or has printed enough, and then True.

    What it left running may hold its output open; that is not waited for. Raises InputError.
    """
    assert process.stdout is not None
    descriptor, output, is_open = process.stdout.fileno(), b"", True
    while len(output) < most:
        if cancelled.is_set() or time.monotonic() > until:
            raise InputError("The command took too long and was ended.")
        ended = process.poll() is not None
        if is_open and select.select([descriptor], [], [], 0 if ended else TICK_SECONDS)[0]:
            piece = os.read(descriptor, OUTPUT_BYTES)
            is_open = bool(piece)
            output += piece
        elif ended:
            break
        elif not is_open:
            cancelled.wait(TICK_SECONDS)
    text = strip_control_characters(output[:most].decode(errors="replace")).strip()
    return text, len(output) >= most
