"""The chime of a timer, mixed into what is written to the device."""

from __future__ import annotations

import numpy as np

from voxtui.audio.chime import Chime
from voxtui.audio.played import PlayedSegment

RATE = 48_000
SILENCE = np.zeros(round(0.2 * RATE), np.float32)


def test_a_chime_begins_at_its_sample_once_the_device_plays() -> None:
    segment = PlayedSegment(RATE, written=RATE, began_at=9.05)
    mixed = Chime(10.1, RATE).mix(SILENCE, segment, now=9.9)
    assert np.flatnonzero(mixed)[0] == round(0.05 * RATE) + 1  # its first sample is zero


def test_a_chime_that_is_due_is_heard_though_the_device_has_not_begun() -> None:
    chime = Chime(10.0, RATE)
    assert not chime.mix(SILENCE, PlayedSegment(RATE), now=9.9).any()
    assert chime.mix(SILENCE, PlayedSegment(RATE), now=10.0).any()
