"""Run what needs a CUDA device on the simulated one, in its environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.simulated_cuda import ENVIRONMENT, LIBRARIES

REPOSITORY = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (LIBRARIES / "libcuda.so.1").exists(),
        reason="the simulated CUDA device is not built: python -m tests.simulated_cuda.build",
    ),
]


TESTED = "one_turn or three_turns or sampled or waits"
"""The tests of a GPU that do not need the machine code of kernels, nor minutes for each."""


@pytest.mark.parametrize(
    ("file", "which"),
    [("tests/simulated_cuda/on_device.py", ""), ("tests/brains/voxtral/test_gpu.py", TESTED)],
)
def test_on_the_simulated_device(file: str, which: str) -> None:
    ran = subprocess.run(
        [ENVIRONMENT / "bin" / "python", "-m", "pytest", "-q", "-c", os.devnull,
         "--rootdir", REPOSITORY, "--noconftest", "-p", "no:cacheprovider", "-k", which, file],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(LIBRARIES)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-8000:]
