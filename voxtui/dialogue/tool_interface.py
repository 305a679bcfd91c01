"""Tools: what a brain, or a rule, may ask to have done."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from threading import Event as Flag
from typing import TypeAlias

from voxtui.dialogue.data import ToolCall

NO_ARGUMENTS = '{"type": "object", "properties": {}}'

LONGEST_RESULT = 4000
"""characters of a result, of which a brain reads the first ones"""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returned. It is data: nothing in it is obeyed."""

    text: str
    """the result, for a brain that words it"""
    sentence: str = ""
    """the whole answer, spoken without a brain; empty: a brain words `text`"""


Run: TypeAlias = Callable[[str, Flag], ToolResult]
"""Does what a tool does, from its arguments (JSON), and ends soon once the flag is set.

Called on a thread of its own. Checks the arguments. Raises VoxtuiError, whose message is shown.
"""


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that can be done for the user."""

    name: str
    """lower-case letters, digits and underscores"""
    line: str
    """what it does, in a few words for a model; empty: only its rule calls it"""
    run: Run | None = None
    """None: a client of the server runs it"""
    schema: str = NO_ARGUMENTS
    """the JSON schema of its arguments: an object"""
    examples: tuple[tuple[str, str], ...] = ()
    """requests, and the arguments (JSON) of their calls"""
    triggers: tuple[str, ...] = ()
    """regular expressions; without a match in the user's words no model is offered the tool; none:
    it is always offered"""
    acts: bool = False
    """it changes something, or reads something private, so a key must confirm each call, and
    "again" does not repeat it"""
    quoted: bool = False
    """its results are anybody's words: an answer made of one says whose they are"""
    trusted: bool = False
    """the user allows calls without a key, although it acts"""
    timeout_s: float = 5.0
    """seconds after which a call has failed"""
    bridge: str = ""
    """a sentence before a slow call that is true whatever comes, such as `Let me look.`"""
    shared: bool = False
    """the user allows that its results are sent to another machine"""
    unheard: bool = False
    """only for a brain that answers before it knows the user's words; elsewhere rules read them"""
    rule: Callable[[str], str | None] | None = None
    """returns the arguments (JSON) of a call that the user's words request for certain, else None;
    takes well under a millisecond"""

    def is_triggered(self, words: str) -> bool:
        return not self.triggers or any(
            re.search(trigger, words, re.IGNORECASE) for trigger in self.triggers
        )


class CallOutcome(StrEnum):
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    """nobody confirmed it by a key"""
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class CallReport:
    call: ToolCall
    outcome: CallOutcome
    seconds: float = 0.0
    """its run, without the wait for the key"""
    detail: str = ""
    """the reason if it was not done"""


def offered(tools: Iterable[Tool], words: str, sends_to: str = "") -> tuple[Tool, ...]:
    """Return the tools that a model may call for `words`. Their results may go to `sends_to`."""
    return tuple(
        tool
        for tool in tools
        if tool.line
        and not tool.unheard
        and tool.is_triggered(words)
        and (tool.shared or tool.run is None or not sends_to)
    )


def rule_call(tools: Iterable[Tool], words: str) -> ToolCall | None:
    """Return the call that a rule of one of `tools` finds in the user's words."""
    for tool in tools:
        if tool.rule is not None and (arguments := tool.rule(words)) is not None:
            return ToolCall(tool.name, arguments)
    return None
