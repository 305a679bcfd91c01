"""The latency panel: this turn against its targets, the last turns, and the stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Digits, Static

from voxtui.dialogue.marks import Mark, Marks, Outcome, Turn
from voxtui.records.metrics import (
    FIRST_SOUND,
    HEADLINES,
    SPEAKING,
    SPEED,
    TIMES,
    TTFT,
    WINDOW,
    Headline,
    PlaybackLead,
    SessionTimes,
    Stage,
    Verdict,
    downsample_max,
    stages,
    verdict,
)
from voxtui.settings.schema import Targets
from voxtui.ui.bars import LOWER_EIGHTHS, bar, trend

NO_TURN = Turn(0, "", Outcome.ANSWERED, {})

VERDICT_STYLES = {Verdict.WITHIN: "$text-success", Verdict.OVER: "$text-error", None: ""}

VALUE_DIGITS = 4

LABEL_CELLS = 10
VALUE_CELLS = 8
TABLE_CELLS = 39
TREND_CELLS = 10

GOAL = "┊"


def number(value: float | None, thousand: str = "s") -> str:
    """A headline in four cells; a `thousand` milliseconds are a second."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value < 9999.5 else f"{value / 1000:.0f}{thousand}"


def short_ms(seconds: float) -> str:
    """A duration in at most eight cells: `1.5 ms`, `150 ms`, `12.3 s`."""
    ms = seconds * 1000
    if ms >= 9999.5:
        return f"{seconds:.1f} s"
    return f"{ms:.0f} ms" if ms >= 9.95 or ms == 0 else f"{ms:.1f} ms"


class Card(Vertical):
    """One headline in large digits, and its verdict."""

    def __init__(self, headline: Headline, targets: Targets) -> None:
        super().__init__()
        self._headline = headline
        self.targets = targets
        self._digits = Digits("-".ljust(VALUE_DIGITS))
        self._verdict = Static(markup=False)

    def compose(self) -> ComposeResult:
        yield Static(f"{self._headline.name} ms", classes="name")
        yield self._digits
        yield self._verdict

    def show(self, turn: Turn) -> None:
        value = self._headline.of(turn)
        target = self._headline.target(self.targets)
        kept = verdict(value, target)
        text = "-" if value is None else number(value).removesuffix("s")
        text = text.ljust(VALUE_DIGITS)  # of one length, so that nothing is laid out for it
        if text != self._digits.value:
            self._digits.update(text)
        goal = f"≤ {target:.0f}"
        found = f"{kept.sign} {kept}, {goal}" if kept else f"  goal {goal}"
        self._verdict.update(found, layout=False)
        self.set_class(kept is Verdict.WITHIN, "within")
        self.set_class(kept is Verdict.OVER, "over")


