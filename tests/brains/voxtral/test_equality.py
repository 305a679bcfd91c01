"""The table of what equals `generate`, all of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.voxtral.equality import CASES

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_case_is_equal_in_every_way() -> None:
    command = [sys.executable, "-m", "benchmarks.voxtral.equality"]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    _, _, *rows = [line for line in ran.stdout.splitlines() if line.startswith("|")]
    assert len(rows) == len(CASES)
    for row in rows:
        assert row.count("equal:") == 3, row
