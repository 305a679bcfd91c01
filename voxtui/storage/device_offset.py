"""The device offset that `voxtui doctor --loopback` measured."""

from __future__ import annotations

import json
from pathlib import Path

from voxtui.settings.files import file_errors, read_file, write_file
from voxtui.settings.paths import user_folders

LARGEST_BYTES = 10_000


def offset_file() -> Path:
    return user_folders().user_state_path / "loopback.json"


def save_offset(path: Path, speaker: str, microphone: str, offset: float) -> None:
    known = {"speaker": speaker, "microphone": microphone, "offset_ms": round(offset * 1000, 1)}
    with file_errors(path, "written"):
        write_file(path, f"{json.dumps(known)}\n".encode())


def device_offset(speaker: str | None, path: Path | None = None) -> float | None:
    """Return the milliseconds between `first_sound` and the sound, if measured for `speaker`."""
    known = _known(path or offset_file())
    return known[1] if known and known[0] == speaker else None


def newest_offset() -> float:
    """Return the newest measured offset of any speaker in seconds, or 0."""
    known = _known(offset_file())
    return known[1] / 1000 if known else 0.0


def _known(path: Path) -> tuple[str, float] | None:
    try:
        known = json.loads(read_file(path, LARGEST_BYTES))
        return known["speaker"], float(known["offset_ms"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