class Numbers(Static):
    """Each headline of this turn beside its target, and what the last turns were like."""

    def __init__(self, targets: Targets) -> None:
        super().__init__(markup=False)
        self.targets = targets
        self.device_ms: float | None = None
        """what was measured of the speaker, beyond what the first sound counts"""
        self.queue = ""
        """the speech that is made and not heard yet, while there is some"""

    def show(self, turn: Turn, session: SessionTimes) -> None:
        wide = self.content_size.width >= TABLE_CELLS + 2 + TREND_CELLS
        lines = [self._head(session, wide)]
        lines += [self._line(headline, turn, session, wide) for headline in HEADLINES]
        lines += self._notes(turn, session, wide)
        if self.device_ms is not None and turn.first_sound_ms is not None:
            lines.append(_quiet(
                f"heard at {number(turn.first_sound_ms + self.device_ms)} ms: "
                f"the devices add {number(self.device_ms)}"
            ))  # fmt: skip
        self.update(Content("\n").join(lines), layout=False)

    def _head(self, session: SessionTimes, wide: bool) -> Content:
        trends = f"  {'session':<{TREND_CELLS}}" if wide and len(session.all) else ""
        return Content.styled(f"{'ms':<11}   turn  goal  p50  p95  p99{trends}", "dim")

    def _line(self, headline: Headline, turn: Turn, session: SessionTimes, wide: bool) -> Content:
        value, target = headline.of(turn), headline.target(self.targets)
        kept = verdict(value, target)
        sign = kept.sign if kept else " "
        goal = f"≤{number(target)}" if target is not None else ""
        # For a speed the slow side is the low one, and p95 would praise it.
        shown, thousand = ((50,), "k") if headline is SPEED else ((50, 95, 99), "s")
        warm = [number(session.warm.percentile(headline, p), thousand) for p in shown]
        past = " ".join(f"{text:>4}" for text in warm)
        values = downsample_max(session.all.values(headline), TREND_CELLS)
        return Content.assemble(
            f"{headline.name:<11} ",
            (f"{sign}{number(value, thousand):>5}", f"bold {VERDICT_STYLES[kept]}".strip()),
            (f" {goal:>5} ", "dim"),
            f"{past:<14}",
            (f"  {trend(values, TREND_CELLS)}", "$text-secondary") if wide else "",
        )

    def _notes(self, turn: Turn, session: SessionTimes, wide: bool) -> list[Content]:
        if not len(session.all):
            about = _quiet(f"p50, p95, p99: of the last {WINDOW} turns")
            return [about, _quiet(self.queue)] if self.queue else [about]
        cold = [number(session.cold.percentile(headline, 50)) for headline in TIMES]
        used = _used(turn)
        if not wide:
            room = TABLE_CELLS - LABEL_CELLS - (len(used) + 1 if used else 0)
            values = downsample_max(session.all.values(_sounding(session)), room)
            return [
                Content.assemble(
                    (f"{'session':<{LABEL_CELLS}}", "dim"),
                    (f"{trend(values, room):<{room}}", "$text-secondary"),
                    (f" {used}" if used else "", "dim"),
                ),
                _quiet(self.queue or f"cold: TTFT {cold[0]}, sound {cold[1]}, total {cold[2]}"),
            ]
        several = f"s, p50 of {len(session.cold)}" if len(session.cold) > 1 else ""
        felt = [number(headline.from_speech_end(turn)) for headline in TIMES]
        painted = f"first word painted at {number(turn.ms(Mark.FIRST_SHOWN))} ms"
        return [
            _three(f"p50… of {len(session.warm)} warm turns", ("TTFT", "first sound", "total")),
            _quiet(self.queue) if self.queue else _three(f"cold turn{several}", cold),
            _three("since the last word", felt),
            _quiet(f"{painted:<33}{used:>16}"),
        ]


def _used(turn: Turn) -> str:
    """What the turn took beside time: memory of the GPU, or how much of TTFT was the network."""
    if turn.network_ms is not None:
        return f"network {number(turn.network_ms)} ms"
    return f"GPU {turn.gpu_bytes / 1e9:.1f} GB" if turn.gpu_bytes is not None else ""


def _quiet(text: str) -> Content:
    return Content.styled(text, "dim")


def _three(name: str, values: Sequence[str]) -> Content:
    return _quiet(f"{name:<22}{values[0]:>6}{values[1]:>13}{values[2]:>8}")


def _sounding(session: SessionTimes) -> Headline:
    """What a session is told by: the first sound, or TTFT where nothing sounds."""
    return FIRST_SOUND if session.all.values(FIRST_SOUND) else TTFT


