"""Fixed read-only queries of this machine: disk, memory, battery, uptime, git."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event as Flag

from voxtui.dialogue.tool_interface import Run, Tool, ToolResult
from voxtui.errors import InputError
from voxtui.skills.rules.spoken import say_span, spoken_list
from voxtui.tools.words import output_of, tool, without_arguments

RUNS_PROGRAMS = r"^(filter\..*\.(clean|process)|extensions\.partialclone|remote\..*\.promisor)$"
"""The settings of git, in lower case, with which `git status` may run a program."""

COMMAND_SECONDS = 2.0

POWER = Path("/sys/class/power_supply")


def machine_tools() -> tuple[Tool, ...]:
    looks: dict[str, Callable[[], ToolResult]] = {
        "disk": disk, "memory": memory, "battery": battery, "uptime": uptime,
    }  # fmt: skip
    return (
        *(_question(name, lambda arguments, cancelled, look=look: look())
          for name, look in looks.items()),
        _question("git_status", lambda arguments, cancelled: git_status(cancelled)),
    )  # fmt: skip


def _question(name: str, look: Run) -> Tool:
    return tool(name, look, without_arguments(name), timeout_s=COMMAND_SECONDS + 1)


def _gigabytes(count: float) -> str:
    size = count / 1e9
    return f"{size:.0f} gigabytes" if size >= 10 else f"{size:.1f} gigabytes"


def disk() -> ToolResult:
    try:
        usage = shutil.disk_usage(Path.home())
    except OSError as error:
        raise InputError(f"The disk cannot be read: {error.strerror}.") from error
    share = usage.free / usage.total
    said = f"{_gigabytes(usage.free)} of {_gigabytes(usage.total)} are free, {share:.0%}."
    return ToolResult(said, said)


def free_memory() -> int | None:
    """Return the available memory in bytes, or None if the system does not report it."""
    with suppress(OSError):
        if found := re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text()):
            return int(found[1]) * 1024  # a kB of Linux
    return None


def memory() -> ToolResult:
    if (free := free_memory()) is None:
        raise InputError("This system does not say how much memory is free.")
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
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
    # Linux has a clock that also counts while the machine sleeps.
    seconds = time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    said = f"This machine has been on for {say_span(seconds)}."
    return ToolResult(said, said)


def git_status(cancelled: Flag) -> ToolResult:
    """Count the changes of the repository in the current folder.

    A repository may name programs that git would run: `status` would run `core.fsmonitor`, the
    filters of changed files, and whatever fetches the objects that a partial clone lacks.
    """
    git = ("git", "-C", os.getcwd(), "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    names = (*git, "config", "--show-scope", "--name-only", "--get-regexp", RUNS_PROGRAMS)
    try:
        named = output_of(names, COMMAND_SECONDS, cancelled)
    except InputError as error:
        if "exit code 1." not in str(error):  # it found none
            raise
        named = ""
    for scope, _, name in (line.partition("\t") for line in named.splitlines()):
        if scope in ("local", "worktree"):
            raise InputError(f"git would run programs that this repository names ({name}).")
    command = (*git, "status", "--porcelain=v1", "--branch", "--ignore-submodules=all")
    head, *changes = output_of(command, COMMAND_SECONDS, cancelled).splitlines() or ["## unknown"]
    found = re.match(r"## (?:No commits yet on )?(?P<name>.+?)(?:\.\.\.|$| )", head)
    branch = found["name"] if found else "no branch"
    new = sum(line.startswith("??") for line in changes)
    changed = len(changes) - new
    if not changes:
        said = f"There are no uncommitted changes on {branch}."
    else:
        parts = [f"{count} {kind}" for count, kind in ((changed, "changed"), (new, "new")) if count]
        files = "file" if len(changes) == 1 else "files"
        said = f"On {branch}: {spoken_list(parts)} {files}."
    return ToolResult("\n".join((head, *changes)), said)
