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
from importlib.metadata import version
from importlib.util import find_spec
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.voxtral.driver import driver_version
from benchmarks.voxtral.measure import SECTIONS_SECONDS, Bench, Clock
from benchmarks.voxtral.report import REHEARSAL, Row, goals, page, ratios, section, table
from benchmarks.voxtral.shape import H200, Shape, counted
from benchmarks.voxtral.systems import PREFIX
from voxtui.brains.voxtral.weights import best_device

REPEATS = 30

SECONDS = SECTIONS_SECONDS
"""Approximate limit of a run."""


def measure(
    tiny: bool,
    repeats: int,
    tell: Callable[[str], object],
    keep: Path | None = None,
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """Run every measurement that about so many `seconds` have room for.

    Writes `keep`, and a page of tables beside it, again after each row: a run may be aborted.
    """
    transformers.utils.logging.set_verbosity_error()
    # Triton's own folder, which has what the tests for a GPU compiled.
    os.environ.setdefault("TRITON_CACHE_DIR", str(Path.home() / ".triton" / "cache"))
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

    bench = Bench(device, rehearsal, repeats, Clock(seconds))
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
        if keep:
            tell(f"\nAll of it is in {keep}, and as a page of tables in {keep.with_suffix('.md')}.")
    return said


def machine(device: torch.device, tiny: bool) -> Mapping[str, Any]:
    cuda = device.type == "cuda"
    about = {
        "date": datetime.date.today().isoformat(),
        "shape": "tiny" if tiny else "Voxtral-Mini-3B",
        "device": torch.cuda.get_device_name(device) if cuda else platform.machine(),
        "cores": os.cpu_count(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    if not cuda:
        return about
    whole = torch.cuda.get_device_properties(device).total_memory
    return about | {
        "memory_gb": round(whole / 1e9, 1),
        "compute_capability": ".".join(map(str, torch.cuda.get_device_capability(device))),
        "driver": driver_version(),
        "cuda": torch.version.cuda,
        "triton": version("triton") if find_spec("triton") else "",
    }