class Waterfall(Widget):
    """Stages as bars on one time axis from the release; hidden work lies left of zero."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "waterfall--hidden",
        "waterfall--wait",
        "waterfall--brain",
        "waterfall--writing",
        "waterfall--voice",
        "waterfall--sound",
        "waterfall--label",
        "waterfall--within",
        "waterfall--over",
    }

    KINDS: ClassVar[dict[str, str]] = {
        "hidden": "hidden",
        "listen": "wait",
        "send": "wait",
        "encode": "brain",
        "recognise": "brain",
        "prefill": "brain",
        "token": "brain",
        "writing": "writing",
        "clause": "voice",
        "voice": "voice",
        "device": "sound",
        "speaking": "sound",
    }

    def __init__(self, targets: Targets) -> None:
        super().__init__()
        self.targets = targets
        self._stages: Sequence[Stage] = ()
        self._turn = NO_TURN

    def show(self, turn: Turn, speculative_s: float) -> None:
        found = stages(turn.marks, speculative_s)
        if found != self._stages or turn.marks.keys() != self._turn.marks.keys():
            self._stages, self._turn = found, turn
            self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        label = self.get_component_rich_style("waterfall--label")
        cells = width - LABEL_CELLS - VALUE_CELLS
        if cells < 4 or self._turn is NO_TURN:
            return Strip([Segment(self._empty(y)[:width].ljust(width), label)], width)
        goals = [(target / 1000, headline) for headline in TIMES
                 if (target := headline.target(self.targets)) is not None]  # fmt: skip
        axis = Axis(self._stages, cells, at_least=max(seconds for seconds, _ in goals[:2]))
        rows = self._rows(self.size.height - 2)
        if y < len(rows):
            return self._stage_line(rows[y], axis, cells, label, [at for at, _ in goals])
        if y == len(rows):
            return self._goal_line(axis, cells, label, goals)
        if y == len(rows) + 1:
            line = f"{'':<{LABEL_CELLS}}{axis.labels()}{'':<{VALUE_CELLS}}"
            return Strip([Segment(line, label)], width)
        return Strip.blank(width, self.rich_style)

    def _empty(self, y: int) -> str:
        lines = ("The stages of a turn are drawn here,", "on a time axis from the release on.")
        return lines[y] if y < len(lines) else ""

    def _rows(self, room: int) -> Sequence[Stage]:
        """What fits, without the shortest where that is not everything."""
        if len(self._stages) <= room:
            return self._stages
        longest = sorted(self._stages, key=lambda stage: stage.seconds, reverse=True)[:room]
        return [stage for stage in self._stages if stage in longest]

    def _stage_line(
        self, stage: Stage, axis: Axis, cells: int, label: Style, goals: Sequence[float]
    ) -> Strip:
        style = self.get_component_rich_style(f"waterfall--{self.KINDS[stage.name]}")
        ground = [Segment(" ", label)] * cells
        for seconds in goals:
            if (at := axis.column(seconds)) is not None:
                ground[at] = Segment(GOAL, label)
        ground[axis.zero] = Segment("▏", label)
        bars = bar(axis.cell(stage.start), axis.cell(stage.end), style, ground)
        value = f"{short_ms(stage.seconds):>{VALUE_CELLS}}"
        return Strip(
            [
                Segment(f"{stage.name:<{LABEL_CELLS}}", label),
                *bars,
                Segment(value, self.rich_style),
            ],
            cells + LABEL_CELLS + VALUE_CELLS,
        )

    def _goal_line(
        self, axis: Axis, cells: int, label: Style, goals: Sequence[tuple[float, Headline]]
    ) -> Strip:
        """The sign of each verdict at its target's place, and the target where there is room."""
        line = [Segment(" ", label)] * cells
        places = [(axis.column(seconds), seconds, headline) for seconds, headline in goals]
        places = [(at, seconds, headline) for at, seconds, headline in places if at is not None]
        ends = [at for at, _, _ in places[1:]] + [cells]
        for (at, seconds, headline), end in zip(places, ends, strict=True):
            kept = verdict(headline.of(self._turn), seconds * 1000)
            style = self._verdict_style(kept) if kept else label
            text = f"{kept.sign if kept else '▴'}{seconds * 1000:.0f}"
            for i, character in enumerate(text if at + len(text) < end else text[0]):
                line[at + i] = Segment(character, style)
        name = Segment(f"{'goals':<{LABEL_CELLS}}", label)
        return Strip([name, *Segment.simplify(line), Segment(" " * VALUE_CELLS, label)])

    def _verdict_style(self, kept: Verdict) -> Style:
        return self.get_component_rich_style(f"waterfall--{kept.name.lower()}")


