"""Verdicts about fast paths: which one is used, and the file that keeps them. Without torch."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from voxtui.brains.voxtral.verdict import (
    PATHS,
    FastPath,
    Key,
    Result,
    Times,
    Verdict,
    brief_table,
    brief_table_here,
    read_verdict,
    rows,
    write_verdict,
)

KEY = Key("A Card", "570.86", "2.13.0", "5.17", "0.4.0", "none")


def timed(ms: float) -> Times:
    return Times(ms, ms - 0.1, ms + 0.1)


def equal(path: FastPath, ms: float, plain: float = 9.0) -> Result:
    return Result(path, "equal", "", timed(ms), timed(14), timed(plain), timed(40), 2099, 0.31, 2)


def test_the_fastest_path_that_is_equal_is_used() -> None:
    wrong = Result("overlapped", "different", "Step 7 has another likeliest token.")
    verdict = Verdict(KEY, (equal("captured", 2.6), equal("all", 2.1), wrong))
    assert verdict.fastest == equal("all", 2.1)
    assert verdict.without("all", "It began to differ.").fastest == equal("captured", 2.6)


def test_a_path_that_saves_no_time_is_not_used() -> None:
    assert Verdict(KEY, (equal("captured", 9.5),)).fastest is None


def test_what_did_not_fit_is_tried_at_the_next_start_and_failures_are_not() -> None:
    verdict = Verdict(KEY, (
        equal("captured", 2.6),
        Result("attention", "failed", "Its process crashed (SIGSEGV)."),
        Result("all", "not tried", "It did not fit into 60 s of GPU time."),
    ))  # fmt: skip
    assert verdict.untried == ["all", "overlapped"]
    assert verdict.with_result(equal("all", 2.1)).untried == ["overlapped"]


def test_a_path_without_a_judgement_is_tried_at_three_starts_and_then_has_failed(
    tmp_path: Path,
) -> None:
    file, hung = tmp_path / "trial.json", Result("all", "not tried", "It hung.", inconclusive=1)
    write_verdict(file, Verdict(KEY, ()))
    kept: list[Result] = []
    for _ in range(3):
        verdict = read_verdict(file, KEY)
        assert "all" in verdict.untried
        # A start at which the time was up before says nothing, and forgets nothing.
        for found in (hung, Result("all", "not tried", "No time.")):
            verdict = verdict.with_result(found) if "all" in verdict.untried else verdict
        write_verdict(file, verdict)
        kept += verdict.results
    assert [(result.state, result.inconclusive) for result in kept] == [
        ("not tried", 1), ("not tried", 2), ("failed", 3)
    ]  # fmt: skip
    assert kept[-1].why == "It hung. 3 trials had no result."
    assert "all" not in read_verdict(file, KEY).untried


def test_a_judgement_forgets_the_trials_without_one() -> None:
    hung = Result("captured", "not tried", "It hung.", inconclusive=1)
    verdict = Verdict(KEY, ()).with_result(hung).with_result(hung)
    assert verdict.with_result(equal("captured", 2.6)).results == (equal("captured", 2.6),)


def test_a_verdict_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "trial.json"
    verdict = Verdict(KEY, (equal("captured", 2.6), Result("all", "failed", "No compiler.")))
    write_verdict(file, verdict)
    assert read_verdict(file, KEY) == verdict
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(file.parent) == [file.name]


@pytest.mark.parametrize("part", Key.__dataclass_fields__)
def test_a_verdict_for_another_machine_or_version_counts_as_none(tmp_path: Path, part: str) -> None:
    file = tmp_path / "trial.json"
    write_verdict(file, Verdict(KEY, (equal("captured", 2.6),)))
    other = replace(KEY, **{part: "another"})
    assert read_verdict(file, other) == Verdict(other, ())
    assert read_verdict(file, other).untried == [*PATHS]


def test_a_damaged_or_foreign_file_counts_as_none(tmp_path: Path) -> None:
    file = tmp_path / "trial.json"
    nothing = Verdict(KEY, ())
    assert read_verdict(file, KEY) == nothing
    write_verdict(file, Verdict(KEY, (equal("captured", 2.6),)))
    whole = file.read_bytes()
    foreign = whole.replace(b"captured", b"trust me")
    for content in (whole[: len(whole) // 2], b"", b"[]", b"\xff\x00", foreign, b"[" * 100_000):
        file.write_bytes(content)
        assert read_verdict(file, KEY) == nothing
    file.unlink()
    os.mkfifo(file)
    assert read_verdict(file, KEY) == nothing


def test_a_link_is_replaced_and_its_target_stays(tmp_path: Path) -> None:
    target, file = tmp_path / "other", tmp_path / "trial.json"
    target.write_text("mine")
    file.symlink_to(target)
    write_verdict(file, Verdict(KEY, ()))
    assert target.read_text() == "mine"
    assert not file.is_symlink()


def test_the_brief_table_fits_the_help_and_is_empty_without_a_gpu() -> None:
    lines = brief_table([equal("captured", 2.6), Result("all", "failed", "No compiler.")])
    assert lines == [
        "path      equal?  ms a token  ms to the first token",
        "captured  yes     2.60        14.00",
        "all       failed",
    ]
    assert brief_table_here("none") == []


def test_the_table_has_the_plain_path_and_a_row_for_each_other() -> None:
    assert rows([equal("captured", 2.6), Result("all", "failed", "No compiler.")]) == [
        ("path", "equal?", "ms a token", "ms to the first token"),
        ("plain", "", "9.00 (8.90 to 9.10)", "40.00 (39.90 to 40.10)"),
        ("captured", "yes, 31% of the bound, 2 near-ties differ", "2.60 (2.50 to 2.70)",
         "14.00 (13.90 to 14.10)"),
        ("all", "failed", "", ""),
    ]  # fmt: skip
