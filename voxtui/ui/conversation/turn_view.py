"""One turn in the conversation: the user's words, and the growing answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from textual.content import Content

from voxtui.dialogue.data import MICROPHONE, REPLAY, Utterance
from voxtui.dialogue.timestamps import NO_WORDS, Outcome, Turn
from voxtui.ui.bars import wave
from voxtui.ui.conversation.markdown import rendered
from voxtui.ui.conversation.paragraph import Paragraph
from voxtui.ui.conversation.transcript import Transcript

WAVE_CELLS = 6
"""Cells of the waveform per second of speech."""

LONGEST_WAVE = 20
"""Maximum cells of the waveform. The length in seconds must fit beside it in 80 columns."""

LONGEST_LIT = 2_000
"""Maximum characters of an answer that lights up as it is spoken, because each step scans all of
it."""

LONGEST_MARKDOWN = 20_000
"""Maximum characters of an answer with rendered Markdown, because parsing delays the next keys."""


class TurnView:
    def __init__(self, transcript: Transcript, source: str, number: int) -> None:
        self.source = source
        self.number = number
        self._transcript = transcript
        self._request = Paragraph("you", "You", Content(), muted=True)
        self._request.turn = number
        self._waveform = Content()
        """the waveform of the utterance, with its length"""
        self._caption = ""
        """the words so far while the user speaks"""
        self._hears = True
        """whether the user is still speaking"""
        self._pieces: list[str] = []
        """the pieces of the answer so far"""
        self._length = 0
        self._visible = False
        """whether the answer has a visible character"""
        self._paragraphs: list[tuple[int, Paragraph]] = []
        """each paragraph, with its position in the answer"""
        self._line_breaks = ""
        """line breaks at the end of the answer, shown only if its paragraph goes on"""
        transcript.add(self._request)
        transcript.to_end()

    @property
    def text(self) -> str:
        """The answer so far. Takes time linear in its length."""
        return "".join(self._pieces)

    @property
    def latest(self) -> Paragraph | None:
        return self._paragraphs[-1][1] if self._paragraphs else None

    def show_speaking(self, seconds: float) -> None:
        self._stand_in(f"(speaking…) {seconds:.1f} s")

    def show_spoken(self, seconds: float) -> None:
        name = "" if self.source == MICROPHONE else f"{self.source}, "
        self._stand_in(f"({name}{seconds:.1f} s)")

    def caption(self, text: str, settled: int) -> None:
        """Show the words so far while the user speaks. A word that may change looks different."""
        if not self._hears or not (text or self._caption):
            return
        while 0 < settled < len(text) and text[settled - 1].isalnum() and text[settled] != " ":
            settled -= 1
        self._caption = text
        parts = (text[:settled], "$text"), (text[settled:], "$text-muted italic")
        self._transcript.change(self._request, Content.assemble(*parts))

    def show_utterance(self, utterance: Utterance) -> None:
        self._hears = False
        cells = max(1, min(LONGEST_WAVE, round(utterance.seconds * WAVE_CELLS)))
        name = "" if self.source in (MICROPHONE, REPLAY) else f" {self.source}"
        again = " again" if self.source == REPLAY else ""
        length = f" {utterance.seconds:.1f} s{name}{again}"
        self._waveform = Content.assemble((wave(utterance.samples, cells), "$text-primary"), length)
        self._transcript.change(self._request, Content(self._caption) or self._waveform)

    def show_words(self, text: str, doubtful: Sequence[int] = ()) -> None:
        self._request.muted = False
        words = Content(text)
        for number, word in enumerate(re.finditer(r"\S+", text)):
            if number in doubtful:
                words = words.stylize("$text-muted underline", *word.span())
        self._transcript.change(self._request, words)

    def expect_reply(self) -> None:
        if not self._paragraphs:
            self._begin_paragraph("Vox", "…")

    def append(self, text: str) -> bool:
        """Append `text` to the answer. Return True if it has the first visible character.

        Takes time linear in the length of `text`, not of the answer.
        """
        self.expect_reply()
        begins = not self._visible and bool(text.strip())
        self._visible |= begins
        for line in text.splitlines(keepends=True):
            if self._line_breaks and line.strip():
                self._begin_paragraph("", "")
            self._append_line(line)
        return begins

    def _append_line(self, line: str) -> None:
        begin, entry = self._paragraphs[-1]
        shown = line.rstrip("\n")
        if self._length == 0:
            self._transcript.change(entry, Content(shown))  # in place of the placeholder
        elif shown:
            # A paragraph does not begin with a line break.
            breaks = self._line_breaks if self._length - len(self._line_breaks) > begin else ""
            self._transcript.append(entry, breaks + shown)
        if shown:
            self._line_breaks = ""
        self._line_breaks += line[len(shown) :]
        self._pieces.append(line)
        self._length += len(line)

    def light(self, heard: int) -> None:
        if self._length > LONGEST_LIT:
            self._unlight()
            return
        text = self.text
        while 0 < heard < len(text) and not text[heard].isspace():
            heard -= 1
        for begin, entry in self._paragraphs:
            lit = min(max(0, heard - begin), len(entry.content.plain))
            if lit != entry.lit:
                self._transcript.light(entry, lit)

    def _unlight(self) -> None:
        for _, entry in self._paragraphs:
            if entry.lit is not None:
                entry.muted, entry.lit = False, None
                self._transcript.change(entry, entry.content)

    def cut(self, heard: str) -> None:
        self._unlight()
        text = self.text
        ends = [begin for begin, _ in self._paragraphs[1:]] + [len(text)]
        for (begin, entry), end in zip(self._paragraphs, ends, strict=True) if text else ():
            part = text[begin:end].strip("\n")
            heard_of_part = max(0, len(heard) - begin)
            if heard_of_part < len(part):
                self._transcript.change(
                    entry,
                    Content.assemble(
                        part[:heard_of_part], (part[heard_of_part:], "$text-muted strike")
                    ),
                )

    def finish(self, turn: Turn) -> None:
        self._hears = False
        self._unlight()
        match turn.outcome:
            case Outcome.ANSWERED if turn.reply.strip() or self._visible:
                self._show_markdown()
            case Outcome.ANSWERED:
                self._remark(f"({NO_WORDS})")
            case Outcome.CANCELLED if self._pieces or not self._request.muted:
                self._remark("(interrupted)")
            case Outcome.CANCELLED | Outcome.NO_SPEECH:
                self.discard()
            case Outcome.FAILED:
                if self._request.muted and self._caption:  # words that were not understood
                    self._transcript.change(self._request, self._waveform)
                self._remark("(no answer)")

    def show_figure(self, figure: str) -> None:
        if self.latest is not None:
            self._transcript.show_figure(self.latest, figure)

    def _show_markdown(self) -> None:
        if self._length > LONGEST_MARKDOWN:
            return
        text = self.text
        content = rendered(text)
        if content.plain and content != Content(text.strip()):
            self._transcript.join([entry for _, entry in self._paragraphs], content)
            del self._paragraphs[1:]

    @property
    def entries(self) -> Sequence[Paragraph]:
        return [self._request, *(entry for _, entry in self._paragraphs)]

    def discard(self) -> None:
        self._transcript.drop(self.entries)

    def _remark(self, text: str, style: str = "$text-muted italic") -> None:
        self.expect_reply()
        _, entry = self._paragraphs[-1]
        before = entry.content if self._pieces else Content()
        space = "" if not before.plain or before.plain.endswith(" ") else " "
        self._transcript.change(entry, Content.assemble(before, space, (text, style)))

    def _begin_paragraph(self, label: str, text: str) -> None:
        entry = Paragraph("vox", label, Content(text), spaced=False)
        entry.turn = self.number
        self._paragraphs.append((self._length, entry))
        self._line_breaks = ""
        self._transcript.add(entry)

    def _stand_in(self, text: str) -> None:
        known = not self._request.muted or self._waveform or self._caption
        if not known and text != self._request.content.plain:
            self._transcript.change(self._request, Content(text))