class Axis:
    """Seconds from the release to cells, with a scale of round numbers."""

    HIDDEN_SHARE = 0.3
    """Hidden work may be long; it is cut off here, and its row says how long it is."""

    def __init__(self, found: Sequence[Stage], cells: int, at_least: float) -> None:
        hidden = -min((stage.start for stage in found), default=0.0)
        # How long the answer is spoken says nothing about speed; it runs out of the picture.
        ends = [stage.end for stage in found if stage.name != SPEAKING]
        self.end = _round_up(max([*ends, at_least]))
        self._cells = cells
        left = min(hidden / (hidden + self.end), self.HIDDEN_SHARE) * cells
        self.zero = math.ceil(left)
        self._per_second = (cells - self.zero) / self.end

    def cell(self, seconds: float) -> float:
        return max(0.0, self.zero + seconds * self._per_second)

    def column(self, seconds: float) -> int | None:
        """The cell that holds this time, where the axis has it."""
        at = int(self.cell(seconds))
        return at if at < self._cells else None

    def labels(self) -> str:
        line = [" "] * self._cells
        end = short_ms(self.end)
        for at, text in ((self.zero, "0"), (self._cells - len(end), end)):
            line[at : at + len(text)] = text
        return "".join(line[: self._cells])


def _round_up(seconds: float) -> float:
    """The next round number, so that the bars of a turn under way do not jitter."""
    scale = 10.0 ** math.floor(math.log10(max(seconds, 0.1)))
    return next(step * scale for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * scale >= seconds)


