"""Compare voxtui with its peers: the same clip and the same stub models, alternating in one run.

    python -m venv ../peers && ../peers/bin/pip install -r benchmarks/peers/requirements.txt
    python -m benchmarks.peers ../peers/bin/python

Print the report's table and the machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.peers import common
from voxtui.audio.clips import load_clip
from voxtui.bench.environment import machine

HERE = Path(__file__).parent
CLIP = HERE.parent.parent / "assets" / "clips" / "short-joke.wav"
TAIL_SECONDS = 0.15
"""Time from the last sample above -40 dBFS to the release."""

OURS = [sys.executable, "-m", "benchmarks.peers.with_voxtui"]


class Contestant:
    """One framework in one configuration, in a process of its own."""

    def __init__(self, name: str, command: list[str], pcm: Path) -> None:
        self.name = name
        self.results: list[float] = []
        self._process = subprocess.Popen(
            [*command, str(pcm)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE.parent.parent,
        )

    def ready(self) -> None:
        self._read("ready")

    def speak(self) -> None:
        """Play the clip and return the time of the release."""
        self._process.stdin.write("turn\n")
        self._process.stdin.flush()
        self._read("released")

    def finish(self) -> None:
        self.results.append(self._read("ms"))

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(10)

    def _read(self, field):
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with {self._process.wait()}")
        return json.loads(line)[field]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", help="the interpreter of the peers' environment")
    parser.add_argument("--turns", type=int, default=30)
    options = parser.parse_args()
    clip = load_clip(CLIP, 60).samples
    voiced = np.flatnonzero(np.abs(clip) > 0.01)
    cut = clip[max(0, voiced[0] - 800) : voiced[-1] + int(TAIL_SECONDS * common.SAMPLE_RATE)]
    with tempfile.TemporaryDirectory() as folder:
        pcm = Path(folder) / "clip.pcm"
        pcm.write_bytes((cut * 32767).astype(np.int16).tobytes())
        peers = {name: [options.python, str(HERE / f"with_{name}.py")] for name in PEERS}
        table = [Contestant("voxtui, whole first sentence", [*OURS, "whole"], pcm)]
        for name, command in peers.items():
            table += [Contestant(f"{name}, {how}", [*command, how], pcm) for how in PEERS[name]]
        table.append(Contestant("voxtui, as shipped", [*OURS, "shipped"], pcm))
        run(table, options.turns)
        report(table, options.python)
        for contestant in table:
            contestant.close()


PEERS = {"pipecat": ("installed", "tuned"), "livekit": ("installed", "tuned")}


def run(table: list[Contestant], turns: int) -> None:
    """Run the contestants in turn. Round one is a warm-up."""
    for contestant in table:
        contestant.ready()
    for _ in range(turns + 1):
        before = None
        for contestant in table:
            contestant.speak()
            if before:
                before.finish()
            before = contestant
        before.finish()
    for contestant in table:
        del contestant.results[0]


def report(table: list[Contestant], python: str) -> None:
    tail = 1000 * TAIL_SECONDS
    print("| system | n | release to sound p50 | p95 | range | over 210 ms | speech end p50 |")
    print("|---|---|---|---|---|---|---|")
    for contestant in table:
        ms = np.array(contestant.results)
        half, most = np.percentile(ms, [50, 95])
        over = "" if "shipped" in contestant.name else f"{half - common.IDEAL_MS:.0f} ms"
        print(
            f"| {contestant.name} | {len(ms)} | {half:.0f} ms | {most:.0f} ms "
            f"| {ms.min():.0f} to {ms.max():.0f} | {over} | {half + tail:.0f} ms |"
        )
    print(json.dumps(machine()))
    code = "from importlib.metadata import version as v\n"
    code += "print(*[f'{n}=={v(n)}' for n in ('pipecat-ai', 'livekit-agents', 'livekit')])"
    subprocess.run([python, "-c", code], check=True)


if __name__ == "__main__":
    main()
