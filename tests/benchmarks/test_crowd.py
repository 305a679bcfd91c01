"""Whether the memory of a server grows, from samples that are alike."""

from __future__ import annotations

import random

from benchmarks.clients.crowd import SETTLED_SECONDS, Sample, growth


def samples(mb_per_hour: float, hours: float = 1.0) -> list[Sample]:
    """Return what a server shows whose memory wanders by some MB, and grows."""
    chance, wander, shown = random.Random(0), 0.0, list[Sample]()
    for second in range(0, int(hours * 3600), 30):
        wander = 0.7 * wander + chance.gauss(0.0, 2.0)
        mb = 80 + wander + mb_per_hour * second / 3600
        shown.append(Sample(second, mb, 1, 20, 30, 20, second, 1.0))
    return shown


def test_memory_that_only_wanders_does_not_grow():
    flat = growth(samples(0.0), "rss_mb")
    assert flat is not None
    assert flat.low < 0 < flat.high


def test_a_leak_is_found_and_measured():
    leak = growth(samples(30.0), "rss_mb")
    assert leak is not None
    assert 0 < leak.low < 30 < leak.high


def test_too_few_samples_say_nothing():
    assert growth(samples(0.0, SETTLED_SECONDS / 3600), "rss_mb") is None
