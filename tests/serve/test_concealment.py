"""What is put in the place of lost packets of sound."""

from __future__ import annotations

import numpy as np
import pytest

from voxtui.serve.realtime.concealment import FADE, LONGEST_GAP, Concealment
from voxtui.serve.realtime.output_buffer import TRACK_RATE

FRAME = TRACK_RATE // 50


def voice(hz: float, frames: int = 20) -> np.ndarray:
    """Return a sound with a period."""
    time = np.arange(frames * FRAME) / TRACK_RATE
    tones = [np.sin(2 * np.pi * hz * n * time) / n for n in (1, 2, 3)]
    return np.sum(tones, axis=0, dtype=np.float32) * np.float32(0.2)


def received(sound: np.ndarray, *lost: int) -> np.ndarray:
    """Return what is heard of frames of `sound` of which some are lost."""
    concealment = Concealment()
    return np.concatenate(
        [
            concealment.whole(sound[at : at + FRAME], 90_000 + at)
            for number, at in enumerate(range(0, len(sound), FRAME))
            if number not in lost
        ]
    )


@pytest.mark.parametrize("hz", [80, 120, 210, 350])
def test_a_gap_in_a_voice_is_filled_with_the_voice(hz):
    sound = voice(hz)
    heard = received(sound, 9)
    assert len(heard) == len(sound)
    gap = slice(9 * FRAME, 10 * FRAME)
    assert np.corrcoef(heard[gap], sound[gap])[0, 1] > 0.95
    assert (heard[: gap.start] == sound[: gap.start]).all()
    assert (heard[gap.stop :] == sound[gap.stop :]).all()


def test_a_longer_gap_fades_into_silence_and_keeps_its_time():
    sound = voice(200)
    heard = received(sound, *range(8, 14))
    assert len(heard) == len(sound)
    silent = heard[8 * FRAME + FADE : 14 * FRAME]
    assert len(silent) > 2 * FRAME and not silent.any()


def test_silence_stays_silent_and_a_pause_of_the_sender_is_not_filled():
    silence = np.zeros(10 * FRAME, np.float32)
    assert not received(silence, 3, 4).any()
    concealment = Concealment()
    for at in (0, FRAME + LONGEST_GAP + 1, 5):
        assert len(concealment.whole(silence[:FRAME], at)) == FRAME
