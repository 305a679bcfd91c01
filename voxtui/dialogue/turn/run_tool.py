"""Run the call of a tool: ask for a key, speak a sentence before a slow one, limit its time."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace
from queue import Empty, SimpleQueue
from threading import Event as Flag
from threading import Thread

from voxtui.dialogue.data import Token, ToolCall
from voxtui.dialogue.dialogue import Dialogue
from voxtui.dialogue.events import KeyNeeded, ToolCalled, ToolEnded
from voxtui.dialogue.prefetch import TICK_SECONDS
from voxtui.dialogue.skill_errors import log_failure
from voxtui.dialogue.timestamps import Milestone
from voxtui.dialogue.tool_interface import LONGEST_RESULT, CallOutcome, CallReport, Tool, ToolResult
from voxtui.dialogue.turn_handle import TurnHandle
from voxtui.errors import VoxtuiError, strip_control_characters

KEY_SECONDS = 60.0
"""Maximum wait for the key that confirms a call."""

END_SECONDS = 0.3
"""Maximum wait for a tool after its cancel. It may go on; its result is dropped."""

DONE_ALREADY = "That is done already. Say it again if you want it twice."

NOTHING = ToolResult("")


def run_call(
    call: ToolCall, tool: Tool, handle: TurnHandle, dialogue: Dialogue, again: bool
) -> Generator[Token, None, tuple[CallReport, ToolResult]]:
    """Run `call`; return its report and its result. Yield the sentence before a slow tool.

    `again`: the same request was answered before, so no action is done twice. Runs on the brain's
    thread, after the release.
    """
    timestamps, cancelled, emit = handle.timestamps, handle.cancelled, dialogue.emit
    timestamps.record(Milestone.CALLED)
    report, result = CallReport(call, CallOutcome.REFUSED), NOTHING
    needs_key = tool.acts and not tool.trusted
    if tool.acts and again:
        report = replace(report, detail=DONE_ALREADY)
    elif needs_key and not dialogue.front_end.confirms:
        report = replace(report, detail=f"{tool.name} needs a key, which nobody can press here.")
    elif needs_key and not _confirmed(call, handle, dialogue):
        end = CallOutcome.CANCELLED if cancelled.is_set() else CallOutcome.REFUSED
        report = replace(report, outcome=end, detail="I won't do that.")
    else:
        emit(ToolCalled(handle.number, call))
        if tool.run is None:
            return CallReport(call, CallOutcome.DONE), NOTHING
        if tool.bridge:
            yield Token(f"{tool.bridge} ")
        report, result = _run(call, tool, cancelled)
        timestamps.record(Milestone.TOOL_ENDED)
    emit(ToolEnded(handle.number, report))
    return report, result


def _confirmed(call: ToolCall, handle: TurnHandle, dialogue: Dialogue) -> bool:
    """Wait for the key. Return False if it refuses, or if the turn is cancelled meanwhile."""
    dialogue.emit(KeyNeeded(handle.number, call))
    ends = time.monotonic() + KEY_SECONDS
    while not handle.decided.wait(TICK_SECONDS):
        if handle.cancelled.is_set() or time.monotonic() > ends:
            return False
    handle.timestamps.record(Milestone.CONFIRMED)
    return handle.confirmed and not handle.cancelled.is_set()


def _run(call: ToolCall, tool: Tool, cancelled: Flag) -> tuple[CallReport, ToolResult]:
    """Run a tool on a thread of its own until it ends, is cancelled or times out."""
    ended: SimpleQueue[ToolResult | VoxtuiError] = SimpleQueue()
    unwanted = Flag()

    def work() -> None:
        assert tool.run is not None
        try:
            ended.put(tool.run(call.arguments, unwanted))
        except VoxtuiError as error:
            ended.put(error)
        except Exception as error:  # noqa: BLE001 - a tool may be anybody's
            log_failure(error)
            ended.put(VoxtuiError(f"{tool.name} has failed; the log says where."))

    began = time.monotonic()
    worker = Thread(target=work, name="voxtui-tool", daemon=True)
    worker.start()
    outcome, detail, result = CallOutcome.DONE, "", NOTHING
    while True:
        try:
            end = ended.get(timeout=TICK_SECONDS)
        except Empty:
            if cancelled.is_set():
                outcome = CallOutcome.CANCELLED
                break
            if time.monotonic() - began > tool.timeout_s:
                outcome = CallOutcome.TIMED_OUT
                detail = f"{tool.name} took longer than {tool.timeout_s:g} seconds."
                break
            continue
        if isinstance(end, VoxtuiError):
            outcome, detail = CallOutcome.FAILED, strip_control_characters(str(end))
        else:
            result = _cleaned(end)
        break
    seconds = time.monotonic() - began
    unwanted.set()
    worker.join(END_SECONDS)
    return CallReport(call, outcome, seconds, detail), result


def _cleaned(result: ToolResult) -> ToolResult:
    text, sentence = (strip_control_characters(part) for part in (result.text, result.sentence))
    return ToolResult(text[:LONGEST_RESULT], sentence[:LONGEST_RESULT])
