"""The table of `benchmarks.program`; its runs need minutes and the default model."""

from benchmarks.program import HERE, table


def test_both_versions_stand_below_each_other():
    times = {"first frame": [0.3, 0.5, 0.4], "ready": [4.0, 4.1, 4.2]}
    found = {
        "idle": {"cpu": 0.012, "bytes_per_s": 310},
        "versions": {"/old": times, str(HERE): times},
        "voxtui --help": [0.06],
    }
    lines = table(found).splitlines()
    assert lines[0] == "Idle: 1.2% of a core, 310 bytes/s to the terminal."
    assert "| first frame | /old | 400 | 500 | 3 |" in lines
    assert "| first frame | this | 400 | 500 | 3 |" in lines
    assert lines[-1] == "| voxtui --help | this | 60 | 60 | 1 |"
