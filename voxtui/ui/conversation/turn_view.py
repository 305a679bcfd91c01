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

LONGEST_WAVE = 20
"""Maximum cells of the waveform. The length in seconds must fit beside it in 80 columns."""

LONGEST_LIT = 2_000
"""Maximum characters of an answer that lights up, because each step scans all of it."""

LONGEST_MARKDOWN = 20_000
"""Maximum characters of an answer with rendered Markdown, because parsing delays the next keys."""


BLANK_LINES = re.compile(r"\n\s*\n")


def without_blank_lines(text: str) -> str:
    """Return an answer as it is shown while it grows, as its rendered Markdown is afterwards."""
    return BLANK_LINES.sub("\n", text.strip())


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
        self._hears = True
        self._pieces: list[str] = []
        self._length = 0
        self._visible = False
        self.reply: Paragraph | None = None
        self._space = ""
        """white space at the end of the answer, shown once it goes on"""
        transcript.add(self._request)
        transcript.to_end()

    @property
    def text(self) -> str:
        """The answer so far. Takes time linear in its length."""
        return "".join(self._pieces)

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

    def expect_reply(self) -> Paragraph:
        if self.reply is None:
            self.reply = Paragraph("vox", "Vox", Content("…"), spaced=False)
            self.reply.turn = self.number
            self._transcript.add(self.reply)
        return self.reply

    def append(self, text: str) -> bool:
        """Append `text` in linear time; return True if it has the first visible character."""
        reply = self.expect_reply()
        self._pieces.append(text)
        self._length += len(text)
        text = self._space + text
        visible = text.rstrip()
        self._space = text[len(visible) :]
        begins = not self._visible and bool(visible)
        if begins:
            self._visible = True
            self._transcript.change(reply, Content(without_blank_lines(visible)))
        elif visible:
            self._transcript.append(reply, BLANK_LINES.sub("\n", visible))
        return begins

    def light(self, heard: int) -> None:
        if self._length > LONGEST_LIT:
            self._unlight()
            return
        text = self.text
        while 0 < heard < len(text) and not text[heard].isspace():
            heard -= 1
        lit = len(without_blank_lines(text[:heard]))
        if self.reply is not None and lit != self.reply.lit:
            self._transcript.light(self.reply, lit)

    def _unlight(self) -> None:
        if self.reply is not None and self.reply.lit is not None:
            self.reply.muted, self.reply.lit = False, None
            self._transcript.change(self.reply, self.reply.content)

    def cut(self, heard: str) -> None:
        self._unlight()
        shown, spoken = without_blank_lines(self.text), without_blank_lines(heard)
        if self.reply is not None and len(spoken) < len(shown):
            rest = (shown[len(spoken) :], "$text-muted strike")
            self._transcript.change(self.reply, Content.assemble(spoken, rest))

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
                self._remark("(broken off)" if self._visible else "(no answer)")

    def show_figure(self, figure: str) -> None:
        if self.reply is not None:
            self._transcript.show_figure(self.reply, figure)

    def _show_markdown(self) -> None:
        if self.reply is None or self._length > LONGEST_MARKDOWN:
            return
        content = rendered(self.text)
        if content.plain and content != self.reply.content:
            self._transcript.change(self.reply, content)

    @property
    def entries(self) -> Sequence[Paragraph]:
        return [self._request, *filter(None, [self.reply])]

    def discard(self) -> None:
        self._transcript.drop(self.entries)

    def _remark(self, text: str) -> None:
        reply = self.expect_reply()
        before = reply.content + Content(" ") if self._visible else Content()
        remark = (text, "$text-muted italic")
        self._transcript.change(reply, Content.assemble(before, remark))

    def _stand_in(self, text: str) -> None:
        known = not self._request.muted or self._waveform or self._caption
        if not known and text != self._request.content.plain:
            self._transcript.change(self._request, Content(text))
