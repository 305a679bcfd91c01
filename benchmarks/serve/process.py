"""Start a server as a process of its own, as a user does."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

from voxtui.errors import ModelError

READY = re.compile(r"Ready: (http://\S+)")

STOP_SECONDS = 20.0

ON_LOOPBACK = (
    "--host", "127.0.0.1", "--port", "0", "--set", "serve.uds=",
    "--set", "serve.tls_cert=", "--set", "serve.tls_key=",
)  # fmt: skip
"""Options of `voxtui serve` for a port that only this machine reaches, whatever the configuration.
"""


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    """the URL of its API, which ends with /v1"""
    start_seconds: float
    """seconds from the start of the process until it accepts requests"""
    pid: int
    output: IO[str] = field(default_factory=io.StringIO)
    """its output after its ready line"""


@contextmanager
def started(module: str, arguments: Sequence[str]) -> Generator[Server]:
    """Run `python -m module` on a free port, until the end of the block. Raises ModelError.

    Its messages go to stderr.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        ready = READY.match(process.stdout.readline())
        if ready is None:
            raise ModelError("The server did not start.", "Its message stands above.")
        yield Server(ready[1], time.monotonic() - began, process.pid, process.stdout)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
