"""`voxtui history`: the stored conversations."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime

import click

from voxtui.storage.conversation_database import Conversations, as_markdown, history_file

SHOWN = 20
"""Maximum conversations on a terminal; a pipe gets all."""

NOT_KEPT = "Conversations are not stored. /history in the window asks whether to store them."


def list_conversations(words: str, keeps: bool, as_json: bool) -> None:
    shortened = sys.stdout.isatty() and not as_json
    found = Conversations(history_file()).newest(words, SHOWN + 1 if shortened else -1)
    for summary in found[:SHOWN] if shortened else found:
        changed = datetime.fromtimestamp(summary.changed).astimezone()
        if as_json:
            line = {
                "id": summary.id,
                "title": summary.title,
                "changed": changed.isoformat(timespec="seconds"),
                "turns": summary.turns,
            }
            click.echo(json.dumps(line, ensure_ascii=False))
        else:
            click.echo(
                f"{summary.id:>5}  {changed:%Y-%m-%d %H:%M}  {summary.length:>9}  {summary.title}"
            )
    if shortened and len(found) > SHOWN:
        click.echo("There are more: voxtui history WORDS", err=True)
    elif not found:
        nothing = "No conversation is stored yet." if keeps else NOT_KEPT
        no_match = f'No match for "{words}". --export N prints a conversation by its number.'
        click.echo(no_match if words else nothing, err=True)


def show(number: int) -> None:
    conversations = Conversations(history_file())
    exchanges = [*conversations.read(number).values()]
    summary = next(one for one in conversations.newest() if one.id == number)
    click.echo(as_markdown(summary, exchanges), nl=False)


def delete(number: int) -> None:
    conversations, now = Conversations(history_file()), time.time()
    conversations.delete(number, now)
    conversations.erase_deleted(now)
    click.echo(f"Conversation {number} was erased.")


def forget_all() -> None:
    """Erase every conversation, after confirmation at a terminal. Raises InputError."""
    conversations = Conversations(history_file())
    count = conversations.count()
    if sys.stdin.isatty() and not click.confirm(f"Erase all {count:,} stored conversations?"):
        return
    conversations.forget_all()
    click.echo(f"Erased: {count:,} conversations.")
