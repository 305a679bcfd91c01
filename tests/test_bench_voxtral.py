"""The benchmark of the Voxtral loop: what it needs, and that it runs to its end."""

import json
import subprocess
import sys

import pytest

OUTSIDE = {"msgspec", "textual", "sounddevice", "samplerate", "mistral_common", "platformdirs"}
"""What the house needs, and a machine with nothing but torch and transformers does not have."""


def test_it_needs_torch_transformers_and_numpy_only():
    found = subprocess.run(
        [sys.executable, "-c", "import sys, voxtui.bench.voxtral; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    modules = {name.split(".")[0] for name in found.stdout.split()}
    assert "torch" in modules
    assert modules & OUTSIDE == set()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rehearsal_reports_every_measure(tmp_path):
    out = tmp_path / "bench.json"
    command = [sys.executable, "-m", "voxtui.bench.voxtral", "--tiny", "--repeats", "1"]
    ran = subprocess.run([*command, "--json", out], capture_output=True, text=True, check=True)
    measured = json.loads(out.read_text())
    assert {row["seconds"] for row in measured["ttft"]} == {2, 5, 15, 40}
    assert {row["turn"] for row in measured["turns"]} == {1, 5, 10}
    assert {row["stage"] for row in measured["kernels"]} == {"encoder", "prefill", "step"}
    assert all(value > 0 for value in measured["ratios"].values())
    assert "Time to the first token" in ran.stdout
