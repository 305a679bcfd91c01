"""Remove one turn from a conversation, and put it back."""

from __future__ import annotations

from dataclasses import dataclass

from voxtui.dialogue.engine_commands import InsertTurn, RemovePart
from voxtui.dialogue.protocols import PastTurn
from voxtui.session.local_session import LocalSession
from voxtui.storage.saved_session import SessionTurn


@dataclass(frozen=True, slots=True)
class RemovedTurn:
    number: int
    past: PastTurn | None
    """the turn in the history, or None if the history had dropped it"""
    after: int | None
    """the number of the turn before it in the history, or None if it was the first"""
    record: SessionTurn | None


def remove_turn(session: LocalSession, number: int) -> RemovedTurn:
    """Remove turn `number` from the history and from the record of the session."""
    past = before = after = None
    for turn in session.engine.past:
        if turn.number == number and not turn.attached:
            past, after = turn, before
        before = turn.number
    removed = RemovedTurn(number, past, after, session.record.turns.pop(number, None))
    for user in (True, False):
        session.post(RemovePart(number, user))
    return removed


def put_back(session: LocalSession, removed: RemovedTurn) -> None:
    if removed.past is not None:
        session.post(InsertTurn(removed.past, removed.after, first=removed.after is None))
    if removed.record is not None:
        turns = {**session.record.turns, removed.number: removed.record}
        session.record.turns = dict(sorted(turns.items()))
