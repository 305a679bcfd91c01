"""The commands that are written as text, such as `/save`: the same words in every front end."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from voxtui.session.user_session import NotAllowed


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A word after a slash. The front end carries it out."""

    name: str
    about: str
    argument: str = ""
    """the name of the argument; empty for none; in brackets if it is optional"""

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()


COMMANDS: Sequence[SlashCommand] = (
    SlashCommand("save", "save the session: Markdown, JSON and WAV files"),
    SlashCommand("new", "start a new conversation"),
    SlashCommand("undo", "bring back a removed turn, or the conversation before the new one"),
    SlashCommand("history", "find an earlier conversation and go on with it", "[WORDS]"),
    SlashCommand("again", "answer your last words again; after a failed start: try again"),
    SlashCommand("edit", "correct what was heard; it is answered in place of that", "[TEXT]"),
    SlashCommand("copy", "copy the selected text, the selected answer, or the last one"),
    SlashCommand("mute", "turn the voice off or on; the text goes on"),
    SlashCommand("stop", "drop what you say, or stop the answer"),
    SlashCommand("snooze", "have the timer that rings ring again in five minutes"),
    SlashCommand("clip", "let it hear sample clip N", "N"),
    SlashCommand("paste", "talk about the text on the clipboard"),
    SlashCommand("panel", "show the times as one line, as a summary or as a laboratory"),
    SlashCommand("numbers", "show the times of the last answer"),
    SlashCommand("look", "look for devices again, after one was plugged in"),
    SlashCommand("fetch", "fetch the missing chat model"),
    SlashCommand("help", "list keys and commands"),
    SlashCommand("quit", "quit"),
)
"""The commands, the most used first: a narrow terminal shows only the beginning of the list."""

ALIASES = {"exit": "quit", "q": "quit"}
"""Words that users of other programs write, and what they mean here."""


def parse(text: str) -> tuple[str, str] | None:
    """Return the name and the argument of the command in `text`, or None if it is no command.

    Raises NotAllowed for an unknown command.
    """
    if not text.startswith("/"):
        return None
    word, _, argument = text[1:].partition(" ")
    word = ALIASES.get(word, word)
    command = next((command for command in COMMANDS if command.name == word), None)
    if command is None:
        near = difflib.get_close_matches(word, [command.name for command in COMMANDS], 1)
        meant = f"Did you mean /{near[0]}?" if near else "/help lists them."
        raise NotAllowed(f"/{word}: there is no such command. {meant}")
    if argument.strip() and not command.argument:
        raise NotAllowed(f"/{word} takes no argument.")
    return word, argument.strip()


def number(argument: str) -> int:
    """Return the number in `argument`, or 0 if it is empty. Raises NotAllowed."""
    if not argument:
        return 0
    if not (argument.isascii() and argument.isdecimal() and len(argument) < 4):
        raise NotAllowed("Which sample? Write its number, such as /clip 1.")
    return int(argument)


def matching(text: str) -> Sequence[SlashCommand]:
    if not text.startswith("/"):
        return ()
    word, space, _ = text[1:].partition(" ")
    return [c for c in COMMANDS if (c.name == word if space else c.name.startswith(word))]
