"""The version of the NVIDIA driver."""

from __future__ import annotations

import ctypes

from voxtui.models.cuda import MONITOR


def driver_version() -> str:
    """Return the version of the NVIDIA driver, such as 570.86.15; empty if it reports none."""
    try:
        monitor = ctypes.CDLL(MONITOR)
    except OSError:
        return ""
    if monitor.nvmlInit_v2():
        return ""
    try:
        text = ctypes.create_string_buffer(80)
        failed = monitor.nvmlSystemGetDriverVersion(text, len(text))
        return "" if failed else text.value.decode(errors="replace")
    finally:
        monitor.nvmlShutdown()
