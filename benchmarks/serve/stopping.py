"""Stop `voxtui serve` while all its sessions answer and other programs keep the cores.

    python -m benchmarks.serve.stopping [--runs 10] [--against TREE] [--sessions 1] [--busy 20]
        [--behind 8] [--json OUT]

The server stands behind BUSY busy processes by a nice value of BEHIND. Each session is told to tell
a story over a WebSocket; then the server gets SIGTERM. Times count from there: until the server has
ended, and until the processes of its chat models have. With --against the same is done with the
package of another tree, one run of each in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from websockets.sync.client import connect

STORY = "Tell me a long story about a ship."
PATIENCE_SECONDS = 180.0
BUSY_SECONDS = 2.0
"""Seconds from the start of the busy processes to the signal."""


def answer(port: int, begun: threading.Event, stopped: threading.Event) -> None:
    """Ask for stories until the server closes the connection."""
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": STORY}]}
    with connect(f"ws://127.0.0.1:{port}/v1/realtime", open_timeout=PATIENCE_SECONDS) as client:
        client.send(json.dumps({"type": "conversation.item.create", "item": said}))
        client.send(json.dumps({"type": "response.create"}))
        try:
            for message in client:
                kind = json.loads(message)["type"]
                if kind == "response.output_audio_transcript.delta":
                    begun.set()
                if kind == "response.done" and not stopped.is_set():
                    client.send(json.dumps({"type": "response.create"}))
        except Exception as closed:  # noqa: BLE001 (whatever the end looks like)
            print(f"  a client was cut off: {closed}", file=sys.stderr)


def stop_once(tree: Path, sessions: int, busy: int, behind: int) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "voxtui", "serve", "--port", "0"]
    command += ["--sessions", str(sessions)]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment,
        preexec_fn=lambda: os.nice(behind),
    )  # fmt: skip
    programs: list[subprocess.Popen[bytes]] = []
    stopped, ended = threading.Event(), dict[str, float]()
    try:
        assert server.stdout is not None
        ready = re.search(r":(\d+)/v1", server.stdout.readline())
        assert ready is not None, "The server did not start."
        chats = psutil.Process(server.pid).children(recursive=True)
        begun = [threading.Event() for _ in range(sessions)]
        for one in begun:
            threading.Thread(target=answer, args=(int(ready[1]), one, stopped), daemon=True).start()
        assert all(one.wait(PATIENCE_SECONDS) for one in begun), "A client got no answer."
        spin = [sys.executable, "-c", "while True: pass"]
        programs = [subprocess.Popen(spin) for _ in range(busy)]
        time.sleep(BUSY_SECONDS)  # the load must have set in
        stopped.set()
        began = time.monotonic()
        server.send_signal(signal.SIGTERM)

        def wait(name: str, processes: list[psutil.Process]) -> None:
            psutil.wait_procs(processes, timeout=PATIENCE_SECONDS)
            ended[name] = time.monotonic() - began

        waiting = threading.Thread(target=wait, args=("chat", chats))
        waiting.start()
        server.wait(PATIENCE_SECONDS)
        ended["server"] = time.monotonic() - began
        waiting.join()
    finally:
        for program in (*programs, server):
            program.kill()
            program.wait()
    return {"tree": str(tree), "load": os.getloadavg()[0], "code": server.returncode, **ended}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--busy", type=int, default=20)
    parser.add_argument("--behind", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    own = Path(__file__).parents[2]
    trees = [own, options.against.absolute()] if options.against else [own]
    runs: list[dict[str, Any]] = []
    for _ in range(options.runs):
        for tree in trees:
            runs.append(stop_once(tree, options.sessions, options.busy, options.behind))
            print(json.dumps(runs[-1]), flush=True)
            if options.json:
                options.json.write_text(json.dumps(runs, indent=1))
    for tree in trees:
        for name in ("server", "chat"):
            seconds = [run[name] for run in runs if run["tree"] == str(tree)]
            low, high = min(seconds), max(seconds)
            print(
                f"{tree} {name}: median {statistics.median(seconds):.1f} s, {low:.1f} to {high:.1f}"
            )


if __name__ == "__main__":
    main()
