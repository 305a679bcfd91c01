"""Run all measurements: print tables and write JSON during the run, goals at the end."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Callable, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.voxtral.measure import WHOLE_SECONDS, Bench, Clock
from benchmarks.voxtral.report import Row, goals, page, ratios, section, table
from benchmarks.voxtral.shape import H200, Shape, counted
from benchmarks.voxtral.systems import PREFIX
from voxtui.brains.voxtral.weights import best_device

REPEATS = 30

REHEARSAL = "A rehearsal with a tiny shape: it says what our code adds, and nothing about a GPU."


def measure(
    tiny: bool, repeats: int, tell: Callable[[str], object], keep: Path | None = None
) -> dict[str, Any]:
    """Run every measurement.

    Writes `keep`, and a page of tables beside it, again after each row: a run may be aborted.
    """
    transformers.utils.logging.set_verbosity_error()
    device = best_device()
    rehearsal = tiny or device.type != "cuda"
    about = machine(device, rehearsal)
    tell(json.dumps(about) + "\n")
    if rehearsal:
        if not tiny:
            tell("There is no CUDA GPU here.")
        tell(f"{REHEARSAL} The floor of the true shape, counted, on an H200:\n")
        tell(table(counted(Shape(), H200, PREFIX)) + "\n")
    found: dict[str, list[Row]] = {}

    def all_of_it() -> dict[str, Any]:
        said: dict[str, Any] = {"machine": about, **found, "ratios": ratios(found)}
        said["goals"] = goals(found, not rehearsal)
        if keep:
            written = json.dumps(said, indent=1, ensure_ascii=False) + "\n"
            tables = page(dict(about), found, said["ratios"], said["goals"])
            for file, text in ((keep, written), (keep.with_suffix(".md"), tables)):
                part = file.with_name(f"{file.name}.part")  # a run may be aborted at any time
                part.write_text(text)
                part.replace(file)
        return said

    bench = Bench(device, rehearsal, repeats, Clock(WHOLE_SECONDS))
    try:
        for name, rows in groupby(bench.run(), key=itemgetter(0)):
            new: list[Row] = []
            for _, row in rows:
                new.append(row)
                found.setdefault(name, []).append(row)
                all_of_it()
            tell(section(name, new))
    finally:  # a lost device ends the run; the rows so far are kept
        said = all_of_it()
        tell("Ours to the better of the ways of generate; below 1: faster:\n")
        tell(table(said["ratios"]) + "\n")
        tell("The goals, set for an H200:\n")
        tell(table(said["goals"]))
    return said


def machine(device: torch.device, tiny: bool) -> Mapping[str, Any]:
    cuda = device.type == "cuda"
    return {
        "date": datetime.date.today().isoformat(),
        "shape": "tiny" if tiny else "Voxtral-Mini-3B",
        "device": torch.cuda.get_device_name(device) if cuda else platform.machine(),
        "cores": os.cpu_count(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
