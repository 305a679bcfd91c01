"""Fifty turns grow nothing and lose no frame. `make soak` runs a thousand."""

import numpy as np
import pytest

from benchmarks import soak
from tests.virtual_audio import missing
from voxtui.dialogue.data import FRAME_SAMPLES, FRAME_SECONDS, Frame


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.timeout(600)
def test_fifty_turns_leak_nothing_and_lose_no_frame():
    soaked = soak.turns(50, soak.embedded, every=5)
    assert soaked.answered == 50
    assert soaked.frames > 50 * 40 and soaked.lost_frames == 0
    assert (soaked.more_threads, soaked.more_files) == (0, 0)
    settled = np.array([sample.megabytes for sample in soaked.samples if sample.turn > 20])
    # A leak grows with every five turns. Pages that the system took from what earlier tests left,
    # and that are read again, come in one step.
    assert np.median(np.diff(settled)) < 1


@pytest.mark.slow
@pytest.mark.audio
@pytest.mark.timeout(300)
@pytest.mark.skipif(bool(missing()), reason="needs a virtual sound server")
def test_an_open_microphone_loses_no_sample_and_its_clock_does_not_drift():
    found = soak.listen(30, pause=4)
    assert found["clicks"] >= 4
    assert found["lost_or_gained_ms"] <= 0.2
    assert found["date_error_ms"]["spread"] <= 30
    assert found["more_threads"] == 0


class _Sure:
    def reset(self): ...

    def probability(self, frame):
        return 1.0


def test_a_gap_between_frames_counts_as_lost():
    continuity = soak.Continuity(_Sure())
    for at in (1, 2, 3, 5, 6):
        continuity.probability(Frame(np.zeros(FRAME_SAMPLES), at * FRAME_SECONDS))
    continuity.reset()
    continuity.probability(Frame(np.zeros(FRAME_SAMPLES), 0.0))
    assert (continuity.frames, continuity.lost) == (6, 1)


def test_samples_lost_between_two_clicks_are_found():
    whole = soak.Clicks(clicks=[(1.0, 11.0), (5.0, 15.0), (9.0, 19.0)])
    assert soak.listened(whole, [2.0, 6.0, 10.0], 9.0)["lost_or_gained_ms"] == 0
    lost = soak.Clicks(clicks=[(1.0, 11.0), (5.0, 15.0), (8.968, 19.0)])
    found = soak.listened(lost, [2.0, 6.0, 10.0], 9.0)
    assert found["lost_or_gained_ms"] == 32.0
    assert found["date_error_ms"]["spread"] == 0
