"""Work ahead changes neither the recognised words nor the answers."""

import re

import numpy as np
import pytest

from benchmarks import accuracy
from benchmarks.word_errors import word_errors
from voxtui.dialogue.data import SAMPLE_RATE


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.timeout(600)
def test_words_and_answers_are_equal_with_and_without_work_ahead():
    pairs = accuracy.compare([*accuracy.variants(2)], "smollm2-135m", 24)
    assert [pair.variant for pair in pairs if pair.heard != pair.heard_cold] == []
    assert [pair.variant for pair in pairs if pair.reply != pair.reply_cold] == []
    for row in accuracy.summary(pairs):
        assert row["word_error"] == row["word_error_cold"]
        assert row["right"] == row["right_cold"]
    assert {pair.variant for pair in pairs} == {*accuracy.CHANGES, "long"}
    assert sum(pair.hidden_ms > 0 for pair in pairs) > len(pairs) / 3
    plain = [
        pair for pair in pairs if pair.variant in ("as it is", "late release", "early release")
    ]
    assert word_errors((pair.text, pair.heard) for pair in plain) < 0.1


def test_the_clip_set_covers_every_variant():
    by_name = {said.variant: said for said in accuracy.variants(18)}
    plain = by_name["as it is"]
    assert np.abs(by_name["quiet"].samples).max() < np.abs(plain.samples).max() / 10
    assert len(by_name["fast"].samples) < len(plain.samples)
    assert len(by_name["paused"].samples) == len(plain.samples) + SAMPLE_RATE * 7 // 10
    assert by_name["early release"].held < plain.held < by_name["late release"].held
    assert 25 <= len(by_name["long"].samples) / SAMPLE_RATE < 32
    noise = by_name["noisy 10 dB"].samples
    silent, spoken = noise[: int(accuracy.LEAD * SAMPLE_RATE)], plain.samples
    loud = np.flatnonzero(np.abs(spoken) > 0.01)
    ratio = np.mean(spoken[loud[0] : loud[-1]] ** 2) / np.mean(silent**2)
    assert 10 * np.log10(ratio) == pytest.approx(10, abs=0.5)
    assert all(re.compile(said.answer) for said in by_name.values() if said.answer)
