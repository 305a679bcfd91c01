"""What the rules of the tools share: requests as patterns, and the words of a call."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from threading import Event as Flag

from voxtui.errors import InputError, strip_control_characters
from voxtui.skills.rules.normalise import normalise, strip_courtesy

LONGEST_REQUEST = 300
"""characters; rules ignore a longer text"""

COMMON_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and at by down for from in into it of off on out start stop switch the to turn set up"
        " with please my all put make run show go",
    )
)
"""Words that do not say which tool is meant."""

OF_ONES_OWN = (
    r"^(?!\W*(?:what (?:does|do|did)|what(?:'s| is| are) (?:an?|the (?:difference|best|meaning))"
    r"|why|who|how (?:do|did|should)|how does an?|should|my|our|his|her)\b)"
    r"(?!.*\b(?:an?|any|most|the first|typical)\b(?: \w+){0,2} (?:computer|machine|laptop|pc|drive"
    r"|disk)).*"
)
"""No general question, such as what memory means, none about some computer or other, and no report,
as of a phone that is full."""

OUTPUT_BYTES = 4096
TICK_SECONDS = 0.02


def plain(words: str) -> str:
    """Return a request without courtesy, with numbers as digits; empty if it is too long."""
    return "" if len(words) > LONGEST_REQUEST else strip_courtesy(normalise(words))


def whole_requests(*forms: str) -> re.Pattern[str]:
    """Return a pattern of whole requests in any of `forms`."""
    return re.compile("|".join(f"(?:{form})" for form in forms), re.IGNORECASE)


def stem(word: str) -> str:
    """Return a pattern for `word` and its plural or singular."""
    return re.escape(word.removesuffix("s")) + r"s?\b"


def output_of(command: Sequence[str], seconds: float, cancelled: Flag) -> str:
    """Run an argument list without a shell, and return the first 4 kB that it prints.

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
    with process:
        try:
            output = _read(process, time.monotonic() + seconds, cancelled)
        finally:
            process.kill()
    if process.returncode > 0:
        raise InputError(f"{name} failed with exit code {process.returncode}. {output[:200]}")
    return output


def _read(process: subprocess.Popen[bytes], until: float, cancelled: Flag) -> str:
    """Return what `process` prints until it ends or has printed enough. Raises InputError."""
    import os
    import select

    assert process.stdout is not None
    descriptor, output = process.stdout.fileno(), b""
    while len(output) < OUTPUT_BYTES:
        if cancelled.is_set() or time.monotonic() > until:
            raise InputError("The command took too long and was ended.")
        if select.select([descriptor], [], [], TICK_SECONDS)[0]:
            if not (piece := os.read(descriptor, OUTPUT_BYTES)):
                break
            output += piece
    else:
        process.kill()  # it may print for ever
    while process.poll() is None:
        if cancelled.wait(TICK_SECONDS) or time.monotonic() > until:
            raise InputError("The command took too long and was ended.")
    return strip_control_characters(output[:OUTPUT_BYTES].decode(errors="replace")).strip()
