"""The benchmark for a GPU on the simulated device: it can fill each goal of its page.

Times mean nothing here. `test_all.py` runs this file in the environment of the device.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.voxtral import command, measure, report, voice
from benchmarks.voxtral.measure import Bench
from tests.voices import random_kokoro
from voxtui.brains.voxtral import generate, kernels

SAMPLED = "voxtui, graphs, sampled"
"""With the plain, the captured and the fp8 one it stands for all configurations."""

ON_A_GPU_ONLY = {"generate, static cache, compiled", "torch, varlen"}
"""Rows that need the machine code of kernels; here they say so."""


class Short(Bench):
    """A run with few and short replies."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._capacity, self._contexts = 2048, (report.SHORT,)

    def _share(self, share: float) -> dict[str, Any]:
        return {"floor_share": round(share, 3)}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {kind.name: kind for kind in measure.VARIANTS}
    changed: dict[str, Any] = {
        "SECONDS": (report.CLIP,), "TURNS": (report.FIRST, report.LAST), "AUDIO_TURNS": 1,
        "REHEARSED": (1,), "TOKENS": 4, "DECODED": 6, "AHEAD": 2, "REPLAYS": 1,
        "BLOCKS": ((1024, 64, 4),), "CUTS": ((2, 64),),
        "VARIANTS": (kinds[measure.FP8], kinds[SAMPLED]),
    }  # fmt: skip
    for name, value in changed.items():
        monkeypatch.setattr(measure, name, value)
    monkeypatch.setattr(command, "Bench", Short)
    monkeypatch.setattr(voice, "random_files", random_kokoro.make)
    monkeypatch.setattr(voice, "CLAUSE", "It is blue.")
    monkeypatch.setattr(generate, "KV_BUCKET", 1024)
    monkeypatch.setattr(kernels, "BLOCK", (1024, 64, 4))
    monkeypatch.setattr(kernels.attend, "__defaults__", ((2, 64),))


@pytest.mark.usefixtures("short")
def test_a_run_fills_each_goal_of_the_page(tmp_path: Path) -> None:
    written = tmp_path / "gpu.json"
    found = command.measure(True, 1, lambda text: None, written, seconds=3000)
    unfilled = [row["goal"] for row in report.goals(found, judged=True) if row["measured"] == "–"]
    assert not unfilled, unfilled
    missing = [
        (name, row) for name, rows in found.items() if name in report.TITLES
        for row in rows if report.NOT_MEASURED in row
        if ON_A_GPU_ONLY.isdisjoint(map(str, row.values()))
    ]  # fmt: skip
    assert not missing, missing
    page = written.with_suffix(".md").read_text()
    for title in report.TITLES.values():
        assert title in page
