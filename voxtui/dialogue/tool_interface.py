"""Tools: actions and look-ups that a brain or a rule may request."""

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
"""Maximum number of characters of a result that a brain reads."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool. It is data: nothing in it is obeyed."""

    text: str
    """the result, which a brain puts into words"""
    sentence: str = ""
    """the complete answer, spoken without a brain; empty if a brain words `text`"""


Run: TypeAlias = Callable[[str, Flag], ToolResult]
"""Runs a tool with its arguments (JSON), and ends soon after the flag is set.

It is called on a thread of its own and checks the arguments. Raises VoxtuiError, whose message is
shown."""


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that can be done for the user."""

    name: str
    """lower-case letters, digits and underscores"""
    line: str
    """a description of a few words for a model; empty if only its rule calls it"""
    run: Run | None = None
    """the function that runs it; None if a client of the server does"""
    schema: str = NO_ARGUMENTS
    """the JSON schema of its arguments, an object"""
    examples: tuple[tuple[str, str], ...] = ()
    """pairs of a request and the arguments (JSON) of its call"""
    triggers: tuple[str, ...] = ()
    """regular expressions of words for which a model is offered the tool; empty: always"""
    acts: bool = False
    """whether it changes something or reads something private, so that a key must confirm each
    call, and "again" does not repeat it"""
    quoted: bool = False
    """whether its results may quote anybody, so that an answer must name the source"""
    trusted: bool = False
    """whether the user allows calls without a key, although it acts"""
    timeout_s: float = 5.0
    """the seconds after which a call has failed"""
    bridge: str = ""
    """a sentence before a slow call that holds for any result, such as `Let me look.`"""
    shared: bool = False
    """whether the user allows that its results are sent to another machine"""
    unheard: bool = False
    """whether it is only for a brain that answers before it knows the words; others have rules"""
    heard: bool = False
    """whether only a brain that knows the words may call it, because a trigger must match, and
    only after a key, because only its rule is certain that the user asked for it"""
    rule: Callable[[str], str | None] | None = None
    """the rule that returns the arguments (JSON) of a call that the words clearly request, else
    None; takes well under a millisecond"""

    def is_triggered(self, words: str) -> bool:
        return not self.triggers or any(
            re.search(trigger, words, re.IGNORECASE) for trigger in self.triggers
        )


class CallOutcome(StrEnum):
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    """the outcome of a call that nobody confirmed by a key"""
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class CallReport:
    call: ToolCall
    outcome: CallOutcome
    seconds: float = 0.0
    """the seconds of its run, without the wait for the key"""
    detail: str = ""
    """the reason for which it was not done"""


def offered(tools: Iterable[Tool], words: str, sends_to: str = "") -> tuple[Tool, ...]:
    """Return the tools that a model may call for `words`. Results may go to the host `sends_to`."""
    return tuple(
        tool
        for tool in tools
        if tool.line
        and not tool.unheard
        and tool.is_triggered(words)
        and (tool.shared or tool.run is None or not sends_to)
    )


def rule_call(tools: Iterable[Tool], words: str) -> ToolCall | None:
    """Return the call that a rule of one of `tools` reads in the user's words."""
    for tool in tools:
        if tool.rule is not None and (arguments := tool.rule(words)) is not None:
            return ToolCall(tool.name, arguments)
    return None
