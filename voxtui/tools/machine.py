"""Fixed read-only questions to this machine: disk, memory, battery, uptime, git."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event as Flag

from voxtui.dialogue.tool_interface import Tool, ToolResult
from voxtui.errors import InputError
from voxtui.skills.rules.spoken import say_span, spoken_list
from voxtui.tools.words import OF_ONES_OWN, output_of, plain, whole_requests

COMMAND_SECONDS = 2.0

PROC, POWER = Path("/proc"), Path("/sys/class/power_supply")

_MY = r"(?:my|this|the|our)"
_MACHINE = rf"{_MY} (?:computer|machine|laptop|pc|mac|system)"
_HERE = rf"(?: (?:on|in|of) {_MACHINE})?(?: (?:right )?now| at the moment)?"
_DISK = r"(?:disks?|hard (?:disk|drive)|drive|ssd|disk space)"


def machine_tools() -> tuple[Tool, ...]:
    return (
        _question(
            "disk", "how full this computer's disk is", lambda cancelled: disk(),
            "Is there still room on my drive?",
            (rf"\b{_DISK}\b", r"\bstorage\b"),
            rf"how much (?:free )?(?:disk |hard disk |storage )?space (?:do i have|have i got"
            rf"|is(?: there)?)(?: (?:left|free|available))?(?: on {_MY} {_DISK})?{_HERE}",
            rf"how full is {_MY} {_DISK}{_HERE}",
            rf"is {_MY} {_DISK} (?:nearly |almost |getting )?full{_HERE}",
            rf"how much room is (?:there )?(?:left )?on {_MY} {_DISK}{_HERE}",
        ),
        _question(
            "memory", "how much of this computer's memory is free", lambda cancelled: memory(),
            "Is my computer short of memory?",
            (r"\b(?:memory|ram)\b.*\b(?:computer|machine|laptop|pc|free|used|left)\b",
             r"\b(?:computer|machine|laptop|pc|free|used)\b.*\b(?:memory|ram)\b"),
            rf"how much (?:free )?(?:memory|ram) (?:do i have|have i got|is(?: there)?)"
            rf"(?: (?:left|free|available|used|in use))?{_HERE}",
            rf"how much (?:memory|ram) is {_MACHINE} using{_HERE}",
        ),
        _question(
            "battery", "this computer's battery", lambda cancelled: battery(),
            "Does my laptop need charging?",
            (r"\b(?:my|this|left)\b.*\bbattery\b", r"\bbattery\b.*\b(?:my|left|laptop|computer)\b",
             rf"{_MACHINE}\b.*\b(?:battery|charge[ds]?|charging|plug(?:ged)?)\b",
             rf"\b(?:charge[ds]?|charging|plug(?:ged)?)\b.*{_MACHINE}\b"),
            rf"(?:what|how|how full|how charged) is {_MY} battery(?: (?:at|level))?{_HERE}",
            rf"what is (?:my|the) battery level{_HERE}",
            rf"how much (?:battery|charge) (?:do i have|have i got|is|is there)"
            rf"(?: left)?(?: in {_MY} battery)?{_HERE}",
        ),
        _question(
            "uptime", "how long this computer has been on", lambda cancelled: uptime(),
            "Since when has my machine been on?",
            (r"\buptime\b", rf"\b{_MACHINE}\b.*\b(?:running|on|up|(?:re)?started|rebooted)\b",
             rf"\b(?:restart|reboot|start|switch|turn)(?:ed)?\b.*\b{_MACHINE}\b"),
            rf"how long has {_MACHINE} been (?:running|on|up|switched on)(?: for)?",
            rf"how long is {_MACHINE} (?:running|on|up)",
            r"what is (?:my|the) uptime",
        ),
        _question(
            "git_status", "this folder's git branch and uncommitted changes", git_status,
            "What's changed in this repo?",
            (r"\b(?:git|commits?|committed|uncommitted|repo|repository|branch)\b",),
            r"what is (?:the|my) git status",
            r"(?:do i have|have i got|are there) (?:any )?uncommitted changes(?: here)?",
            r"(?:what|which)(?: git)? branch (?:is this|(?:am i|are we)(?: working)? on)(?: here)?",
            r"is everything committed(?: here)?",
        ),
    )  # fmt: skip


def _question(
    name: str,
    line: str,
    look: Callable[[Flag], ToolResult],
    example: str,
    triggers: tuple[str, ...],
    *forms: str,
) -> Tool:
    """Return a tool without arguments. `forms`: whole requests that need no model."""
    whole = whole_requests(*forms)
    return Tool(
        name,
        line,
        lambda arguments, cancelled: look(cancelled),
        examples=((example, "{}"),),
        triggers=tuple(f"{OF_ONES_OWN}{trigger}" for trigger in triggers),
        timeout_s=COMMAND_SECONDS + 1,
        rule=lambda words: "{}" if whole.fullmatch(plain(words)) else None,
    )


def _gigabytes(count: float) -> str:
    size = count / 1e9
    return f"{size:.0f} gigabytes" if size >= 10 else f"{size:.1f} gigabytes"


def disk() -> ToolResult:
    try:
        usage = shutil.disk_usage(Path.home())
    except OSError as error:
        raise InputError(f"The disk cannot be looked at: {error.strerror}.") from error
    share = usage.free / usage.total
    said = f"{_gigabytes(usage.free)} of {_gigabytes(usage.total)} are free, {share:.0%}."
    return ToolResult(said, said)


def memory() -> ToolResult:
    try:
        lines = (PROC / "meminfo").read_text().splitlines()
        sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in
                 (line.partition(":") for line in lines)}  # fmt: skip
        free, total = sizes["MemAvailable"], sizes["MemTotal"]
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise InputError("This system does not say how much memory is free.") from error
    said = f"{_gigabytes(free)} of {_gigabytes(total)} of memory are free."
    return ToolResult(said, said)


def battery() -> ToolResult:
    levels: list[str] = []
    for folder in sorted(POWER.glob("BAT*")):
        try:
            level, state = ((folder / name).read_text().strip() for name in ("capacity", "status"))
        except OSError:
            continue
        levels.append(f"{int(level)} percent" + (", charging" if state == "Charging" else ""))
    if not levels:
        raise InputError("This system reports no battery.")
    said = f"The battery is at {spoken_list(levels)}."
    return ToolResult(said, said)


def uptime() -> ToolResult:
    try:
        seconds = float((PROC / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError) as error:
        if sys.platform != "darwin":
            raise InputError("This system does not say how long it has been on.") from error
        seconds = time.monotonic()
    said = f"This machine has been on for {say_span(seconds)}."
    return ToolResult(said, said)


def git_status(cancelled: Flag) -> ToolResult:
    """Count the changes of the repository in the current folder.

    A repository may name programs that git would run; `core.fsmonitor` is the one of `status`.
    """
    command = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-C",
               os.getcwd(), "status", "--porcelain=v1", "--branch",
               "--ignore-submodules=all")  # fmt: skip
    head, *changes = output_of(command, COMMAND_SECONDS, cancelled).splitlines() or ["## unknown"]
    found = re.match(r"## (?:No commits yet on )?(?P<name>.+?)(?:\.\.\.|$| )", head)
    branch = found["name"] if found else "no branch"
    new = sum(line.startswith("??") for line in changes)
    changed = len(changes) - new
    if not changes:
        said = f"Nothing is uncommitted on {branch}."
    else:
        parts = [f"{count} {kind}" for count, kind in ((changed, "changed"), (new, "new")) if count]
        files = "file" if len(changes) == 1 else "files"
        said = f"On {branch}: {spoken_list(parts)} {files}."
    return ToolResult("\n".join((head, *changes)), said)
