"""Notes: a Markdown file with a line per note, which the user may edit."""

from __future__ import annotations

import re
from pathlib import Path
from threading import Event as Flag

import msgspec

from voxtui.dialogue.tool_interface import Tool, ToolResult
from voxtui.errors import InputError, one_line
from voxtui.settings.files import append_line, file_errors, read_file
from voxtui.skills.rules.normalise import strip_courtesy
from voxtui.tools.words import LONGEST_REQUEST, pattern, request, tool

FILE_BYTES = 2_000_000
LONGEST_NOTE = 500
READ_ALOUD = 5
"""Number of newest notes that are read aloud."""

HEAD = "# Notes of voxtui. One a line; edit them as you like.\n\n"

_NO_NOTE = re.compile(
    r"(?:this|that|it|me|him|her|us|them|time|day|night|song|film|movie)\W*$"
    r"|\?\s*$|(?:do|can|could|did) you remember", re.IGNORECASE,
)  # fmt: skip

_FILLER = re.compile(f"^{pattern('filler')}", re.IGNORECASE)


class Note(msgspec.Struct, forbid_unknown_fields=True):
    text: str


class Query(msgspec.Struct, forbid_unknown_fields=True):
    about: str = ""


def note_in(words: str) -> str | None:
    """Return the arguments of `remember that …`, or None if it is not an order."""
    words = re.sub(r"(?i),? (?:would|could|will|can) you\?\s*$", "", one_line(words))
    if len(words) > LONGEST_REQUEST:
        return None
    order = _FILLER.sub("", words.replace("’", "'"), count=1)
    if order.endswith("?") and not re.match(r"(?i)(?:could|would|will|can) you ", order):
        return None
    text = strip_courtesy(order.rstrip(" .!?").replace("'d like", " would like"))
    found = request("remember", re.sub(r"^(\w+(?: vox)?), ", r"\1 ", text, flags=re.IGNORECASE))
    note = found["text"].strip(" ,") if found else ""
    return (
        None if _NO_NOTE.fullmatch(note) or not note else msgspec.json.encode(Note(note)).decode()
    )


def query_in(words: str) -> str | None:
    text = strip_courtesy(one_line(words).rstrip(" .!?"))
    if (found := request("notes", text.replace("’", "'"))) is None:
        return None
    about = re.sub(r"^(?:the|my) ", "", found.get("about", ""))
    return msgspec.json.encode(Query(about)).decode()


class Notes:
    """The file of the notes. The first note creates it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def tools(self) -> tuple[Tool, ...]:
        about = '{"type": "object", "properties": {"about": {"type": "string"}}}'
        text = (
            '{"type": "object", "properties": {"text": {"type": "string", "format": "spoken"}},'
            ' "required": ["text"]}'
        )
        return (
            tool("remember", self.add, note_in, schema=text, heard=True),
            tool("notes", self.find, query_in, schema=about),
        )

    def add(self, arguments: str, cancelled: Flag) -> ToolResult:
        text = msgspec.json.decode(arguments, type=Note).text
        note = one_line(text)[:LONGEST_NOTE].rstrip(" ,;:")
        note = re.sub(r"^[a-z]", lambda letter: letter[0].upper(), note)
        if self.lines()[-1:] == [note]:
            return ToolResult("", "That is in your notes already.")
        with file_errors(self.path, "written"):
            append_line(self.path, f"- {note}\n".encode(), HEAD.encode())
        return ToolResult("", f"Noted: {note.rstrip('.')}.")

    def find(self, arguments: str, cancelled: Flag) -> ToolResult:
        about = msgspec.json.decode(arguments, type=Query).about.lower()
        notes = [note for note in self.lines() if about in note.lower()]
        if not notes:
            none = f"No note says anything about {about}." if about else "There are no notes."
            return ToolResult("", none)
        newest = [note.rstrip(".") for note in notes[-READ_ALOUD:]]
        before = f"The last {READ_ALOUD} of {len(notes)}: " if len(notes) > READ_ALOUD else ""
        return ToolResult("\n".join(notes), f"{before}{'. '.join(newest)}.")

    def lines(self) -> list[str]:
        """Return the notes, oldest first. Raises InputError."""
        with file_errors(self.path, "read"):
            data = read_file(self.path, FILE_BYTES + 1, missing=b"")
        if len(data) > FILE_BYTES:
            raise InputError(f"{self.path}: is larger than {FILE_BYTES // 10**6} MB.")
        lines = (re.sub(r"^[-*] ", "", one_line(line)).strip()
                 for line in data.decode(errors="replace").splitlines()
                 if not line.startswith("#"))  # fmt: skip
        return [line for line in lines if line]
