"""Report the measurements as text: tables, ratios and goals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

Row: TypeAlias = "dict[str, Any]"
Sections: TypeAlias = "Mapping[str, Sequence[Row]]"

TITLES = {
    "ceilings": "Ceilings of this machine, measured in this run:",
    "floor": "The floor, counted for this shape at these ceilings:",
    "kinds": "Our loop in its kinds; the first turn after the start, and the eleven after it:",
    "ttft": "Time to the first token, by seconds of audio:",
    "turns": "5 s of audio, by turn: the first token, and a whole reply of 32:",
    "speculation": "Time to the first token of a draft that was kept:",
    "decode": "Decode, by tokens of context:",
    "parts": "A step's products and its attention by themselves, microseconds a layer:",
    "memory": "Memory:",
    "stages": "Each stage waited for by itself; on a GPU the prefill with the step behind it:",
    "kernels": "Where the time of a stage goes, without graphs:",
    "accuracy of fp8": "fp8 weights against the same weights as they were, random ones:",
    "voice": "Kokoro with random weights, first audio of a clause:",
    "generate, compiled": "generate, with the step that transformers compiles:",
}

NOT_MEASURED = "not measured"
"""The key of a row, and beginning of a verdict, for the reason of a missing number."""

NOT_REACHED = "the run did not come to it"

REHEARSAL = "A rehearsal with a tiny shape: it says what our code adds, and nothing about a GPU."

SHORT, FIRST, LAST, CLIP = 512, 1, 10, 5
"""Tokens of context, turns, and seconds of audio of the goals and ratios."""


def table(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(str(row.get(name, "")) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def section(name: str, rows: Sequence[Row]) -> str:
    return f"{TITLES[name]}\n\n{table(rows)}\n" if rows else ""


def page(about: Row, found: Sections, ratio_rows: Sequence[Row], goal_rows: Sequence[Row]) -> str:
    """Return a page of all tables, the goals first, for docs/benchmarks."""
    parts = [
        f"# Voxtral on {about['device']}\n",
        f"{about['date']}. `python -m benchmarks.voxtral --json OUT` wrote this page.\n",
        *([f"**{REHEARSAL}**\n"] if about["shape"] == "tiny" else []),
        "\n".join(f"- {name}: {value}" for name, value in about.items()) + "\n",
        f"## The goals, set for an H200\n\n{table(goal_rows)}\n",
        "## Ours to the better of the ways of generate\n\nBelow 1: faster.\n\n"
        f"{table(ratio_rows)}\n",
        "## All measurements\n",
        *(section(name, rows) for name, rows in found.items()),
        *(f"{title}\n\n{NOT_MEASURED}: {NOT_REACHED}\n"
          for name, title in TITLES.items() if name not in found),
    ]  # fmt: skip
    return "\n".join(parts)


def ratios(found: Sections) -> list[Row]:
    """Return the ratio of the better way of `generate` to ours: by default, and at our best."""
    rows: list[Row] = []
    for what, name, value, about, choose in (
        ("a token", "decode", "ms_per_token", {"context": SHORT}, min),
        ("first token of 5 s", "ttft", "p50_ms", {"seconds": CLIP}, min),
        ("first token, turn 10", "turns", "p50_ms", {"turn": LAST}, min),
        ("whole turn of 32 tokens, turn 1", "turns", "whole_turn_ms", {"turn": FIRST}, min),
        ("whole turn of 32 tokens, turn 10", "turns", "whole_turn_ms", {"turn": LAST}, min),
    ):
        values = dict(_values(found, name, value, about))
        if name == "decode":
            values |= dict(_values(found, "generate, compiled", value, about))
        theirs = [each for system, each in values.items() if system.startswith("generate")]
        if not theirs:
            continue
        row: Row = {"ours / generate": what}
        for system, each in values.items():
            if not system.startswith("generate"):
                row[system] = round(each / choose(theirs), 3)
        rows.append(row)
    return rows


def goals(found: Sections, judged: bool) -> list[Row]:
    """Compare the goals for an H200 with the results. `judged`: this run can decide them."""
    rows: list[Row] = []

    def add(
        goal: str, most: bool, limit: float, measured: float | None, name: str,
        about: Callable[[str], bool] = lambda system: True,
    ) -> None:  # fmt: skip
        """Add a row. `name`, `about`: the section and the systems that the number is from."""
        sign = "≤" if most else "≥"
        row: Row = {"goal": goal, "wanted": f"{sign} {limit:g}"}
        if not judged or measured is None:
            why = _why(found, name, about) if judged else "needs the true shape on a GPU"
            rows.append(row | {"measured": "–", "verdict": f"{NOT_MEASURED}: {why}"})
            return
        met = measured <= limit if most else measured >= limit
        rows.append(row | {"measured": f"{measured:.4g}", "verdict": "met" if met else "missed"})

    clip: Row = {"seconds": CLIP}
    ours, theirs = _sides(found, "ttft", "p50_ms", clip, min)
    add("first token of 5 s, p50, ms", True, 15, ours, "ttft", _is_ours)
    slow, _ = _sides(found, "ttft", "p95_ms", clip, min)
    add("first token of 5 s, p95, ms", True, 25, slow, "ttft", _is_ours)
    kept, _ = _sides(found, "speculation", "p50_ms", {}, min)
    add("first token of a kept draft, p50, ms", True, 3, kept, "speculation")
    share, _ = _sides(found, "decode", "floor_share", {"context": SHORT}, max)
    add("decode, share of the bandwidth floor", False, 0.8, share, "decode", _is_ours)
    rate, their_rate = _sides(found, "decode", "tokens_per_s", {"context": SHORT}, max)
    small = _best(found, "decode", "tokens_per_s", {"context": SHORT}, max, _is_fp8)
    faster = _quotient(small, rate)
    add("fp8, tokens/s to our own without", False, 1.6, faster, "decode", _is_fp8)
    shorter = _quotient(ours, theirs)
    add("first token of 5 s, ours / generate", True, round(1 / 3, 3), shorter, "ttft")
    add("decode, ours / generate", False, 3, _quotient(rate, their_rate), "decode")
    compiled = "generate, compiled"
    if judged and not any("tokens_per_s" in row for row in found.get(compiled, ())):
        rows[-1]["verdict"] += f"; generate compiled is {NOT_MEASURED}: {_why(found, compiled)}"
    first, _ = _sides(found, "turns", "p50_ms", {"turn": FIRST}, min)
    last, _ = _sides(found, "turns", "p50_ms", {"turn": LAST}, min)
    add("first token, turn 1 / turn 10", True, 1.15, _quotient(first, last), "turns", _is_ours)
    cold = _cold(found)
    add("first token, first turn after the start / later ones", True, 1.15, cold, "kinds")
    (voice,) = found.get("voice") or [{}]
    add("first audio after the first clause, p50, ms", True, 70, voice.get("p50_ms"), "voice")
    add("decode beside the voice / alone", False, 0.9, voice.get("decode beside it"), "voice")
    return rows


def _why(found: Sections, name: str, about: Callable[[str], bool] = lambda system: True) -> str:
    """Return why section `name` has no number of such systems: a row failed, or none was built."""
    rows = [
        row for part in (name, "kinds") for row in found.get(part, ())
        if name in found and about(row.get("system", ""))
    ]  # fmt: skip
    return next((row[NOT_MEASURED] for row in rows if NOT_MEASURED in row), NOT_REACHED)


def _values(found: Sections, name: str, value: str, about: Row) -> Iterator[tuple[str, float]]:
    for row in found.get(name, ()):
        if about.items() <= row.items() and value in row:
            yield row["system"], row[value]


def _cold(found: Sections) -> float | None:
    """Return first turn / later turns of our best configuration without fp8."""
    value = "later_turns_ms"
    rows = [row for row in found.get("kinds", ()) if value in row and not _is_fp8(row["system"])]
    best = min(rows, key=itemgetter(value), default=None)
    return None if best is None else _quotient(best["first_turn_ms"], best[value])


def _best(
    found: Sections, name: str, value: str, about: Row, choose: Callable[[list[float]], float],
    wanted: Callable[[str], bool],
) -> float | None:  # fmt: skip
    values = [each for system, each in _values(found, name, value, about) if wanted(system)]
    return choose(values) if values else None


def _sides(
    found: Sections, name: str, value: str, about: Row, choose: Callable[[list[float]], float]
) -> tuple[float | None, float | None]:
    """Return our best without fp8, and the best of `generate`."""
    ours = _best(found, name, value, about, choose, lambda s: _is_ours(s) and not _is_fp8(s))
    theirs = _best(found, name, value, about, choose, lambda s: not _is_ours(s))
    compiled = _best(found, "generate, compiled", value, about, choose, lambda s: True)
    both = [each for each in (theirs, compiled) if each is not None]
    return ours, choose(both) if both and name == "decode" else theirs


def _is_ours(system: str) -> bool:
    return not system.startswith("generate")


def _is_fp8(system: str) -> bool:
    return "fp8" in system


def _quotient(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else round(one / other, 3)
