"""A CUDA device that is not there, for tests: see README.md."""

from pathlib import Path

ENVIRONMENT = Path(__file__).parents[2] / ".simulated-cuda"
LIBRARIES = ENVIRONMENT / "lib" / "cuda"
