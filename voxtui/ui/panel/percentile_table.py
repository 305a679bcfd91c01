"""The table of headlines with the percentiles of the last turns."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from voxtui.dialogue.timestamps import Milestone, Turn
from voxtui.storage.derived_latencies import (
    HEADLINES,
    SPEED,
    TIMES,
    WINDOW,
    Headline,
    SessionTimes,
    downsample_max,
    percentile,
)
from voxtui.ui.bars import trend
from voxtui.ui.panel.formatting import (
    TYPED,
    VERDICT_STYLES,
    TurnTimes,
    main_headline,
    number,
    short_ms,
)

LABEL_CELLS = 10
TABLE_CELLS = 39
TREND_CELLS = 10


class PercentileTable(Static):
    def __init__(self) -> None:
        super().__init__(markup=False)

    def show(self, times: TurnTimes) -> None:
        turn, session = times.turn, times.session
        wide = self.content_size.width >= TABLE_CELLS + 2 + TREND_CELLS
        lines = [self._head(session, wide)]
        lines += [self._line(headline, times, wide) for headline in HEADLINES]
        lines += self._notes(times, wide)
        if times.device_ms is not None and turn.first_sound_ms is not None:
            heard = short_ms((turn.first_sound_ms + times.device_ms) / 1000)
            lines.append(
                _quiet(f"heard at {heard}: the devices add {short_ms(times.device_ms / 1000)}")
            )
        if turn.typed:
            lines.append(_quiet(TYPED))
        self.update(Content("\n").join(lines), layout=False)

    def _head(self, session: SessionTimes, wide: bool) -> Content:
        trends = f"  {'session':<{TREND_CELLS}}" if wide and len(session.all) else ""
        return Content.styled(f"{'ms':<11}   turn  goal  p50  p95  p99{trends}", "$text-muted")

    def _line(self, headline: Headline, times: TurnTimes, wide: bool) -> Content:
        turn, session = times.turn, times.session
        value, target = headline.of(turn), headline.goal(turn, times.targets)
        verdict = headline.verdict(turn, times.targets)
        sign = verdict.sign if verdict else " "
        goal = f"≤{number(target)}" if target is not None else ""
        # No p95 for a speed: the slow turns are those with a low speed.
        shown, thousand = ((50,), "k") if headline is SPEED else ((50, 95, 99), "s")
        warm = [number(percentile(headline.values(session.warm), p), thousand) for p in shown]
        past = " ".join(f"{text:>4}" for text in warm)
        values = downsample_max(headline.values(session.all), TREND_CELLS)
        return Content.assemble(
            f"{headline.name:<11} ",
            (f"{sign}{number(value, thousand):>5}", f"bold {VERDICT_STYLES[verdict]}".strip()),
            (f" {goal:>5} ", "$text-muted"),
            f"{past:<14}",
            (f"  {trend(values, TREND_CELLS)}", "$text-secondary") if wide else "",
        )

    def _notes(self, times: TurnTimes, wide: bool) -> list[Content]:
        turn, session, queue = times.turn, times.session, times.queue
        if not len(session.all):
            about = _quiet(f"p50, p95, p99: of the last {WINDOW} turns")
            return [about, _quiet(queue)] if queue else [about]
        cold = [number(percentile(headline.values(session.cold), 50)) for headline in TIMES]
        used = _used(turn)
        if not wide:
            room = TABLE_CELLS - LABEL_CELLS - (len(used) + 1 if used else 0)
            values = downsample_max(main_headline(session).values(session.all), room)
            return [
                Content.assemble(
                    (f"{'session':<{LABEL_CELLS}}", "$text-muted"),
                    (f"{trend(values, room):<{room}}", "$text-secondary"),
                    (f" {used}" if used else "", "$text-muted"),
                ),
                _quiet(queue or f"cold: TTFT {cold[0]}, sound {cold[1]}, total {cold[2]}"),
            ]
        several = f"s, p50 of {len(session.cold)}" if len(session.cold) > 1 else ""
        warm = f"p50… of {len(session.warm)} warm turns" if len(session.warm) else ""
        lines = [_three(warm, ("TTFT", "first sound", "total"))]
        lines.append(_quiet(queue) if queue else _three(f"cold turn{several}", cold))
        if turn.ms(Milestone.FIRST_TOKEN, since=Milestone.SPEECH_ENDED) is not None:
            since_speech = [number(headline.from_speech_end(turn)) for headline in TIMES]
            lines.append(_three("since the last word", since_speech))
        shown = turn.timestamps.get(Milestone.FIRST_SHOWN)
        painted = "" if shown is None else f"first word painted at {short_ms(shown)}"
        if painted or used:
            lines.append(_quiet(f"{painted:<33}{used:>16}"))
        return lines


def _used(turn: Turn) -> str:
    if turn.network_ms is not None:
        return f"network {short_ms(turn.network_ms / 1000)}"
    return f"GPU {turn.gpu_bytes / 1e9:.1f} GB" if turn.gpu_bytes is not None else ""


def _quiet(text: str) -> Content:
    return Content.styled(text, "$text-muted")


def _three(name: str, values: Sequence[str]) -> Content:
    return _quiet(f"{name:<22}{values[0]:>6}{values[1]:>13}{values[2]:>8}")
