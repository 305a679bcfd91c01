"""Checks of model files that read only their headers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from voxtui.errors import ModelError
from voxtui.models.catalogue import CHAT_MODELS, SAFETENSORS_INDEX
from voxtui.models.store import open_content, reason

GGUF_HEADER = 24
"""Bytes of the header: magic, version, number of tensors, number of keys."""

WHOLE = "model.safetensors"
MAX_SAFETENSORS_HEADER = 100 << 20
"""Maximum bytes of the header, by the format's own rule."""


def check_gguf(path: Path) -> None:
    """Raise ModelError if `path` is not a GGUF file or is truncated."""
    hint = "Set brain.embedded.model to a .gguf file, or to a name that `voxtui models list` shows."
    try:
        with open_content(path) as file:
            header = file.read(GGUF_HEADER)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise ModelError(f"There is no model file at {path}.", hint) from None
    except IsADirectoryError:
        raise ModelError(f"{path} is a directory, not a model file.", hint) from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {reason(error)}.", hint) from error
    if not header.startswith(b"GGUF"):
        raise ModelError(f"{path} is not a GGUF model file.", hint)
    released = next((m.size for m in CHAT_MODELS.values() if m.path.name == path.name), 0)
    if len(header) < GGUF_HEADER or size < released:
        raise ModelError(f"{path} is cut short.", "Download or copy it again.")


def check_voxtral(directory: Path, hint: str) -> list[Path]:
    """Return Voxtral's files in `directory`. Raise ModelError if one is missing or truncated."""
    if not directory.is_dir():
        raise ModelError(f"There is no directory {directory}.", hint)
    weights = [WHOLE]
    if (directory / SAFETENSORS_INDEX).is_file() and not (directory / WHOLE).is_file():
        weights = _shards(directory / SAFETENSORS_INDEX, hint)
    files = [directory / name for name in ("config.json", "tekken.json", *weights)]
    for file in files:
        if not file.is_file():
            raise ModelError(f"{directory} is incomplete: {file.name} is missing.", hint)
    for name in weights:
        if not _is_whole(directory / name):
            raise ModelError(f"{directory / name} is damaged or cut short.", hint)
    return files


def _shards(index: Path, hint: str) -> list[str]:
    try:
        files: dict[str, str] = json.loads(index.read_bytes())["weight_map"]
        return sorted({str(file) for file in files.values()})
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} is damaged.", hint) from error


def _is_whole(path: Path) -> bool:
    """Return True if the length equals that of the length field, the header and the tensors."""
    try:
        with open_content(path) as file:
            length = int.from_bytes(file.read(8), "little")
            if length > MAX_SAFETENSORS_HEADER:
                return False
            header: dict[str, Any] = json.loads(file.read(length))
        ends = [
            entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"
        ]
        return path.stat().st_size == 8 + length + max(ends, default=0)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False
