"""Run programs that others wrote against `voxtui serve`, with parts that only wait.

    python -m venv ../clients && ../clients/bin/pip install -r benchmarks/clients/requirements.txt
    python -m benchmarks.clients ../clients/bin

Print each program's output, and then a line with its result. The exit code is 1 if one failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.serve.process import Server, started

HERE = Path(__file__).absolute().parent

SESSIONS = 8

FUZZ_SECONDS = 180


def commands(programs: Path, server: Server) -> dict[str, list[str]]:
    """Return name -> command line."""
    origin = server.url.removesuffix("/v1")
    return {
        "schemathesis": [
            str(programs / "schemathesis"), "--config-file", str(HERE / "schemathesis.toml"),
            "run", f"{origin}/openapi.json",
            "--max-time", str(FUZZ_SECONDS), "--continue-on-failure", "--seed", "0",
        ],
        "openai-agents": [str(programs / "python"), str(HERE / "with_agents.py"), server.url],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", type=Path, help="the bin folder of the clients' environment")
    parser.add_argument("only", nargs="*", help="names of programs; none: all")
    asked = parser.parse_args()
    results: list[str] = []
    failed = False
    with (
        started("benchmarks.serve.scripted_server", [str(SESSIONS)]) as server,
        TemporaryDirectory() as folder,  # for what the programs keep
    ):
        for name, command in commands(asked.programs.absolute(), server).items():
            if asked.only and name not in asked.only:
                continue
            began = time.monotonic()
            code = subprocess.run(command, cwd=folder).returncode
            failed = failed or code != 0
            took = time.monotonic() - began
            results.append(f"{name}: {'failed' if code else 'passed'} ({took:.0f} s)")
    print(*results, sep="\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
