"""The benchmark finds the silences that were put into a recording."""

import numpy as np
import pytest

from benchmarks.holes import measure, report
from tests.virtual_audio import RATE
from voxtui.audio.resampling import resample
from voxtui.dialogue.data import SpeechChunk

VOICE_RATE = 24_000


def clause(text: str, seed: int) -> SpeechChunk:
    """Return 0.3 s of noise, a pause of 0.2 s, 0.3 s of noise, and 0.1 s of silence."""
    random = np.random.default_rng(seed)
    third = round(0.3 * VOICE_RATE)
    samples = 0.2 * random.standard_normal(round(0.9 * VOICE_RATE)).astype(np.float32)
    samples[third : third + round(0.2 * VOICE_RATE)] = 0
    samples[round(0.8 * VOICE_RATE) :] = 0
    return SpeechChunk(samples, VOICE_RATE, text)


def test_holes_are_found_where_they_are() -> None:
    chunks = [clause(text, seed) for seed, text in enumerate(("Ten,", "eleven.", "Yes."))]
    gaps = [0.4, 0.7, 0.05]
    pieces: list[np.ndarray] = []
    for gap, chunk in zip(gaps, chunks, strict=True):
        pieces += [
            np.zeros(round(gap * RATE), np.float32),
            resample(chunk.samples, chunk.rate, RATE),
        ]
    found = measure("Count.", np.concatenate([*pieces, np.zeros(RATE, np.float32)]), chunks)
    assert found.first_sound_s == pytest.approx(0.4, abs=0.003)
    assert found.inside == [pytest.approx(0.8, abs=0.005)]
    assert found.between == [pytest.approx(0.15, abs=0.005)]
    assert found.own_pause_s == pytest.approx(0.2, abs=0.003)
    assert "| 3 | 0.80 | 1 | 0.15 | 0.20 | 0.00 |" in report([found])


def test_a_device_that_ran_dry_inside_a_clause_is_told_from_a_hole() -> None:
    chunks = [clause("Ten,", 1), clause("eleven.", 2)]
    half = round(0.4 * RATE)
    first, second = (resample(chunk.samples, chunk.rate, RATE) for chunk in chunks)
    pieces = [first[:half], np.zeros(round(0.3 * RATE), np.float32), first[half:], second]
    found = measure("Count.", np.concatenate([*pieces, np.zeros(RATE, np.float32)]), chunks)
    assert found.dry_s == pytest.approx(0.3, abs=0.005)
    assert found.inside == [pytest.approx(0.1, abs=0.005)]


def test_a_clause_that_is_not_in_the_recording_is_an_error() -> None:
    with pytest.raises(AssertionError, match="not in the recording"):
        measure("Count.", np.zeros(2 * RATE, np.float32), [clause("Ten,", 1)])
