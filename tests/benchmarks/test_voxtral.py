"""The benchmark of the Voxtral loop: what it counts, what it needs, and that it runs to its end."""

import json
import os
import subprocess
import sys
import wave
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.voxtral import accuracy, measure, report
from benchmarks.voxtral.command import measure as measure_all
from benchmarks.voxtral.measure import GRAPHS, PLAIN, SAFE, VARIANTS, Bench, Clock
from benchmarks.voxtral.random_weights import random_model, tiny_config
from benchmarks.voxtral.shape import H200, Ceilings, Shape, counted, shape_of
from benchmarks.voxtral.systems import (
    PREFIX,
    Generate,
    Ours,
    noise,
    taken,
)
from benchmarks.voxtral.torch_products import linear
from tests.brains.voxtral.taped import TapeRecorder
from tests.brains.voxtral.test_kernels import StepOf
from voxtui.errors import InputError
from voxtui.settings.schema import Config

LENT = ("torch", "transformers", "numpy", "pytest")
"""Packages of a machine that is lent for an hour."""

CPU = torch.device("cpu")

LEFT_OUT = "left out: no time"
"""The error of a row that a slow machine has no time for."""


@pytest.mark.slow
def test_the_commands_for_a_gpu_need_torch_transformers_numpy_and_pytest_only():
    """The others are absent: `sys.modules` with None in place of a module."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(sys.argv[1:]))\n"
        "import benchmarks.voxtral.__main__, tests.brains.voxtral.test_gpu\n"
        "from voxtui.brains.voxtral import fast_path\n"
        "fast_path.set_kernel_cache()"
    )
    subprocess.run(
        [sys.executable, "-c", code, *absent()],
        env={**os.environ, "TRITON_CACHE_DIR": "kept"}, check=True,
    )  # fmt: skip


def absent() -> list[str]:
    """Return the installed modules that neither LENT nor what it requires brings."""
    here, wanted = set[str](), [*LENT]
    while wanted:
        name = canonicalize_name(wanted.pop())
        if name in here:
            continue
        here.add(name)
        with suppress(metadata.PackageNotFoundError):
            required = map(Requirement, metadata.requires(name) or ())
            wanted += [r.name for r in required if not r.marker or r.marker.evaluate({"extra": ""})]
    ours = {"voxtui", *here}
    installed = metadata.packages_distributions()
    return [m for m, names in installed.items() if not ours & set(map(canonicalize_name, names))]


# The floor.


@pytest.mark.slow
def test_the_counted_shape_equals_that_of_transformers():
    from transformers import VoxtralConfig, VoxtralForConditionalGeneration

    with torch.device("meta"):
        model = VoxtralForConditionalGeneration(VoxtralConfig(audio_token_id=24))
    assert shape_of(model.config, 2, 2) == Shape()
    assert sum(weight.numel() for weight in model.parameters()) == Shape().weights
    heard = (model.model.audio_tower, Shape().encoder_weights)
    turned = (model.model.multi_modal_projector, Shape().projector_weights)
    for part, counted_weights in (heard, turned):
        assert sum(weight.numel() for weight in part.parameters()) == counted_weights


@pytest.mark.slow
def test_a_step_is_counted_as_reading_what_the_loop_reads():
    model = random_model(tiny_config(), CPU)
    decoder, _ = taken(model)
    shape = shape_of(model.config, 4, 4)
    read = sum(weight.numel() * weight.element_size() for weight in decoder.weights)
    assert shape.step(0).bytes == read + shape.place_bytes
    assert shape.step(0).flops == 2 * read / 4 + 4 * 4 * 16 * 2


@pytest.mark.slow
def test_the_floor_on_an_h200_equals_the_value_in_the_docs():
    step = Shape().step(0).seconds(H200)
    assert step * 1e3 == pytest.approx(1.68, abs=0.005)
    assert Shape().first_token(5, PREFIX, H200) * 1e3 == pytest.approx(6.0, abs=0.05)
    fp8 = replace(Shape(), weight_bytes=1).step(0).seconds(H200)
    assert fp8 * 1e3 == pytest.approx(0.93, abs=0.005)


@pytest.mark.slow
def test_a_stage_takes_as_long_as_the_slower_of_its_two_limits():
    work = Shape().step(512)
    slow_reading = Ceilings(1e18, 1e9)
    assert work.seconds(slow_reading) == work.bytes / 1e9
    assert work.seconds(Ceilings(1e9, 1e18)) == work.flops / 1e9
    assert len(counted(Shape(), H200, PREFIX)) == 11


# The systems.


@pytest.fixture(scope="module")
def model():
    return random_model(tiny_config(), CPU)


def ours(model):
    return Ours(PLAIN, *taken(model), 1024)


@pytest.mark.slow
def test_both_sides_give_the_same_reply_with_the_same_weights(model):
    said = noise(1)
    one = list(ours(model).tokens((), said, 8))
    words = "".join(Generate(model, "theirs").tokens((), said, 8)).split()
    assert one == [int(word[1:]) for word in words]
    assert len(one) == 8


@pytest.mark.slow
def test_a_reply_to_cached_audio_is_rejected_as_a_measurement(model):
    system, said = ours(model), noise(1)
    assert len(list(system.tokens((), said, 2))) == 2
    with pytest.raises(AssertionError, match="only 1 tokens"):
        list(system.tokens((), said, 2))


@pytest.mark.slow
def test_a_generate_that_fails_ends_its_stream(model):
    failing = Generate(model, "theirs", cache_implementation="no such cache")
    with pytest.raises(ValueError, match="no such cache"):
        list(failing.behind(16, 4))


@pytest.mark.slow
def test_a_token_of_generate_is_timed_on_this_thread_too(model):
    at = Generate(model, "theirs").moments(16, 5)
    assert len(at) == 5 and at == sorted(at)


@pytest.mark.slow
def test_a_static_cache_of_generate_is_no_longer_than_its_own_context(model):
    """transformers keeps the longest there ever was, of which a short context would read all."""
    static = {"cache_implementation": "static", "disable_compile": True}
    one, other = (Generate(model, "theirs", **static) for _ in range(2))

    def positions(ask):
        ask()
        return model._previous_max_cache_length

    assert positions(lambda: list(one.behind(64, 4))) == 67
    assert positions(lambda: one.moments(256, 4)) == 259
    assert positions(lambda: list(other.behind(64, 4))) == 67
    assert positions(lambda: one.moments(64, 4)) == 67


@pytest.mark.slow
def test_a_row_that_fails_holds_its_error_and_the_next_row_is_measured():
    bench = Bench(CPU, tiny=True, repeats=1, clock=Clock(600))
    rows = list(bench.kinds(SAFE, bench.theirs))
    (row,) = [row for row in rows if row["system"] == GRAPHS]
    assert row[report.NOT_MEASURED] == "there is no CUDA device"
    assert PLAIN in bench.ours
    assert next(iter(bench.speculation()))["system"] == PLAIN


@pytest.mark.slow
def test_measurements_beyond_the_time_limit_are_left_out():
    bench = Bench(CPU, tiny=True, repeats=1, clock=Clock(0))
    assert next(iter(bench.memory()))[report.NOT_MEASURED] == LEFT_OUT


# The report.


def found(ours_ms=10.0, theirs_ms=40.0, rate=500.0):
    systems = ((PLAIN, 3 * ours_ms, rate / 4), (GRAPHS, ours_ms, rate))
    rows = [(name, ms, tokens) for name, ms, tokens in systems]
    rows.append(("generate, dynamic cache", theirs_ms, 100.0))
    times = [{"system": name, "p50_ms": ms, "p95_ms": ms + 5} for name, ms, _ in rows]
    whole = [{**row, "whole_turn_ms": 2 * row["p50_ms"]} for row in times]
    small = ("voxtui, fp8", 0.0, 1.8 * rate)
    return {
        "ttft": [{"seconds": 5, **row} for row in times],
        "turns": [{"turn": turn, **row} for row in whole for turn in (1, 5, 10)],
        "speculation": [{"system": PLAIN, "p50_ms": 1.0, "p95_ms": 2.0}],
        "decode": [
            {"context": 512, "system": name, "tokens_per_s": tokens, "floor_share": tokens / 595,
             "ms_per_token": 1e3 / tokens}
            for name, _, tokens in [*rows, small]
        ],
        "voice": [{"clause": "40 phonemes", report.NOT_MEASURED: "not installed: kokoro"}],
    }  # fmt: skip


def verdicts(sections, judged=True):
    return {row["goal"]: row["verdict"] for row in report.goals(sections, judged)}


@pytest.mark.slow
def test_goals_are_judged_by_our_best_way_without_fp8():
    said = verdicts(found())
    assert said["first token of 5 s, p50, ms"] == "met"
    assert said["decode, share of the bandwidth floor"] == "met"
    assert said["fp8, tokens/s to our own without"] == "met"
    assert said["first token of 5 s, ours / generate"] == "met"
    assert said["first audio after the first clause, p50, ms"] == (
        "not measured: not installed: kokoro"
    )


def test_a_goal_without_a_number_says_why():
    why = "fp8 needs a GPU of compute capability 8.9; A Card has 8.0."
    sections = found()
    sections["kinds"] = [{"system": "voxtui, fp8", report.NOT_MEASURED: why}]
    sections["decode"].pop()
    del sections["turns"]
    sections["generate, compiled"] = [{report.NOT_MEASURED: "left out: no time"}]
    said = verdicts(sections)
    assert said["fp8, tokens/s to our own without"] == f"not measured: {why}"
    assert said["first token, turn 1 / turn 10"] == "not measured: the run did not come to it"
    assert said["decode, ours / generate"] == (
        "met; generate compiled is not measured: left out: no time"
    )


def test_the_page_says_of_each_missing_section_that_the_run_did_not_come_to_it():
    about = {"device": "A Card", "date": "today", "shape": "Voxtral-Mini-3B"}
    lines = report.page(about, found(), [], []).splitlines()
    for name, title in report.TITLES.items():
        following = lines[lines.index(title) + 2]
        assert (following == "not measured: the run did not come to it") == (name not in found())


@pytest.mark.slow
def test_a_missed_goal_is_reported():
    said = verdicts(found(ours_ms=16.0, theirs_ms=40.0, rate=200.0))
    assert said["first token of 5 s, p50, ms"] == "missed"
    assert said["first token of 5 s, ours / generate"] == "missed"
    assert said["decode, ours / generate"].startswith("missed; ")


@pytest.mark.slow
@pytest.mark.parametrize(("first", "said"), [(11.0, "met"), (13.0, "missed")])
def test_the_first_turn_after_the_start_is_judged_by_the_later_ones(first, said):
    rows = [
        {"system": PLAIN, "first_turn_ms": 50.0, "later_turns_ms": 20.0},
        {"system": GRAPHS, "first_turn_ms": first, "later_turns_ms": 10.0},
        {"system": "voxtui, graphs, kernels", report.NOT_MEASURED: "no compiler"},
        {"system": "voxtui, graphs, fp8", "first_turn_ms": 5.0, "later_turns_ms": 5.0},
    ]
    sections = found() | {"kinds": rows}
    assert verdicts(sections)["first token, first turn after the start / later ones"] == said


@pytest.mark.slow
def test_the_compiled_generate_counts_for_decode():
    sections = found() | {
        "generate, compiled": [{"context": 512, "system": "generate, c", "tokens_per_s": 250.0}]
    }
    assert verdicts(sections)["decode, ours / generate"] == "missed"


@pytest.mark.slow
def test_a_rehearsal_does_not_judge_the_goals():
    why = "not measured: needs the true shape on a GPU"
    assert set(verdicts(found(), judged=False).values()) == {why}


@pytest.mark.slow
def test_ratios_are_to_the_better_of_the_ways_of_generate():
    rows = {row["ours / generate"]: row for row in report.ratios(found())}
    assert rows["a token"][GRAPHS] == 0.2
    assert rows["first token, turn 10"][PLAIN] == 0.75


@pytest.mark.slow
def test_a_table_has_a_column_for_every_key_of_any_row():
    assert report.table([{"a": 1}, {"b": 2}]).splitlines() == [
        "| a | b |",
        "|---|---|",
        "| 1 |  |",
        "|  | 2 |",
    ]


# Accuracy.


@pytest.mark.slow
def test_the_same_logits_are_no_different_and_others_are():
    exact = torch.randn(20, 50, generator=torch.Generator().manual_seed(0))
    same = accuracy.difference(exact, exact)
    assert (same["logit error, rms"], same["top-1 agreement"], same["KL, mean"]) == (0, 1, 0)
    other = accuracy.difference(exact, exact.flip(-1))
    assert (
        other["logit error, rms"] > 1 and other["top-1 agreement"] < 0.2 and other["KL, mean"] > 0
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "other", "edits"), [("", "", 0), ("", "ab", 2), ("abc", "abc", 0), ("abc", "axc", 1),
                                ("abc", "", 3), ("abc", "zabc", 1), ("kitten", "sitting", 3)]
)  # fmt: skip
def test_the_token_error_is_edits_per_token_of_the_reference(one, other, edits):
    error = accuracy.token_error([*map(ord, one)], [*map(ord, other)])
    assert error == pytest.approx(edits / max(1, len(one)))


def wav(path: Path, rate: int, seconds: float = 1.0) -> Path:
    noisy = np.random.default_rng(0).normal(0, 3000, round(rate * seconds)).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(noisy.tobytes())
    return path


@pytest.mark.slow
def test_only_clips_that_the_standard_library_can_read_are_accepted(tmp_path):
    assert accuracy.read(wav(tmp_path / "good.wav", 16_000)).dtype == np.float32
    (tmp_path / "text.wav").write_text("no sound")
    for bad in (wav(tmp_path / "fast.wav", 44_100), tmp_path / "none.wav", tmp_path / "text.wav"):
        with pytest.raises(InputError, match=bad.name):
            accuracy.read(bad)


@pytest.mark.slow
def test_fp8_is_compared_on_a_checkpoint_and_clips(tiny_voxtral, tmp_path):
    (row,) = accuracy.of_model(tiny_voxtral, [wav(tmp_path / "clip.wav", 16_000)])
    assert row["clip"] == "clip.wav"
    assert 0 < row["logit error, rms"] < 0.3
    assert 0 <= row["tokens of the transcript that differ"] <= 1
    with pytest.raises(InputError, match="nothing"):
        accuracy.of_model(tmp_path / "nothing", [])


# The whole of it.


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rehearsal_reports_every_measure(tmp_path):
    out = tmp_path / "bench.json"
    command = [sys.executable, "-m", "benchmarks.voxtral", "--tiny", "--repeats", "1"]
    ran = subprocess.run([*command, "--json", out], capture_output=True, text=True, check=True)
    measured = json.loads(out.read_text())
    assert {row["seconds"] for row in measured["ttft"] if "seconds" in row} == {2, 5, 15, 40}
    assert {row["turn"] for row in measured["turns"]} == {1, 5, 10}
    assert {row["stage"] for row in measured["kernels"]} == {"encoder", "prefill", "step"}
    assert all(row.get(PLAIN, 1) > 0 for row in measured["ratios"])
    failed = {
        row[report.NOT_MEASURED]
        for rows in measured.values()
        for row in rows
        if report.NOT_MEASURED in row
    }
    reasons = {why for why in failed if why != LEFT_OUT and "not installed" not in why}
    assert {why.partition(" Set")[0] for why in reasons} == {
        "there is no CUDA device", "There is no GPU for kernels.", "needs a CUDA GPU",
    }  # fmt: skip
    for title in report.TITLES.values():
        assert title in ran.stdout
    assert "| first token of 5 s |  |  | 6.011 |" in ran.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_row_fails_with_captured_graphs(monkeypatch):
    """Capture as on a GPU: a tape replays captured work, and torch replaces the kernels."""

    def some(qkv, position, cos, sin, kv, heads):
        return qkv[:, : heads * kv.shape[2]] * 1.0

    def use(decoder):
        decoder.decode_step = StepOf(some, linear)

    monkeypatch.setattr(measure, "use_kernels", use)
    monkeypatch.setattr(measure, "CudaRecorder", TapeRecorder)
    monkeypatch.setattr(measure, "SECONDS", (5, 40))
    monkeypatch.setattr(measure, "TURNS", (1, 10))
    rows = list(Bench(CPU, tiny=True, repeats=1, clock=Clock(600)).run())
    failed = [row[report.NOT_MEASURED] for _, row in rows if report.NOT_MEASURED in row]
    fine = LEFT_OUT, measure.NO_GPU[report.NOT_MEASURED]
    assert [why for why in failed if why not in fine and "not installed" not in why] == []
    kinds = {kind.name for kind in (*SAFE, *VARIANTS)}
    for wanted in ("ttft", "turns", "decode", "speculation", "stages"):
        assert kinds <= {row["system"] for name, row in rows if name == wanted}
    last = list(dict.fromkeys(name for name, _ in rows))
    assert last.index("decode") < last.index("parts") < last.index("kernels") == len(last) - 1


@pytest.mark.slow
def test_the_sampled_measurement_uses_the_shipped_preset():
    """Its values are written out: settings need a package that the benchmark does without."""
    shipped = Config().generation.sampling()
    assert {"temperature": shipped.temperature, "top_p": shipped.top_p} == measure.BALANCED
    assert (shipped.top_k, shipped.repetition_penalty) == (0, 1.0)


@pytest.mark.slow
def test_each_row_is_written_as_soon_as_it_is_measured(monkeypatch, tmp_path):
    """A run that is cut off loses nothing."""
    keep = tmp_path / "kept.json"
    seen = []

    def run(bench):
        for number in range(3):
            yield "decode", {"context": 512, "system": PLAIN, "ms_per_token": number}
            seen.append(len(json.loads(keep.read_text())["decode"]))
        raise KeyboardInterrupt

    monkeypatch.setattr(Bench, "run", run)
    told = []
    with pytest.raises(KeyboardInterrupt):
        measure_all(True, 1, told.append, keep)
    assert seen == [1, 2, 3]
    assert "| goal | wanted | measured | verdict |" in told[-2]
    page = keep.with_suffix(".md")
    assert sorted(tmp_path.iterdir()) == [keep, page]
    written = page.read_text()
    assert written.startswith(f"# Voxtral on {json.loads(keep.read_text())['machine']['device']}\n")
    assert "| goal | wanted | measured | verdict |" in written
    assert "| 512 | voxtui | 2 |" in written


def test_the_page_that_a_gpu_will_fill_has_each_goal():
    page = (Path(__file__).parents[2] / "docs" / "benchmarks" / "voxtral-gpu.md").read_text()
    for row in report.goals({}, judged=True):
        assert f"| {row['goal']} | {row['wanted']} | " in page