class History(Widget):
    """The last turns as columns against the target: first sound, or TTFT where nothing sounds."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"history--within", "history--over", "history--label"}

    COLUMN_CELLS = 2
    SCALE_CELLS = 6

    def __init__(self, targets: Targets) -> None:
        super().__init__()
        self.targets = targets
        self._headline = FIRST_SOUND
        self._values: list[float] = []

    def show(self, session: SessionTimes) -> None:
        self._headline = _sounding(session)
        self._values = session.all.values(self._headline)[-WINDOW:]
        self.refresh()

    def render_line(self, y: int) -> Strip:
        label = self.get_component_rich_style("history--label")
        width, height = self.size
        target = self._headline.target(self.targets)
        if not self._values or target is None or height < 3:
            return Strip.blank(width, self.rich_style)
        if y == 0:
            title = f"{self._headline.name}, turn by turn, goal ≤ {target:.0f}"
            return Strip([Segment(title[:width].ljust(width), label)], width)
        rows = height - 1
        top = max(*self._values, target * 1.25)
        from_bottom = rows - y
        line = round(target / top * rows - 0.5)
        room = (width - self.SCALE_CELLS) // (self.COLUMN_CELLS + 1)
        values = self._values[-room:]
        segments = [Segment(self._scale(from_bottom, rows, line, top, target), label)]
        empty = "┄" if from_bottom == line else " "
        for value in values:
            kept = verdict(value, target) or Verdict.WITHIN
            style = self.get_component_rich_style(f"history--{kept.name.lower()}")
            segments += self._column(value / top * rows - from_bottom, style, label, empty)
        used = self.SCALE_CELLS + len(values) * (self.COLUMN_CELLS + 1)
        return Strip([*segments, Segment(empty * (width - used), label)]).crop(0, width)

    def _scale(self, row: int, rows: int, line: int, top: float, target: float) -> str:
        value = target if row == line else top if row == rows - 1 else None
        return f"{number(value) if value is not None else '':>{self.SCALE_CELLS - 1}} "

    def _column(self, filled: float, style: Style, label: Style, empty: str) -> list[Segment]:
        """One row of a column, of which `filled` rows are left from this one up."""
        eighths = max(0, min(8, round(filled * 8)))
        if not eighths:
            return [Segment(empty * (self.COLUMN_CELLS + 1), label)]
        return [
            Segment(LOWER_EIGHTHS[eighths - 1] * self.COLUMN_CELLS, style),
            Segment(empty, label),
        ]


class LatencyPanel(Vertical):
    """Everything known about how long this turn took, live, and how the last ones did."""

    def __init__(self, targets: Targets) -> None:
        super().__init__()
        self._session = SessionTimes()
        self._cards = [Card(headline, targets) for headline in TIMES]
        self._numbers = Numbers(targets)
        self._waterfall = Waterfall(targets)
        self._history = History(targets)
        self._turn = self._finished = NO_TURN
        self._speculative_s = 0.0
        self._lead = PlaybackLead()

    def compose(self) -> ComposeResult:
        with Horizontal(id="cards"):
            yield from self._cards
        yield self._numbers
        yield self._waterfall
        yield self._history

    def on_mount(self) -> None:
        self._show()

    def on_resize(self) -> None:
        self._show()

    def judge_by(self, targets: Targets) -> None:
        """Compare turns with `targets` from now on."""
        for part in (*self._cards, self._numbers, self._waterfall, self._history):
            part.targets = targets
        self._history.refresh()
        self._waterfall.refresh()
        self._show()

    def devices_add(self, ms: float | None) -> None:
        """To the first sound, as far as it was measured of the speaker in use."""
        self._numbers.device_ms = ms
        self._numbers.set_class(ms is not None, "measured")
        self._show()

    @property
    def turn(self) -> Turn:
        """The turn on display; its marks may still be coming in."""
        return self._turn

    def models_loaded(self) -> None:
        """The next turn is a cold one."""
        self._session.models_loaded()

    def begin(self) -> None:
        """The next turn."""
        self._lead, self._numbers.queue = PlaybackLead(), ""

    def follow(self, marks: Marks, now: float) -> None:
        """Show the marks reached so far; the turn before stays until the release."""
        reached = marks.since_release()
        queue = self._queue(marks, now)
        told, self._numbers.queue = self._numbers.queue, queue
        if reached and reached != self._turn.marks:
            self._turn = Turn(0, "", Outcome.ANSWERED, reached)
            self._speculative_s = marks.speculative_s
            self._show()
        elif queue != told:
            self._numbers.show(self._turn, self._session)

    def _queue(self, marks: Marks, now: float) -> str:
        """How far the voice is ahead of the speaker, until the last sound."""
        over = marks.at(Mark.LAST_SOUND) or marks.at(Mark.CANCELLED)
        if over is not None or marks.at(Mark.FIRST_AUDIO) is None:
            return ""
        first_sound = marks.at(Mark.FIRST_SOUND)
        ahead = self._lead.update(marks.speech_s, now - first_sound if first_sound else 0.0)
        waited = self._lead.underrun_s
        late = f", {waited:.1f} s too late" if waited >= 0.05 else ""
        return f"voice: {ahead:.1f} s ahead{late}"

    def finish(self, turn: Turn) -> None:
        """A turn that was dropped before an answer leaves the numbers of the one before."""
        self._session.add(turn)
        if turn.outcome is not Outcome.CANCELLED or Mark.FIRST_TOKEN in turn.marks:
            self._finished = turn
        self._turn, self._speculative_s = self._finished, self._finished.speculative_s
        self._numbers.queue = ""
        self._history.show(self._session)
        self._show()

    def complete(self, marks: Marks) -> None:
        """A mark of the finished turn on display came late."""
        reached = {**marks.since_release(), **self._turn.marks}
        self._turn = self._finished = replace(self._turn, marks=reached)
        self._show()

    def _show(self) -> None:
        for card in self._cards:
            card.show(self._turn)
        self._numbers.show(self._turn, self._session)
        self._waterfall.show(self._turn, self._speculative_s)
