"""Show the turns of an earlier conversation again."""

from __future__ import annotations

from textual.content import Content

from voxtui.dialogue.protocols import Past
from voxtui.ui.conversation.markdown import rendered
from voxtui.ui.conversation.paragraph import Paragraph
from voxtui.ui.conversation.transcript import Transcript

SHOWN_TURNS = 100
"""Number of newest turns that are shown. Drawing thousands would delay the next keys."""

MARKDOWN_TURNS = 20
"""Number of newest turns whose Markdown is rendered."""


def show_past(transcript: Transcript, past: Past) -> None:
    """Show the newest turns of `past` in an empty transcript."""
    if len(past) > SHOWN_TURNS:
        transcript.add_line("", f"({len(past) - SHOWN_TURNS:,} earlier turns are not shown.)")
    shown = past[-SHOWN_TURNS:]
    for left, turn in zip(range(len(shown), 0, -1), shown, strict=True):
        if turn.attached:
            lines = len(turn.user_text.splitlines()) - 2  # without those that mark it
            transcript.add_line("", f"(an attached text of {lines} line{'s'[: lines != 1]})")
            continue
        transcript.add(Paragraph("you", "You", Content(turn.user_text)))
        reply = turn.reply_text.strip()
        content = rendered(reply) if left <= MARKDOWN_TURNS else Content(reply)
        transcript.add(Paragraph("vox", "Vox", content, spaced=False))
    transcript.to_end()
