"""One turn as the conversation shows it: what was said, and the answer as it grows."""

from __future__ import annotations

from textual.content import Content

from voxtui.dialogue.data import MICROPHONE, REPLAY, Utterance
from voxtui.dialogue.marks import Outcome, Turn
from voxtui.ui.bars import wave
from voxtui.ui.conversation.markdown import rendered
from voxtui.ui.conversation.transcript import Entry, Transcript

WAVE_CELLS = 6
"""A second of speech."""

LONGEST_WAVE = 20
"""Its length stands beside it, also on a screen of 80 cells."""


class TurnView:
    """One turn in the transcript: what was said, and the answer, an entry for each paragraph."""

    def __init__(self, transcript: Transcript, source: str) -> None:
        self.source = source
        self.text = ""
        """the answer so far"""
        self._transcript = transcript
        self._said = Entry("you", "You", Content(), muted=True)
        self._spoken = Content()
        """the speech itself, as a waveform with its length"""
        self._reply: list[tuple[int, Entry]] = []
        """each paragraph, and where in `text` it begins"""
        transcript.add(self._said)
        transcript.to_end()

    @property
    def latest(self) -> Entry | None:
        """The paragraph that grows."""
        return self._reply[-1][1] if self._reply else None

    def show_speaking(self, seconds: float) -> None:
        self._show_said(f"(speaking…) {seconds:.1f} s")

    def show_spoken(self, seconds: float) -> None:
        """The length of the speech stands in until the words are known."""
        name = "" if self.source == MICROPHONE else f"{self.source}, "
        self._show_said(f"({name}{seconds:.1f} s)")

    def show_said(self, said: Utterance) -> None:
        """The speech as a waveform, until and beside the words."""
        cells = max(1, min(LONGEST_WAVE, round(said.seconds * WAVE_CELLS)))
        name = "" if self.source in (MICROPHONE, REPLAY) else f" {self.source}"
        again = " again" if self.source == REPLAY else ""
        length = f" {said.seconds:.1f} s{name}{again}"
        self._spoken = Content.assemble((wave(said.samples, cells), "$text-primary"), length)
        self._transcript.change(self._said, self._spoken)

    def show_words(self, text: str) -> None:
        self._said.muted = False
        words = Content(text)
        if self._spoken:
            words = Content("\n").join([self._spoken.stylize("dim"), words])
        self._transcript.change(self._said, words)

    def expect_reply(self) -> None:
        if not self._reply:
            self._begin_paragraph("Vox", "…")

    def append(self, text: str) -> None:
        self.expect_reply()
        for line in text.splitlines(keepends=True):
            if self.text.endswith("\n") and line.strip():
                self._begin_paragraph("", "")
            self.text += line
            begin, entry = self._reply[-1]
            self._transcript.change(entry, Content(self.text[begin:].strip("\n")))

    def cut(self, heard: str) -> None:
        """Strike out what was never heard."""
        ends = [begin for begin, _ in self._reply[1:]] + [len(self.text)]
        for (begin, entry), end in zip(self._reply, ends, strict=True) if self.text else ():
            part = self.text[begin:end].strip("\n")
            kept = max(0, len(heard) - begin)
            if kept < len(part):
                self._transcript.change(
                    entry, Content.assemble(part[:kept], (part[kept:], "dim strike"))
                )

    def finish(self, turn: Turn) -> None:
        match turn.outcome:
            case Outcome.ANSWERED if self.text:
                self._show_markdown()
            case Outcome.ANSWERED:
                self._remark("(no answer)")
            case Outcome.NO_SPEECH:
                self._remark("Nothing was heard.")
            case Outcome.CANCELLED if self._reply:
                self._remark("(interrupted)")
            case Outcome.CANCELLED:
                self._show_said("(discarded)")
            case Outcome.FAILED:
                self._remark(f"✗ {turn.error or 'The turn failed.'}", "bold $text-error")

    def _show_markdown(self) -> None:
        content = rendered(self.text)
        if content.plain and content != Content(self.text.strip()):
            self._transcript.join([entry for _, entry in self._reply], content)
            del self._reply[1:]

    def _remark(self, text: str, style: str = "dim italic") -> None:
        """A word about the answer, behind it."""
        self.expect_reply()
        _, entry = self._reply[-1]
        before = entry.content if self.text else Content()
        space = "" if not before.plain or before.plain.endswith(" ") else " "
        self._transcript.change(entry, Content.assemble(before, space, (text, style)))

    def _begin_paragraph(self, label: str, text: str) -> None:
        entry = Entry("vox", label, Content(text), spaced=False)
        self._reply.append((len(self.text), entry))
        self._transcript.add(entry)

    def _show_said(self, text: str) -> None:
        if self._said.muted and not self._spoken and text != self._said.content.plain:
            self._transcript.change(self._said, Content(text))
