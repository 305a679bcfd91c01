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
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not (LIBRARIES / "libcuda.so.1").exists(),
        reason="the simulated CUDA device is not built: python -m tests.simulated_cuda.build",
    ),
]


TESTED = "one_turn or three_turns or sampled or waits"
"""The tests of a GPU that do not need the machine code of kernels, nor minutes for each."""


PARTS = {
    "conversation": ("simulated_cuda/on_device.py", "not restart"),
    "restart": ("simulated_cuda/on_device.py", "restart"),
    "gpu": ("brains/voxtral/test_gpu.py", TESTED),
    "benchmark": ("simulated_cuda/on_device_benchmark.py", ""),
}
"""Each takes minutes in a process of its own."""


@pytest.mark.parametrize("part", PARTS)
def test_on_the_simulated_device(part: str) -> None:
    file, which = PARTS[part]
    ran = subprocess.run(
        [ENVIRONMENT / "bin" / "python", "-m", "pytest", "-q", "-c", os.devnull,
         "--rootdir", REPOSITORY, "--noconftest", "-p", "no:cacheprovider", "-k", which,
         f"tests/{file}"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(LIBRARIES)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-8000:]
