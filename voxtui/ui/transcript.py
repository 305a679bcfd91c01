"""The conversation as it is shown: a small widget per paragraph, so that streaming stays cheap."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Grid, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from voxtui.turn import MICROPHONE, Outcome, Turn

KEPT_TURNS = 200
"""Older turns leave the screen, so that the cost of a layout does not grow with the session."""

SIGNS = {"information": "·", "warning": "!", "error": "✗"}


class Paragraph(Static):
    """Text that grows; a layout is asked for only when it needs another line."""

    def __init__(self, text: str = "", *, classes: str = "") -> None:
        super().__init__(text, markup=False, classes=classes)
        self.text = text
        self.painted = False
        """whether what was last shown has been drawn"""

    def show(self, text: str | Content) -> None:
        content = Content(text) if isinstance(text, str) else text
        self.text = content.plain
        self.painted = False
        width, height = self.content_size
        same_height = width > 0 and content.get_height({}, width) == height
        self.update(content, layout=not same_height)

    def render_lines(self, crop: Region) -> list[Strip]:
        self.painted = True
        return super().render_lines(crop)


class Reply(Vertical):
    """An answer, a widget for each of its paragraphs."""

    def __init__(self) -> None:
        self._first = Paragraph("…", classes="waiting")
        super().__init__(self._first)
        self.text = ""
        self._begins = [(0, self._first)]
        """each paragraph, and where in `text` it begins"""
        self._has_mounted = False

    def on_mount(self) -> None:
        """Text may have come before this widget was on the screen."""
        self._has_mounted = True
        self.mount_all(paragraph for _, paragraph in self._begins[1:])

    @property
    def latest(self) -> Paragraph:
        return self._begins[-1][1]

    def append(self, text: str) -> None:
        self._first.remove_class("waiting")
        for line in text.splitlines(keepends=True):
            if self.text.endswith("\n"):
                self._begin_paragraph()
            self.text += line
            begin, paragraph = self._begins[-1]
            paragraph.show(self.text[begin:].strip("\n"))

    def cut(self, heard: str) -> None:
        """Show which part of the text was never heard."""
        ends = [begin for begin, _ in self._begins[1:]] + [len(self.text)]
        for (begin, paragraph), end in zip(self._begins, ends, strict=True):
            part = self.text[begin:end].strip("\n")
            kept = max(0, len(heard) - begin)
            if kept < len(part):
                paragraph.show(Content.assemble(part[:kept], (part[kept:], "dim strike")))

    def remark(self, text: str, style: str = "dim italic") -> None:
        """A word about the answer, behind it."""
        self._first.remove_class("waiting")
        content = self.latest.content
        before = content if isinstance(content, Content) and self.text else Content()
        self.latest.show(Content.assemble(before, " " if before.plain else "", (text, style)))

    def _begin_paragraph(self) -> None:
        paragraph = Paragraph()
        self._begins.append((len(self.text), paragraph))
        if self._has_mounted:
            self.mount(paragraph)


class TurnView(Grid):
    """One turn: what was said, and the answer."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.said = Paragraph(classes="said waiting")
        self.reply = Reply()
        self._words = False

    def compose(self) -> ComposeResult:
        yield Static("You", classes="who you")
        yield self.said
        yield Static("Vox", classes="who vox")
        yield self.reply

    def show_speaking(self, seconds: float) -> None:
        clip = "" if self.source == MICROPHONE else f" {self.source}"
        self._show_said(f"(speaking…){clip} {seconds:.1f} s")

    def show_spoken(self, seconds: float) -> None:
        """The length of the speech stands in until the words are known."""
        clip = "speech" if self.source == MICROPHONE else self.source
        self._show_said(f"({clip}, {seconds:.1f} s)")

    def show_words(self, text: str) -> None:
        self._words = True
        self.said.remove_class("waiting")
        self.said.show(text)

    def expect_reply(self) -> None:
        self.add_class("open")

    def append(self, text: str) -> None:
        self.expect_reply()
        self.reply.append(text)

    def cut(self, heard: str) -> None:
        self.reply.cut(heard)

    def finish(self, turn: Turn) -> None:
        match turn.outcome:
            case Outcome.ANSWERED if self.reply.text:
                pass
            case Outcome.ANSWERED:
                self._remark("(no answer)")
            case Outcome.NO_SPEECH:
                self._remark("Nothing was heard.")
            case Outcome.CANCELLED if self.has_class("open"):
                self._remark("(interrupted)")
            case Outcome.CANCELLED:
                self._show_said("(discarded)")
            case Outcome.FAILED:
                self._remark(f"✗ {turn.error or 'The turn failed.'}", "bold $text-error")

    def _remark(self, text: str, style: str = "dim italic") -> None:
        self.expect_reply()
        self.reply.remark(text, style)

    def _show_said(self, text: str) -> None:
        if not self._words and text != self.said.text:
            self.said.show(text)


class Transcript(VerticalScroll):
    """All turns, the newest at the bottom and in view."""

    def __init__(self, startup: Widget) -> None:
        self._turns = Vertical(startup)
        super().__init__(self._turns)

    def on_mount(self) -> None:
        self.anchor()

    def begin_turn(self, source: str) -> TurnView:
        view = TurnView(source)
        self._add(view)
        return view

    def note(self, message: str, severity: str = "information") -> None:
        """A sentence that belongs to no reply."""
        self._add(Static(f"{SIGNS[severity]} {message}", markup=False, classes=f"note -{severity}"))

    def clear(self) -> None:
        self.query("TurnView, .note").remove()

    def _add(self, entry: Widget) -> None:
        entries = list(self.query("TurnView, .note"))
        for old in entries[: max(0, len(entries) - KEPT_TURNS + 1)]:
            old.remove()
        self._turns.mount(entry)
        self.anchor()
